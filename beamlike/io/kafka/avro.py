"""The Avro format for Kafka messages. All messages have the same schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from types import ModuleType
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import missing_package
from beamlike.io.files.faults import shown, why_unfit, without_lost
from beamlike.io.kafka.codecs import Decoded
from beamlike.rows.dtypes import as_dtype
from beamlike.rows.exact import fields, lost

_PLAIN: Final[Mapping[str, pl.DataType]] = {
    "boolean": pl.Boolean(),
    "int": pl.Int32(),
    "long": pl.Int64(),
    "float": pl.Float32(),
    "double": pl.Float64(),
    "bytes": pl.Binary(),
    "fixed": pl.Binary(),
    "string": pl.String(),
    "enum": pl.String(),
}
_DIGITS: Final = 38
"""The greatest number of digits of a polars decimal."""

_LOGICAL: Final[Mapping[str, pl.DataType]] = {
    "timestamp-millis": pl.Datetime("us", "UTC"),
    "timestamp-micros": pl.Datetime("us", "UTC"),
    "date": pl.Date(),
}


def _fastavro() -> ModuleType:
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise missing_package("bl.avro needs fastavro", "kafka", error) from None
    return fastavro


@attrs.frozen
class Avro:
    """The format of messages that are Avro records. The fields of the record are the columns."""

    schema: str

    def __attrs_post_init__(self) -> None:
        self.columns("")
        _fastavro()

    def columns(self, name: str) -> pl.Schema:
        """Returns the fields as columns.

        Raises `ValueError` for a schema that is not a record, and `TypeError` for a type that no column can hold.
        """
        try:
            record = json.loads(self.schema)
        except ValueError as error:
            raise ValueError(f"bl.avro: the schema is not JSON ({error}): {self.schema[:80]!r}") from None
        if not isinstance(record, dict) or record.get("type") != "record":
            raise ValueError("bl.avro: the schema must be a record, as its fields are the columns")
        fields = record.get("fields")
        if not isinstance(fields, list) or not all(_is_field(field) for field in fields):
            raise ValueError(f"bl.avro: each of the fields must have a name and a type, not {fields!r}")
        return pl.Schema({field["name"]: _dtype(field["type"], field["name"]) for field in record["fields"]})

    def decode(self, values: pl.Series, name: str) -> Decoded:
        """Decodes records. Bytes are invalid if they are no record of the schema, or if bytes remain after
        the record.
        """
        reader = _fastavro().schemaless_reader
        schema = _fastavro().parse_schema(json.loads(self.schema, object_hook=_with_every_digit))
        rows, kept, wrong = list[Any](), list[int](), list[tuple[int, str]]()
        for index, value in enumerate(values.to_list()):
            stream = BytesIO(value)
            try:
                row = reader(stream, schema)
            except Exception as error:  # fastavro raises errors of many kinds
                wrong.append((index, f"not an Avro record of the schema ({type(error).__name__}: {error})"))
                continue
            # The reader ignores bytes after the record, but they show that the writer had another schema.
            if left := len(value) - stream.tell():
                wrong.append((index, f"not an Avro record of the schema: {left} bytes are left"))
            else:
                rows.append(row)
                kept.append(index)
        return _fitted(rows, self.columns(name), pl.Series(kept, dtype=pl.UInt32), wrong)

    def encode(self, frame: pl.DataFrame) -> pl.Series:
        """Encodes rows as records. Raises `ValueError` for a float that is too large for the schema."""
        writer, schema = _fastavro().schemaless_writer, _fastavro().parse_schema(json.loads(self.schema))
        found = []
        _require_range(frame, self.columns(""))
        for row in frame.select(self.columns("").names()).iter_rows(named=True):
            stream = BytesIO()
            writer(stream, schema, row)
            found.append(stream.getvalue())
        return pl.Series(found, dtype=pl.Binary)


def _with_every_digit(given: dict[str, Any]) -> dict[str, Any]:
    """Returns a part of a schema with the greatest precision for decimals, because fastavro rounds to the precision."""
    return {**given, "precision": _DIGITS} if given.get("logicalType") == "decimal" else given


def _fitted(rows: list[Any], columns: pl.Schema, kept: pl.Series, wrong: list[tuple[int, str]]) -> Decoded:
    """Returns the rows that fit the columns. A writer may have written more decimal digits than the schema allows."""
    wide = pl.DataFrame(rows, schema={name: _widened(dtype) for name, dtype in columns.items()})
    frame, bad = without_lost(wide, wide.cast(columns, strict=False))
    if not bad.any():
        return Decoded(frame, kept, wrong)
    whys = why_unfit(shown(wide.filter(bad)), frame.filter(bad))
    return Decoded(frame.filter(~bad), kept.filter(~bad), [*wrong, *zip(kept.filter(bad), whys, strict=True)])


def _widened(dtype: pl.DataType) -> pl.DataType:
    """Returns the type with polars' greatest precision for decimals, also in nested types."""
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(_DIGITS, dtype.scale)
    if isinstance(dtype, pl.List):
        return pl.List(_widened(as_dtype(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({name: _widened(inner) for name, inner in fields(dtype).items()})
    return dtype


def _require_range(frame: pl.DataFrame, columns: pl.Schema) -> None:
    """Raises `ValueError` for a number that would be infinite as a 32-bit float."""
    for name, dtype in columns.items():
        given = frame[name]
        if dtype == pl.Float32 and (bad := given.filter(lost(given, given.cast(dtype, strict=False)))).len():
            raise ValueError(
                f"bl.avro: the column {name!r} has {bad[0]!r}, which a float of 32 bits cannot hold"
            )


def _is_field(given: Any) -> bool:
    """True if `given` looks like a field: it has a name, and something that may be a type."""
    return isinstance(given, dict) and "name" in given and isinstance(given.get("type"), str | list | dict)


def _dtype(given: Any, field: str) -> pl.DataType:
    if isinstance(given, list):
        others = [one for one in given if one != "null"]
        if len(others) == 1:
            return _dtype(others[0], field)
    elif isinstance(given, str):
        if given in _PLAIN:
            return _PLAIN[given]
    elif given.get("logicalType") in _LOGICAL:
        return _LOGICAL[given["logicalType"]]
    elif given.get("logicalType") == "decimal":
        return pl.Decimal(given["precision"], given.get("scale", 0))
    elif given["type"] == "array":
        return pl.List(_dtype(given["items"], field))
    elif given["type"] == "record":
        return pl.Struct({inner["name"]: _dtype(inner["type"], field) for inner in given["fields"]})
    elif "logicalType" not in given:
        return _dtype(given["type"], field)
    raise TypeError(f"bl.avro: the field {field!r} is {json.dumps(given)}, which no type of column can hold")


def avro(schema: str | Mapping[str, Any]) -> Avro:
    """Returns the format of messages that are Avro records; their fields are the columns.

    All messages have the same schema, without a header before the record: messages of a schema registry, which begin
    with the number of their schema, are not supported.

    Args:
        schema: The schema of the record, as a dict or as JSON.

    Raises:
        ValueError: The schema is not a record.
        TypeError: No column can hold a field.

    Example:
        >>> fields = [{"name": "user", "type": "string"}, {"name": "points", "type": ["null", "int"]}]
        >>> plays = bl.avro({"type": "record", "name": "Play", "fields": fields})
        >>> bl.Kafka("localhost:9092", "plays", value=plays).schema()["points"]
        Int32
    """
    return Avro(schema if isinstance(schema, str) else json.dumps(schema))
