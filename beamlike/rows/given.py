"""Conversion of the values of given rows to columns of a schema: no value is lost or changed in silence."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any

import polars as pl

from beamlike.rows.dtypes import type_name
from stages.process.columns import MISFITS, as_column


def given_column(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    """Converts a user's values to a column. A member of an `Enum` becomes its value, and for a numeric type, text
    becomes its number.

    Raises `TypeError` for a value that does not fit the type exactly.
    """
    try:
        return _column(name, values, dtype)
    except MISFITS:
        try:
            return _column(name, plain_values(values), dtype)
        except MISFITS as error:
            raise TypeError(f"{name!r} is {type_name(dtype)}: {error}") from error


def plain_values(value: Any) -> Any:
    """Returns a value with the values of members of an `Enum` in place of the members, at any depth."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: plain_values(one) for key, one in value.items()}
    return [plain_values(one) for one in value] if isinstance(value, list | tuple | set) else value


def _column(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, pl.Decimal) or dtype.is_nested():
        # Polars would round numbers, and convert nested values that do not fit to null.
        return as_column(name, values, dtype)
    if dtype.is_integer():
        _require_whole(values)
    column = pl.Series(name, values, dtype=dtype, strict=False)
    if column.null_count() > values.count(None):
        lost = next(one for one, made in zip(values, column, strict=True) if one is not None and made is None)
        raise TypeError(f"found {lost!r}")
    return column


def _require_whole(values: list[Any]) -> None:
    """Raises `TypeError` for a number with a fraction, which polars would truncate."""
    numbers = (value for value in values if isinstance(value, float | Decimal))
    wrong = next((value for value in numbers if not isfinite(value) or value % 1 != 0), None)
    if wrong is not None:
        raise TypeError(f"found {wrong!r}")
