"""Apache Iceberg tables as sinks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from io import BytesIO
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import missing_package
from beamlike.io.lake.base import LakeTable, WrittenFile
from beamlike.io.lake.rules import Rules
from beamlike.io.sinks import Place
from beamlike.system.datasets import Dataset, file_datasets
from beamlike.system.durable import sync, sync_folders
from beamlike.system.path_names import is_remote

_TRIES: Final = 9


def _pyiceberg() -> Any:
    try:
        import pyiceberg.catalog
        import pyiceberg.exceptions
        import pyiceberg.expressions
        import pyiceberg.transforms
    except ModuleNotFoundError as error:
        if error.name != "pyiceberg":
            raise
        raise missing_package("bl.Iceberg needs PyIceberg", "iceberg", error) from None
    return pyiceberg


@lru_cache(maxsize=16)
def _loaded(properties: tuple[tuple[str, str], ...], token: str) -> Any:
    """Returns the catalog with these properties. It is cached for each run in this process."""
    catalog = dict(properties)
    return _pyiceberg().catalog.load_catalog(catalog.pop("name", None), **catalog)


def _identifier(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or "." not in value or not all(value.split(".")):
        raise ValueError(
            f"Iceberg: table must be a name in a namespace such as 'sales.orders', not {value!r}"
        )


def _properties(catalog: str | Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of a catalog. If it is given by name, PyIceberg's configuration has the other
    properties.
    """
    return {"name": catalog} if isinstance(catalog, str) else dict(catalog)


@attrs.frozen(eq=False, slots=False)
class Iceberg(LakeTable):
    """An Apache Iceberg table as a sink. It is created at the start of a run if it does not exist.

    Each batch is one change of the table. Tasks write Parquet files, and the driver commits them in one transaction
    with the run and the number of the batch, unless the table has the batch already. So readers see each batch once,
    and completely. With "upsert" the driver replaces rows, and the files that contain them.

    Needs PyIceberg, from the extra `iceberg`.

    Args:
        table: The name of the table with its namespace, such as "sales.orders".
        catalog: A name in PyIceberg's configuration, or properties: `{"type": "rest", "uri": "https://..."}`.
        mode: "append" for any rows; or "upsert" for the output of a grouping: the table has one row per key and window,
            from the latest pane. A retracted pane removes its row.

    Raises:
        ValueError: The mode is unknown, or the name has no namespace.

    Example, with the `plays` of `bl.Collection`:
        >>> catalog = {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "lake"}
        >>> plays.write("table", bl.Iceberg("games.plays", catalog))
        <Collection 'plays': user String, points Int64, at String>
    """

    table: str = attrs.field(validator=_identifier)
    # Properties may contain secrets, so only their names are shown.
    catalog: Mapping[str, str] = attrs.field(
        default="default", converter=_properties, repr=lambda given: f"[{', '.join(given)}]"
    )

    def place(self) -> Place:
        return Place(
            "table", self.table, key=("iceberg", *sorted(map("=".join, self.catalog.items())), self.table)
        )

    def datasets(self) -> list[Dataset]:
        return file_datasets([self._home()])

    def _catalog(self) -> Any:
        return _loaded(tuple(sorted(self.catalog.items())), self._known.token)

    def _table(self) -> Any:
        return self._catalog().load_table(self.table)

    def _rules_found(self, schema: pl.Schema) -> Rules:
        catalog = self._catalog()
        if not catalog.table_exists(self.table):
            catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            catalog.create_table_if_not_exists(self.table, pl.DataFrame(schema=schema).to_arrow().schema)
        return _rules_of(self._table())

    def _folder(self) -> str:
        return f"{self._table().location()}/{'beamlike' if self._is_staged() else 'data'}/"

    def _home(self) -> str:
        return str(self._table().location())

    def _save(self, rows: pl.DataFrame, path: str) -> int:
        content = BytesIO()
        rows.write_parquet(content)
        with self._table().io.new_output(path).create() as stream:
            stream.write(content.getvalue())
        file = path.removeprefix("file://")
        if not is_remote(file):
            sync(file)
            sync_folders([file.rpartition("/")[0]])
        return content.tell()

    def _load(self, path: str) -> pl.DataFrame:
        with self._table().io.new_input(path).open() as stream:
            return pl.read_parquet(stream.read())

    def _remove(self, path: str) -> None:
        self._table().io.delete(path)

    def _noted(self, name: str) -> int | None:
        noted = self._table().properties.get(_note(name))
        return None if noted is None else int(noted)

    def _append(self, name: str, batch: int, parts: Mapping[str, WrittenFile]) -> None:
        def add(change: Any, properties: dict[str, str]) -> None:
            # File names are unique, so no file can be in the table already.
            change.add_files(list(parts), snapshot_properties=properties, check_duplicate_files=False)

        self._commit(name, batch, add)

    def _insert(self, name: str, batch: int, rows: pl.DataFrame) -> None:
        self._commit(name, batch, lambda change, properties: _put(change, rows, properties))

    def _merge(self, name: str, batch: int, rows: pl.DataFrame, gone: pl.DataFrame) -> None:
        def replace(change: Any, properties: dict[str, str]) -> None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Delete operation did not match any records")
                change.delete(
                    _any_of(pl.concat([rows.select(gone.columns), gone])), snapshot_properties=properties
                )
            if len(rows):
                _put(change, rows, properties)

        self._commit(name, batch, replace)

    def _commit(self, name: str, batch: int, change: Callable[[Any, dict[str, str]], None]) -> None:
        """Commits a change and the record of the batch together. Tries again if another writer was faster."""
        properties = {"beamlike.run": name, "beamlike.batch": str(batch)}
        for left in reversed(range(_TRIES)):
            try:
                table = self._table()
                self._rules().require_same(_rules_of(table))
                with table.transaction() as transaction:
                    # Rows and record are in one transaction, so the table never has only one of them.
                    change(transaction, properties)
                    transaction.set_properties({_note(name): str(batch)})
            except _pyiceberg().exceptions.CommitFailedException:
                if self._noted(name) == batch:  # the answer to this commit was lost
                    return
                if not left:
                    raise
            else:
                return


