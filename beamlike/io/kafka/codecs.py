"""Formats of messages: conversion from bytes to columns and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, Protocol, runtime_checkable

import attrs
import polars as pl

from beamlike.io.base import Declared, declared
from beamlike.io.files import json_array, jsonl
from beamlike.io.files.json_columns import JsonColumns
from beamlike.rows.dtypes import SchemaLike
from beamlike.rows.values import json_columns

_NO_TEXT: Final = "not UTF-8"


@attrs.frozen(eq=False)
class Decoded:
    """Decoded values: the rows, the indexes of their input values (`kept`), and pairs of index and reason for invalid
    values.
    """

    frame: pl.DataFrame
    kept: pl.Series
    wrong: Sequence[tuple[int, str]] = ()


@runtime_checkable
class Codec(Protocol):
    """A format of message keys or values."""

    def columns(self, name: str) -> pl.Schema:
        """Returns the columns of the format. A format with a single column calls it `name`."""

    def decode(self, values: pl.Series, name: str) -> Decoded:
        """Decodes bytes, without nulls, to rows with these columns."""

    def encode(self, frame: pl.DataFrame) -> pl.Series:
        """Encodes rows with these columns as bytes."""


@attrs.frozen
class Plain:
    """A format with a single column: the bytes, unchanged or as text."""

    dtype: pl.DataType

    def columns(self, name: str) -> pl.Schema:
        return pl.Schema({name: self.dtype})

    def decode(self, values: pl.Series, name: str) -> Decoded:
        try:
            read = values.cast(self.dtype)
        except pl.exceptions.ComputeError:
            read = pl.Series(list(map(_text, values.to_list())), dtype=self.dtype)
        read, kept = read.alias(name), read.is_not_null()
        wrong = [(index, _NO_TEXT) for index in (~kept).arg_true()]
        return Decoded(read.filter(kept).to_frame(), kept.arg_true(), wrong)

    def encode(self, frame: pl.DataFrame) -> pl.Series:
        return frame.to_series().cast(pl.Binary)


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


@attrs.frozen(slots=False)
class Json:
    """The format of JSON objects. Columns that an object lacks are null."""

    _schema: Declared | None = attrs.field(converter=declared, alias="schema")

    @property
    def is_open(self) -> bool:
        """True if columns are not declared. A sink then uses the columns of its rows."""
        return self._schema is None

    def columns(self, name: str) -> pl.Schema:
        """Returns the declared columns.

        Raises `ValueError` if none are declared, which only a sink allows.
        """
        if self._schema is None:
            raise ValueError("bl.json() of a source needs the columns: bl.json({'user': str, 'points': int})")
        return pl.Schema(self._schema)

    def decode(self, values: pl.Series, name: str) -> Decoded:
        """Decodes objects. A value that is not an object, or has a value of another type, is invalid."""
        found = jsonl.parse_lines(values.to_list(), self._parsed)
        # The advice about arrays is only for files.
        wrong = [(line, why.removesuffix(f": {json_array.ADVICE}")) for line, why in found.wrong]
        return Decoded(found.frame, found.kept, wrong)

    @cached_property
    def _parsed(self) -> JsonColumns:
        return JsonColumns.of(self.columns(""))

    def encode(self, frame: pl.DataFrame) -> pl.Series:
        """Encodes each row as an object, without line ends."""
        schema = frame.schema if self._schema is None else self.columns("")
        objects = frame.select(json_columns(schema)).select(pl.struct(pl.all()).struct.json_encode())
        return objects.to_series().cast(pl.Binary)


def json(columns: SchemaLike | None = None) -> Json:
    """Returns the format of messages that are JSON objects.

    A column that an object lacks is null; other entries of the object are ignored.

    Args:
        columns: Column names and types. A source needs them; a sink uses the columns of its rows by default.

    Raises:
        TypeError: A column type is invalid.

    Example:
        >>> plays = bl.Kafka("localhost:9092", "plays", value=bl.json({"user": str, "points": int}))
        >>> plays.schema()["points"]
        Int64
    """
    return Json(columns)


def codec(given: Any) -> Codec:
    """Returns the format for `value=` or `key=`: a format, `bytes` or `str`. Raises `TypeError` for anything else."""
    if given in (bytes, str):
        return Plain(pl.Binary() if given is bytes else pl.String())
    if isinstance(given, type) or not isinstance(given, Codec):
        raise TypeError(f"must be bytes, str, or a format such as bl.json({{'user': str}}), not {given!r}")
    return given
