"""Strict conversion of Python values to columns of state: a value is stored exactly, or an error is raised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import polars as pl

from windowing.python_values import column_of_times

MISFITS: Final = (
    TypeError,
    ValueError,
    OverflowError,
    AttributeError,
    RuntimeError,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)
"""The errors that polars raises for values that do not fit a type. A Decimal that is too large is a `RuntimeError`."""

_NO_VALUES: Final = (pl.Object, pl.Null, pl.Unknown)


def require_kept(dtype: pl.DataType) -> None:
    """Raises `TypeError` for a type that state cannot store: an object, or a type without values."""
    for inner in _parts(dtype):
        require_kept(inner)
    if isinstance(dtype, _NO_VALUES):
        raise TypeError(f"no values of type {dtype} can be kept; bl.Value(object) keeps what pickle knows")


def as_column(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    """Converts values to a column of this exact type. Raises `TypeError` or a polars error if a value does not fit."""
    require_leaves(values, dtype)
    column = strict_series(name, values, dtype)
    if column.dtype != dtype:
        raise TypeError(f"found a value of type {column.dtype}")
    return column


def strict_series(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    """Converts values to a column. Raises one of `MISFITS` that is an `Exception` if a value does not fit."""
    times = column_of_times(name, values, dtype)
    if times is not None:
        return times
    try:
        return pl.Series(name, values, dtype=dtype, strict=True)
    except (
        pl.exceptions.PanicException
    ):  # no `Exception`, and polars raises it for such a Decimal in any column
        raise TypeError("a value cannot be in a column, such as a Decimal that is NaN or infinite") from None


def one_by_one(name: str, values: list[Any], dtype: pl.DataType) -> tuple[pl.Series, set[int]]:
    """Returns the values as a column of this type, and the positions of values that do not fit, which are null."""
    columns, wrong = [pl.Series(name, [], dtype=dtype)], set[int]()
    for number, value in enumerate(values):
        try:
            columns.append(as_column(name, [value], dtype))
        except MISFITS:
            wrong.add(number)
            columns.append(pl.Series(name, [None], dtype=dtype))
    return pl.concat(columns, rechunk=True), wrong


def require_leaves(values: Iterable[Any], dtype: pl.DataType) -> None:
    """Raises a polars error or `TypeError` for a value that polars would change silently.

    It would convert a value inside a struct that does not fit, and a text in place of a list, to null; drop a key that
    is no field of a struct; and round a Decimal to the digits of the type.
    """
    if isinstance(dtype, pl.Decimal):
        _require_digits(values, dtype.scale)
    elif _is_checked(dtype):
        _require_leaves(values, dtype)
    elif isinstance(dtype, pl.List | pl.Array):
        _require_lists(value for value in values if value is not None)


def _require_digits(values: Iterable[Any], most: int) -> None:
    for value in values:
        if isinstance(value, Decimal):
            if not value.is_finite():
                raise TypeError(f"{value} is no number that a column can have")
            _, digits, exponent = value.as_tuple()
            further = -int(exponent) - most
            if further > 0 and any(digits[-further:]):
                raise TypeError(f"{value} has more than {most} digits after the point")


def _require_leaves(values: Iterable[Any], dtype: pl.DataType) -> None:
    found = [value for value in values if value is not None]
    if isinstance(dtype, pl.Struct):
        names = [field.name for field in dtype.fields]
        for value in found:
            if not isinstance(value, Mapping):
                raise TypeError(f"expected a dict with the keys {', '.join(names)}, got {value!r}")
            if extra := value.keys() - names:
                raise TypeError(
                    f"the key {min(extra, key=repr)!r} is not declared; expected {', '.join(names)}"
                )
        for field in dtype.fields:
            _require_leaves([value.get(field.name) for value in found], _instance(field.dtype))
    elif isinstance(dtype, pl.List | pl.Array):
        _require_lists(found)
        _require_leaves([one for value in found for one in value], _instance(dtype.inner))
    elif found:
        as_column("", found, dtype)


def _require_lists(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise TypeError(f"expected a list, got {value!r}")


def _is_checked(dtype: pl.DataType) -> bool:
    """True for a type with a struct or a Decimal inside."""
    return isinstance(dtype, pl.Struct | pl.Decimal) or any(map(_is_checked, _parts(dtype)))


def _parts(dtype: pl.DataType) -> list[pl.DataType]:
    """Returns the types of a struct's fields or of a list's items; empty for a type that is not nested."""
    if isinstance(dtype, pl.Struct):
        return [_instance(field.dtype) for field in dtype.fields]
    return [_instance(dtype.inner)] if isinstance(dtype, pl.List | pl.Array) else []


def _instance(dtype: Any) -> pl.DataType:
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made