def _put(change: Any, rows: pl.DataFrame, properties: dict[str, str]) -> None:
    """Lets PyIceberg write the rows by partition, and add them to the table."""
    wanted = change.table_metadata.schema().select(*rows.columns).as_arrow()
    change.append(rows.select(wanted.names).to_arrow().cast(wanted), snapshot_properties=properties)


def _rules_of(table: Any) -> Rules:
    """Returns the rules of a table. With partitions, or nested values that may not be null, PyIceberg must write it."""
    schema, spec = table.schema(), table.spec()
    identity = (str(table.metadata.table_uuid), schema.model_dump_json(), spec.model_dump_json())
    return Rules(
        columns=pl.DataFrame(pl.from_arrow(schema.as_arrow().empty_table())).schema,
        identity="\n".join(identity),
        required=tuple(field.name for field in schema.fields if field.required),
        by_library=not spec.is_unpartitioned() or any(map(_is_strict, schema.fields)),
        faults=tuple(_faults(spec, schema)),
    )


def _is_strict(field: Any) -> bool:
    """True if a value in the field, or in a field nested in it, may not be null."""
    inner = getattr(field.field_type, "fields", ())
    return bool(field.required) or any(map(_is_strict, inner))


def _faults(spec: Any, schema: Any) -> Iterator[str]:
    transforms = _pyiceberg().transforms
    plain = transforms.IdentityTransform | transforms.VoidTransform
    has_core = find_spec("pyiceberg_core") is not None
    for field in spec.fields:
        column = schema.find_column_name(field.source_id)
        if isinstance(field.transform, transforms.UnknownTransform):
            yield f"its partition {field.name!r} is {field.transform} of {column!r}, which PyIceberg does not know"
        elif not (isinstance(field.transform, plain) or has_core):
            yield (
                f"its partition {field.name!r} is {field.transform} of {column!r}, for which PyIceberg needs "
                "pyiceberg-core: pip install 'beamlike[iceberg]'"
            )


def _note(name: str) -> str:
    """Returns the name of the table property with the last batch of a run. Snapshots may expire, but
    properties stay.
    """
    return f"beamlike.batch.{name}"


def _any_of(keys: pl.DataFrame) -> Any:
    """Returns the condition that a row has one of these keys. Null equals null."""
    ice = _pyiceberg().expressions
    if not keys.columns:
        return ice.AlwaysTrue()
    rows = keys.unique().rows()
    found = [
        _all(ice, [ice.IsNull(name) if value is None else ice.EqualTo(name, value) for name, value in pairs])
        for pairs in (list(zip(keys.columns, row, strict=True)) for row in rows)
    ]
    return found[0] if len(found) == 1 else ice.Or(*found)


def _all(ice: Any, terms: list[Any]) -> Any:
    return terms[0] if len(terms) == 1 else ice.And(*terms)
