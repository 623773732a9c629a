"""The columns of JSON objects: the types as which polars reads them, and their conversion to the declared types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Final, Self

import attrs
import polars as pl

from beamlike.io.files import json_nested
from beamlike.rows.dtypes import as_dtype
from beamlike.rows.numbers import narrow
from beamlike.rows.values import from_text, naming_column, reads_natively

INEXACT: Final = r"(?:-?(?:\d+[.eE]|\d{19})|-0)"
"""The beginning of a number that polars would change as an integer or a float."""


@attrs.frozen(slots=False, eq=False)
class JsonColumns:
    """The columns of JSON objects. What a parser needs to know about their types is computed once.

    Attributes:
        raw: The types as which polars reads the columns.
        typed: Expressions that convert them to the declared types.
        as_read: True if the declared types are those in `raw`.
    """

    raw: pl.Schema
    typed: tuple[pl.Expr, ...]
    as_read: bool

    @classmethod
    def of(cls, schema: Mapping[str, pl.DataType]) -> Self:
        """Creates an instance for columns of these types. Raises `TypeError` for a type that cannot be read."""
        columns = {name: _column(name, dtype) for name, dtype in schema.items()}
        raw = pl.Schema({name: dtype for name, (dtype, _) in columns.items()})
        return cls(raw, tuple(typed for _, typed in columns.values()), raw == pl.Schema(schema))

    @cached_property
    def read_as(self) -> dict[str, pl.DataType]:
        """The types for polars' reader. In nested types, numbers that it would change are read as text."""
        return readable(self.raw)

    @cached_property
    def texts(self) -> dict[str, pl.DataType]:
        """The columns that are read as text, with their type."""
        return {name: dtype for name, dtype in self.raw.items() if dtype == pl.String}

    @cached_property
    def nested(self) -> dict[str, pl.DataType]:
        """The nested columns, with their types."""
        return {name: dtype for name, dtype in self.raw.items() if dtype.is_nested()}

    @cached_property
    def exact(self) -> dict[str, pl.DataType]:
        """The nested columns with numbers that polars' reader would change."""
        return {name: of for name, of in self.nested.items() if json_nested.has(of, json_nested.loses_digits)}

    @cached_property
    def with_text(self) -> dict[str, pl.DataType]:
        """The nested columns with text."""
        return {name: of for name, of in self.nested.items() if json_nested.has(of, _is_text)}

    @cached_property
    def inexact(self) -> str:
        """A pattern for the numbers in text columns that polars' reader would change."""
        names = "|".join(re.escape(json.dumps(name, ensure_ascii=False)) for name in self.texts)
        return rf"(?:{names})\s*:\s*{INEXACT}"


def readable(schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """Returns types for polars' reader: in nested types, decimals are text, and floats have 64 bits."""
    return {name: json_nested.plain(dtype) if dtype.is_nested() else dtype for name, dtype in schema.items()}


def _is_text(dtype: pl.DataType) -> bool:
    return dtype == pl.String


def _column(name: str, dtype: pl.DataType) -> tuple[pl.DataType, pl.Expr]:
    """Returns the type as which polars reads a column, and an expression that converts the column to `dtype`.

    Raises `TypeError` for a type that cannot be read.
    """
    value = pl.col(name)
    if dtype in (pl.Int8, pl.Int16, pl.UInt8, pl.UInt16):  # polars cannot read these types
        return pl.Int64(), value.cast(dtype, strict=False)
    if dtype == pl.Float32:
        return pl.Float64(), narrow(value)
    with naming_column(name):
        if dtype.is_nested():
            _require_readable(dtype)
        elif not reads_natively(dtype):
            return pl.String(), from_text(value, dtype).alias(name)
    return dtype, value


def _require_readable(dtype: pl.DataType) -> None:
    """Raises `TypeError` for a type that polars cannot read within nested values."""
    if isinstance(dtype, pl.Struct):
        inner = [field.dtype for field in dtype.fields]
    elif isinstance(dtype, pl.List) or (
        isinstance(dtype, pl.Array) and not as_dtype(dtype.inner).is_decimal()
    ):
        inner = [dtype.inner]
    elif dtype in (pl.Array, pl.Time, pl.Binary, pl.Duration):
        raise TypeError(f"JSON cannot be read as {dtype} within a nested column; declare String there")
    else:
        return
    for one in inner:
        _require_readable(one() if isinstance(one, type) else one)
