"""Checks that Python values fit column types exactly, without polars' conversions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import polars as pl

_KINDS: Final[dict[type[pl.DataType], type[Any] | tuple[type[Any], ...]]] = {
    pl.Binary: bytes,
    pl.Boolean: bool,
    pl.Categorical: str,
    pl.Date: date,
    pl.Datetime: datetime,
    pl.Decimal: (Decimal, int),
    pl.Duration: timedelta,
    pl.Enum: str,
    pl.String: str,
    pl.Time: time,
}
"""The Python types of values, by column type. Numbers and nested types are checked separately."""


def fits(value: object, dtype: pl.DataType) -> bool:
    """True if a column of this type can hold the value unchanged. None always fits, and an int fits a float column."""
    if value is None:
        return True
    if isinstance(value, bool):
        return isinstance(dtype, pl.Boolean | pl.Object)
    if dtype.is_integer():
        return isinstance(value, int) and _in_range(value, dtype)
    if dtype.is_float():
        return isinstance(value, int | float)
    if isinstance(dtype, pl.List | pl.Array):
        return isinstance(value, list | tuple) and all(fits(item, _type(dtype.inner)) for item in value)
    if isinstance(dtype, pl.Struct):
        fields = {field.name: _type(field.dtype) for field in dtype.fields}
        return isinstance(value, Mapping) and all(
            name in fields and fits(item, fields[name]) for name, item in value.items()
        )
    if isinstance(dtype, pl.Date) and isinstance(value, datetime):
        return False
    if isinstance(dtype, pl.Enum) and value not in dtype.categories:
        return False
    return isinstance(value, _KINDS.get(type(dtype), object))


def _in_range(value: int, dtype: pl.DataType) -> bool:
    try:
        pl.Series([value], dtype=dtype)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        return False
    return True


def _type(dtype: Any) -> pl.DataType:
    """Returns a nested type as an instance. Polars may return it as a class."""
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made
