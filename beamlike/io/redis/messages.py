"""Messages of a stream as columns: their fields and ids, and dead letters for invalid fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import attrs
import polars as pl

from beamlike.io.base import Faulty, FromFile, Pieces
from beamlike.io.files.faults import decoded
from beamlike.io.kafka.codecs import Codec, Decoded, Plain, codec
from beamlike.io.kafka.messages import decode_column
from beamlike.io.redis.client import Entry, time_of_id
from beamlike.rows.dtypes import column_dtype, type_name
from beamlike.rows.values import from_text

ID: Final = "redis_id"
TIME: Final = "redis_time"
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}
_ABOUT: Final = {ID: pl.String(), TIME: pl.Datetime("us", "UTC")}


@attrs.frozen
class Typed:
    """A format for values that are written as text: numbers, times and booleans."""

    dtype: pl.DataType

    def columns(self, name: str) -> pl.Schema:
        return pl.Schema({name: self.dtype})

    def decode(self, values: pl.Series, name: str) -> Decoded:
        text = Plain(pl.String()).decode(values, name)
        read = text.frame.select(_read(pl.col(name), self.dtype).alias(name))
        good = read[name].is_not_null()
        shown = text.frame[name].to_list()
        wrong = [
            (text.kept[index], f"{shown[index]!r}, expected {type_name(self.dtype)}")
            for index in (~good).arg_true()
        ]
        return Decoded(read.filter(good), text.kept.filter(good), [*text.wrong, *wrong])

    def encode(self, frame: pl.DataFrame) -> pl.Series:
        return frame.to_series().cast(pl.String).cast(pl.Binary)


def _read(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Returns the values; null for invalid text. Raises `TypeError` for a type that has no text form."""
    if dtype.is_integer():
        return text.cast(dtype, strict=False)
    if dtype == pl.Boolean:
        return text.str.to_lowercase().replace_strict(_TRUTH, default=None, return_dtype=dtype)
    return from_text(text, dtype)


def codec_of(field: str, given: Any) -> Codec:
    """Returns the format of a field that was given as a type or a format. Raises `TypeError` for anything else."""
    if given in (bytes, str) or (not isinstance(given, type) and isinstance(given, Codec)):
        return codec(given)
    dtype = column_dtype(field, given)
    try:
        _read(pl.col(field), dtype)
    except TypeError:
        raise TypeError(
            f"Redis: field {field!r} is text, which cannot be read as {type_name(dtype)}; JSON is bl.json({{...}})"
        ) from None
    return Typed(dtype)


def row_schema(fields: Mapping[str, Codec]) -> pl.Schema:
    """Returns the columns of rows. Raises `ValueError` if two have the same name."""
    schema: dict[str, pl.DataType] = {}
    for field, columns in [*((name, of.columns(name)) for name, of in fields.items()), ("an id", _ABOUT)]:
        if twice := [name for name in columns if name in schema]:
            raise ValueError(f"Redis: {field} gives a column {twice[0]!r}, which already exists")
        schema.update(columns)
    return pl.Schema(schema)


def rows_of(entries: Sequence[Entry], fields: Mapping[str, Codec]) -> Pieces:
    """Converts messages to rows. A message with an invalid field is a dead letter.

    A field that a message lacks is null.
    """
    wrong: list[tuple[int, str]] = []
    parts = [_column(entries, field, of, wrong) for field, of in fields.items()]
    rows = pl.concat([*parts, _about(entries)], how="horizontal")
    if not wrong:
        return Pieces([FromFile(rows, "")])
    bad = {index for index, _ in wrong}
    good = pl.Series([index not in bad for index in range(len(entries))], dtype=pl.Boolean)
    return Pieces([FromFile(_dead_letters(entries, wrong), ""), FromFile(rows.filter(good), "")])


def _column(entries: Sequence[Entry], field: str, of: Codec, wrong: list[tuple[int, str]]) -> pl.DataFrame:
    key = field.encode()
    return decode_column(
        pl.Series([fields.get(key) for _, fields in entries], dtype=pl.Binary), of, field, wrong
    )


def _about(entries: Sequence[Entry]) -> pl.DataFrame:
    names = [name for name, _ in entries]
    times = pl.Series([1000 * time_of_id(name) for name in names], dtype=pl.Int64)
    return pl.DataFrame({ID: pl.Series(names, dtype=pl.String), TIME: times.cast(_ABOUT[TIME])})


def _dead_letters(entries: Sequence[Entry], wrong: Sequence[tuple[int, str]]) -> Faulty:
    """Returns a dead letter for each invalid message."""
    whys: dict[int, str] = {}
    for index, why in sorted(wrong, key=itemgetter(0)):
        whys[index] = f"{whys[index]}; {why}" if index in whys else why
    errors = [f"message {entries[index][0]}: {why}" for index, why in whys.items()]
    texts = [
        {decoded(key): decoded(value) for key, value in entries[index][1].items()} | {ID: entries[index][0]}
        for index in whys
    ]
    rows = [pl.DataFrame([text]).select(pl.struct(pl.all()).struct.json_encode()).item() for text in texts]
    return Faulty(pl.DataFrame({"error": errors, "row": rows}))


def times_of(entries: Sequence[Entry], fields: Mapping[str, Codec], column: str) -> pl.DataFrame:
    """Returns the values of one column, with a row for each message; null if the value is missing or invalid."""
    if column in _ABOUT:
        return _about(entries).select(column)
    [(field, of)] = [(name, of) for name, of in fields.items() if column in of.columns(name)]
    return _column(entries, field, of, []).select(column)
