"""Messages that are Avro records of one schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from types import ModuleType
from typing import Any, Final

import attrs
import polars as pl

from beamlike.io.kafka.codecs import Decoded

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
_LOGICAL: Final[Mapping[str, pl.DataType]] = {
    "timestamp-millis": pl.Datetime("us", "UTC"),
    "timestamp-micros": pl.Datetime("us", "UTC"),
    "date": pl.Date(),
}


def _fastavro() -> ModuleType:
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "bl.avro needs fastavro: pip install 'beamlike[kafka]'", name=error.name
        ) from None
    return fastavro


@attrs.frozen
class Avro:
    """An Avro record; its fields are columns."""

    schema: str

    def __attrs_post_init__(self) -> None:
        self.columns("")

    def columns(self, name: str) -> pl.Schema:
        """The fields. Raises `ValueError` for a schema that is no record, and `TypeError` for a type without column."""
        try:
            record = json.loads(self.schema)
        except ValueError as error:
            raise ValueError(f"bl.avro: the schema is no JSON ({error}): {self.schema[:80]!r}") from None
        if not isinstance(record, dict) or record.get("type") != "record":
            raise ValueError("bl.avro: the schema must be a record, as its fields are the columns")
        fields = record.get("fields")
        if not isinstance(fields, list) or not all(_is_field(field) for field in fields):
            raise ValueError(f"bl.avro: each of the fields must have a name and a type, not {fields!r}")
        return pl.Schema({field["name"]: _dtype(field["type"], field["name"]) for field in record["fields"]})

    def decode(self, values: pl.Series, name: str) -> Decoded:
        """What is no record of the schema, or has bytes behind it, is wrong."""
        reader, schema = _fastavro().schemaless_reader, _fastavro().parse_schema(json.loads(self.schema))
        rows, kept, wrong = list[Any](), list[int](), list[tuple[int, str]]()
        for index, value in enumerate(values.to_list()):
            stream = BytesIO(value)
            try:
                row = reader(stream, schema)
            except Exception as error:  # whatever it trips over
                wrong.append((index, f"no Avro of the schema ({type(error).__name__}: {error})"))
                continue
            if left := len(value) - stream.tell():
                wrong.append((index, f"no Avro of the schema: {left} bytes are left"))
            else:
                rows.append(row)
                kept.append(index)
        return Decoded(pl.DataFrame(rows, schema=self.columns(name)), pl.Series(kept, dtype=pl.UInt32), wrong)

    def encode(self, frame: pl.DataFrame) -> pl.Series:
        """The columns of the schema as its records."""
        writer, schema = _fastavro().schemaless_writer, _fastavro().parse_schema(json.loads(self.schema))
        found = []
        for row in frame.select(self.columns("").names()).iter_rows(named=True):
            stream = BytesIO()
            writer(stream, schema, row)
            found.append(stream.getvalue())
        return pl.Series(found, dtype=pl.Binary)


def _is_field(given: Any) -> bool:
    """Whether it has a name, and something that may be a type."""
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
    raise TypeError(
        f"bl.avro: the field {field!r} is {json.dumps(given)}, for which there is no type of column"
    )


def avro(schema: str | Mapping[str, Any]) -> Avro:
    """The format of messages that are Avro records of this schema, a dict or its JSON; their fields are the columns.

    All messages are of the same schema, and have nothing before the record: those of a schema registry, which begin
    with the number of their schema, are not of this format. Raises `ValueError` for a schema that is no record, and
    `TypeError` for a field that no column can hold.

    Example:
        >>> fields = [{"name": "user", "type": "string"}, {"name": "points", "type": ["null", "int"]}]
        >>> plays = bl.avro({"type": "record", "name": "Play", "fields": fields})
        >>> bl.Kafka("localhost:9092", "plays", value=plays).schema()["points"]
        Int32
    """
    return Avro(schema if isinstance(schema, str) else json.dumps(schema))
