"""The rules of a Delta table for its writers, read from its metadata, and the text form of partition values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl

from beamlike.io.lake.rules import Rules

_MAPPING: Final = "delta.columnMapping.mode"
_CHECK: Final = "delta.constraints."
_GENERATED: Final = "delta.generationExpression"
_INVARIANTS: Final = "delta.invariants"
_IDENTITY: Final = "delta.identity."
_DEFAULT: Final = "CURRENT_DEFAULT"
_TIME: Final = "%Y-%m-%d %H:%M:%S%.6f"

_WRITTEN: Final = frozenset(
    {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
    }
)
"""The table features that this package can write with deltalake."""

_IDENTITY_VERSION: Final = 6
"""The version of the writer protocol that introduced identity columns. Features had no names then."""


def rules_of(table: Any, columns: pl.Schema) -> Rules:
    """Returns the rules of a table with these columns.

    A table with constraints, generated columns, column mapping, or nested values that may not be null must be written
    by deltalake itself. For partitions and columns that may not be null, checking the rows is enough.
    """
    metadata = table.metadata()
    fields = json.loads(table.schema().to_json())["fields"]
    options = {
        name: value
        for name, value in metadata.configuration.items()
        if name.startswith(_CHECK) or name == _MAPPING
    }
    filled = tuple(field["name"] for field in fields if _GENERATED in field["metadata"])
    return Rules(
        columns=columns,
        # Sorted, because deltalake returns the metadata of a field in no fixed order.
        identity=json.dumps([str(metadata.id), fields, metadata.partition_columns, options], sort_keys=True),
        required=tuple(field["name"] for field in fields if not field["nullable"]),
        filled=filled,
        partitions=tuple(metadata.partition_columns),
        by_library=bool(filled)
        or is_mapped(table)
        or any(name.startswith(_CHECK) for name in options)
        or any(_INVARIANTS in field["metadata"] or any(_strict(field["type"])) for field in fields),
        faults=tuple(_faults(table, fields)),
    )


def constraints_of(table: Any) -> Iterator[str]:
    """Yields the constraints of a table as text."""
    for name, value in sorted(table.metadata().configuration.items()):
        if name.startswith(_CHECK):
            yield f"{name.removeprefix(_CHECK)}: {value}"
    for field in json.loads(table.schema().to_json())["fields"]:
        if not field["nullable"]:
            yield f"{field['name']!r} is not null"
        if expression := field["metadata"].get(_GENERATED):
            yield f"{field['name']!r} is {expression}"
        if _INVARIANTS in field["metadata"]:
            yield f"{field['name']!r}: {field['metadata'][_INVARIANTS]}"


def is_mapped(table: Any) -> bool:
    """True if columns have other names in the data files than in the table (column mapping)."""
    return str(table.metadata().configuration.get(_MAPPING, "none")) != "none"


def _faults(table: Any, fields: list[dict[str, Any]]) -> Iterator[str]:
    protocol, partitions = table.protocol(), table.metadata().partition_columns
    for feature in sorted({*(protocol.writer_features or ())} - _WRITTEN):
        yield f"it has the feature {feature!r}, which deltalake does not write"
    if protocol.min_writer_version == _IDENTITY_VERSION:
        yield f"its protocol is writer version {_IDENTITY_VERSION}, which deltalake does not write"
    for field in fields:
        if any(name.startswith(_IDENTITY) for name in field["metadata"]):
            yield f"its column {field['name']!r} is an identity column, whose numbers only Spark can generate"
        if field["type"] == "binary" and field["name"] in partitions:
            yield f"its partition {field['name']!r} is Binary, which deltalake does not read as it was written"
        if _DEFAULT in field["metadata"]:
            yield f"its column {field['name']!r} has a default value, which deltalake does not write"


def _strict(kind: Any) -> Iterator[bool]:
    """Yields a boolean for each part of a nested type: True if it may not be null."""
    if isinstance(kind, str):
        return
    yield not (kind.get("containsNull", True) and kind.get("valueContainsNull", True))
    for field in kind.get("fields", []):
        yield not field["nullable"]
        yield from _strict(field["type"])
    for inner in ("elementType", "valueType"):
        yield from _strict(kind.get(inner, ""))


def partition_text(name: str, dtype: pl.DataType) -> pl.Expr:
    """Returns the values of a partition column in the text form of the table's log. Empty text becomes null."""
    value = pl.col(name)
    if isinstance(dtype, pl.Datetime):
        return value.dt.strftime(_TIME)
    if dtype.is_float():
        return value.cast(pl.String).replace({"inf": "Infinity", "-inf": "-Infinity"})
    return value.cast(pl.String).replace("", None)


def partition_value(text: str | None, dtype: pl.DataType) -> pl.Expr:
    """Converts the text of a partition value to the type of its column. A time without a zone is in UTC."""
    if text is None or (text == "" and dtype != pl.String):
        return pl.lit(None, dtype)
    if isinstance(dtype, pl.Datetime):
        moment = pl.lit(text.removesuffix("Z").replace("T", " ")).str.to_datetime(time_unit="us")
        return moment if dtype.time_zone is None else moment.dt.replace_time_zone("UTC")
    if dtype == pl.Boolean:
        return pl.lit(text == "true")
    return pl.lit(text).str.to_date() if dtype == pl.Date else pl.lit(text).cast(dtype)


def texts_of(rows: pl.DataFrame, partitions: tuple[str, ...]) -> pl.DataFrame:
    """Returns the values of the partition columns in the text form of the table's log."""
    return rows.select(partition_text(name, rows.schema[name]).alias(name) for name in partitions)


def library_rows(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Returns the rows with all columns that deltalake does not compute. Columns that the rows lack are null."""
    lacking: Mapping[str, pl.DataType] = {
        name: dtype
        for name, dtype in rules.columns.items()
        if name not in rows.columns and name not in rules.filled
    }
    whole = rows.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in lacking.items())
    return whole.select(name for name in rules.columns if name in whole.columns)
