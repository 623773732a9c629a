"""Reads numbers in nested JSON values exactly, from the text of the line. Polars itself would convert them to
floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import polars as pl

from beamlike.rows.dtypes import as_dtype
from beamlike.rows.exact import fields, lost
from beamlike.rows.numbers import decimal_of, float_of

MARK: Final = "\uffff"
"""A prefix for quoted numbers. No text begins with it, because it is not a Unicode character."""


def has(dtype: pl.DataType, kinds: Callable[[pl.DataType], bool]) -> bool:
    """True if the type, or a type nested in it, is of one of the given kinds."""
    return kinds(dtype) or any(has(inner, kinds) for inner in _inner(dtype))


def loses_digits(dtype: pl.DataType) -> bool:
    """True for a type that polars' own reader would round, or would turn into infinity, in a nested value."""
    return dtype.is_decimal() or dtype == pl.Float32


def plain(dtype: pl.DataType) -> pl.DataType:
    """Returns a nested type in which decimals are text and floats are Float64, so that polars can read it as it is."""
    return _replaced(
        dtype, lambda leaf: pl.String() if leaf.is_decimal() else pl.Float64() if leaf.is_float() else leaf
    )


def quoted(dtype: pl.DataType) -> pl.DataType:
    """Returns the nested type for lines in which all numbers are quoted."""
    return _replaced(dtype, lambda leaf: pl.String() if leaf.is_numeric() else leaf)


def typed(given: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Converts a column of type `quoted(dtype)`. If a part of a nested value does not fit, the whole value is null."""
    read = (
        given.to_frame().select(_typed(pl.col(given.name), dtype).alias(given.name)).to_series().cast(dtype)
    )
    bad = lost(given, read)
    return pl.select(pl.when(~bad).then(read).alias(given.name)).to_series() if bad.any() else read


def _typed(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Struct):
        inner = [_typed(value.struct.field(name), of).alias(name) for name, of in fields(dtype).items()]
        return pl.when(value.is_not_null()).then(pl.struct(inner))
    if isinstance(dtype, pl.List):
        return value.list.eval(_typed(pl.element(), as_dtype(dtype.inner)))
    if dtype == pl.String:
        return value.str.strip_prefix(MARK)
    if isinstance(dtype, pl.Decimal):
        return decimal_of(value.str.strip_prefix(MARK), dtype)
    if not dtype.is_numeric():
        return value
    number = pl.when(value.str.starts_with(MARK)).then(value.str.strip_prefix(MARK))
    return float_of(number, dtype) if dtype.is_float() else number.cast(dtype, strict=False)


def _replaced(dtype: pl.DataType, leaf: Callable[[pl.DataType], pl.DataType]) -> pl.DataType:
    if isinstance(dtype, pl.Struct):
        return pl.Struct({name: _replaced(inner, leaf) for name, inner in fields(dtype).items()})
    return pl.List(_replaced(as_dtype(dtype.inner), leaf)) if isinstance(dtype, pl.List) else leaf(dtype)


def _inner(dtype: pl.DataType) -> list[pl.DataType]:
    if isinstance(dtype, pl.Struct):
        return list(fields(dtype).values())
    return [as_dtype(dtype.inner)] if isinstance(dtype, pl.List) else []
