"""Delta Lake tables as sources and as sinks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self

import attrs
import polars as pl

from beamlike.errors import PlanError, missing_package
from beamlike.io.base import FromFile
from beamlike.io.files.paths import absolute, path_text
from beamlike.io.lake.base import LakeTable, WrittenFile
from beamlike.io.lake.delta_log import DeltaLog, rows_of
from beamlike.io.lake.delta_rules import constraints_of, is_mapped, library_rows, rules_of, texts_of
from beamlike.io.lake.rules import Rules, Slice, by_partition
from beamlike.io.options import FOR_SOURCES
from beamlike.io.planned import planned_chunks
from beamlike.io.sinks import ANY, Place
from beamlike.io.sources import Chunk, PlannedBatch, Position
from beamlike.system.datasets import Dataset, file_datasets
from beamlike.system.durable import make_folder, sync, sync_folders
from beamlike.system.fields import as_options, true_or_false
from beamlike.system.path_names import is_remote
from beamlike.system.retries import FEW, again
from beamlike.system.texts import sql_name

_GONE: Final = "__gone"
_STRANGE: Final = frozenset({"deletionVectors", "columnMapping"})
"""Features of tables whose data files do not contain the rows directly."""


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.fs
        import deltalake.transaction
    except ModuleNotFoundError as error:
        if error.name != "deltalake":
            raise
        raise missing_package("bl.Delta needs deltalake", "delta", error) from None
    return deltalake


def _version(owner: object, attribute: attrs.Attribute[int | None], value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError(f"Delta: start_version must be the number of one, not {value!r}")


@attrs.frozen(eq=False, slots=False)
class Delta(LakeTable):
    """A Delta Lake table, as a source or as a sink.

    As a source, the rows that the table has when a run begins are read first, and then each new version as a batch,
    exactly once. Versions may append rows or compact files; one that removes or changes rows fails the run. A run
    without a checkpoint ends with the version that exists when it begins. Columns that a file lacks are null.

    As a sink, the table is created at the start of a run if it does not exist, and each batch is one version. Tasks
    write Parquet files, and the driver commits them in one transaction with the run and the number of the batch, unless
    the table has the batch already. So readers see each batch once, and completely. With "upsert" the driver merges the
    rows of a batch.

    Needs deltalake, from the extra `delta`.

    Args:
        path: The folder of the table, local or in an object store.
        mode: "append" for any rows; or "upsert" for the output of a grouping: the table has one row per key and window,
            from the latest pane. A retracted pane removes its row.
        storage_options: Options of deltalake for object stores.
        start_version: The version to read from, without the rows of earlier versions. By default all rows are read.
        complete: True if the table gets no more rows: when all rows are read that it has when a run begins, the
            watermark of the source goes to the end of time, and other sources go on. Later rows are not read, which is
            logged and recorded.

    Raises:
        ValueError: The mode is unknown, or `start_version` is not the number of a version.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("table", bl.Delta("lake/plays"))
        <Collection 'plays': user String, points Int64, at String>
        >>> run = p.run()
        >>> bl.Pipeline("again").read("plays", bl.Delta("lake/plays")).collect()["user"].to_list()
        ['ada', 'bob', 'ada']
    """

    path: str = attrs.field(converter=path_text)
    # Options may contain secrets, so only their names are shown.
    storage_options: Mapping[str, str] = attrs.field(
        factory=dict, converter=as_options, kw_only=True, repr=lambda given: f"[{', '.join(given)}]"
    )
    start_version: int | None = attrs.field(
        default=None, kw_only=True, validator=_version, metadata=FOR_SOURCES
    )
    complete: bool = attrs.field(default=False, kw_only=True, validator=true_or_false, metadata=FOR_SOURCES)
    # The columns of the source, inferred when the pipeline was declared.
    _seen: pl.Schema | None = attrs.field(default=None, kw_only=True, repr=False)

    bounded = True

    def place(self) -> Place:
        key = ("delta", absolute(self.path))
        return Place("table", self.path, key=key, path=self.path, names=(f"part-{ANY}.parquet",))

    def datasets(self) -> list[Dataset]:
        return file_datasets([self.path])

    def from_anywhere(self) -> Self:
        return attrs.evolve(self, path=absolute(self.path))

    def _table(self, version: int | None = None) -> Any:
        return _deltalake().DeltaTable(self.path, version=version, storage_options=dict(self.storage_options))

    def _rules_found(self, schema: pl.Schema) -> Rules:
        table = _deltalake().DeltaTable
        options = dict(self.storage_options)
        if not table.is_deltatable(self.path, storage_options=options):
            if not is_remote(self.path):
                os.makedirs(self.path, exist_ok=True)
            rows = pl.DataFrame(schema=schema).to_arrow()
            table.create(self.path, schema=rows.schema, mode="ignore", storage_options=options)
        return self._rules_of(self._table())

    def _rules_of(self, table: Any) -> Rules:
        return rules_of(table, _columns_of(table))

    def _same_table(self) -> Any:
        """Returns the table in its current version. Raises `ValueError` if it was replaced since the start of
        the run.
        """
        table = self._table()
        self._rules().require_same(self._rules_of(table))
        return table

    def _folder(self) -> str:
        # Paths with this prefix do not belong to the table, and a clean-up of the table ignores them.
        return "_beamlike/" if self._is_staged() else ""

    def _home(self) -> str:
        return absolute(self.path)

    def _files(self) -> Any:
        return _deltalake().fs.DeltaStorageHandler(self.path, dict(self.storage_options))

    def _save(self, rows: pl.DataFrame, path: str) -> int:
        file = f"{self.path}/{path}"
        if is_remote(self.path):
            rows.write_parquet(file, storage_options=dict(self.storage_options))
            [found] = self._files().get_file_info([path])
            return int(found.size)
        make_folder(os.path.dirname(file))
        rows.write_parquet(file)
        sync(file)
        sync_folders([os.path.dirname(file)])
        return os.path.getsize(file)

    def _load(self, path: str) -> pl.DataFrame:
        return pl.read_parquet(f"{self.path}/{path}", storage_options=dict(self.storage_options) or None)

    def _remove(self, path: str) -> None:
        self._files().delete_file(path)

    def _noted(self, name: str) -> int | None:
        version: int | None = self._table().transaction_version(name)
        return version

    def _noting(self, name: str, batch: int) -> Any:
        delta = _deltalake()
        return delta.CommitProperties(app_transactions=[delta.Transaction(name, batch)])

    def _slices(self, rows: pl.DataFrame) -> Iterable[Slice]:
        partitions = self._rules().partitions
        return by_partition(rows, texts_of(rows, partitions)) if partitions else [Slice(rows)]

    def _append(self, name: str, batch: int, parts: Mapping[str, WrittenFile]) -> None:
        table, now = self._same_table(), time.time_ns() // 1_000_000
        added = [
            _deltalake().transaction.AddAction(
                path=path,
                size=part.size,
                partition_values=part.values,
                modification_time=now,
                data_change=True,
                stats=json.dumps({"numRecords": part.rows}),
            )
            for path, part in parts.items()
        ]
        table.create_write_transaction(
            added,
            "append",
            table.schema(),
            partition_by=list(self._rules().partitions) or None,
            commit_properties=self._noting(name, batch),
        )

    def _insert(self, name: str, batch: int, rows: pl.DataFrame) -> None:
        table = self._same_table()
        whole = library_rows(rows, self._rules())
        with _broken_rules(table):
            _deltalake().write_deltalake(
                table, whole.to_arrow(), mode="append", commit_properties=self._noting(name, batch)
            )

    def _merge(self, name: str, batch: int, rows: pl.DataFrame, gone: pl.DataFrame) -> None:
        keys, columns = gone.columns, {sql_name(column): f"new.{sql_name(column)}" for column in rows.columns}
        # A merge is one commit, so rows to write and keys to delete are in one table, and a column tells
        # which is which.
        flagged = (
            rows.with_columns(pl.lit(False).alias(_GONE)),
            gone.with_columns(pl.lit(True).alias(_GONE)),
        )
        source = pl.concat(flagged, how="diagonal")
        same = [
            f"(old.{key} = new.{key} OR (old.{key} IS NULL AND new.{key} IS NULL))"
            for key in map(sql_name, keys)
        ]
        table = self._same_table()
        merger = table.merge(
            source.to_arrow(),
            " AND ".join(same) or "true",
            source_alias="new",
            target_alias="old",
            commit_properties=self._noting(name, batch),
        )
        merger = merger.when_matched_delete(f"new.{_GONE}").when_matched_update(columns)
        with _broken_rules(table):
            merger.when_not_matched_insert(columns, predicate=f"NOT new.{_GONE}").execute()

    # A source

    def schema(self) -> pl.Schema:
        """Returns the columns.

        Raises `FileNotFoundError` if there is no table, and `PlanError` if it has features that cannot be read.
        """
        return self._types() if self._seen is None else self._seen

    def looked_up(self) -> Self:
        """Returns the source with its current columns as part of the declaration. So workers need not read the table,
        and all runs have the same columns.
        """
        return attrs.evolve(self, seen=self._types())

    def _types(self) -> pl.Schema:
        return again(f"table {self.path!r}", self._types_found, FEW)

    def _types_found(self) -> pl.Schema:
        if not _deltalake().DeltaTable.is_deltatable(self.path, storage_options=dict(self.storage_options)):
            raise FileNotFoundError(f"there is no Delta table at {self.path!r}")
        table = self._table()
        strange = _STRANGE.intersection(table.protocol().reader_features or ())
        if is_mapped(table):
            strange |= {"columnMapping"}
        if strange:
            raise PlanError(f"the Delta table {self.path!r} has {min(strange)}, which bl.Delta does not read")
        return _columns_of(table)

    def chunks(self, rows: int) -> Iterator[Chunk]:
        return planned_chunks(self, rows, {"end": self._table().version()})

    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        """Plans files of the first snapshot, with about `rows` rows, or the files of a new version."""
        from pyarrow.fs import PyFileSystem

        # Tasks have other working directories.
        path, system = absolute(self.path), PyFileSystem(self._files())
        log = DeltaLog(path, system, self._table)
        return again(f"table {self.path!r}", lambda: log.plan(position, rows, self.start_version))

    def past(self, position: Position, since: int | None) -> PlannedBatch | None:
        """Plans all rows of the table up to a position as one batch.

        Raises `LookupError` if the table no longer has that version.
        """
        from pyarrow.fs import PyFileSystem

        if not position:
            return None
        path, system = absolute(self.path), PyFileSystem(self._files())
        try:
            return DeltaLog(path, system, self._table).past(position, self.start_version)
        except _deltalake().exceptions.DeltaError as error:
            raise LookupError(f"version {position['version']} cannot be read any more: {error}") from error

    def read_part(self, part: Any, rows: int) -> Iterator[FromFile]:
        return rows_of(part, self.schema(), dict(self.storage_options), rows)


def _columns_of(table: Any) -> pl.Schema:
    import pyarrow as pa

    found = pa.schema(table.schema().to_arrow()).empty_table()
    return pl.DataFrame(pl.from_arrow(found)).schema


@contextmanager
def _broken_rules(table: Any) -> Iterator[None]:
    """Adds the table's constraints to deltalake's error for rows that violate one."""
    try:
        yield
    except _deltalake().exceptions.DeltaError as error:
        if "Invalid data found" not in str(error):
            raise
        raise ValueError(f"{error}\nThe table asks for: {'; '.join(constraints_of(table))}") from None
