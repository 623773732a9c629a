"""Python values as columns of state: a value is stored as it is, or an error is raised; none silently becomes null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl

MISFITS: Final = (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError)
"""The errors that polars raises for values that are not of a type."""

_NO_VALUES: Final = (pl.Object, pl.Null, pl.Unknown)


def require_kept(dtype: pl.DataType) -> None:
    """Raises `TypeError` for a type that no column of state can have: its values are not writable, or always null."""
    for inner in _parts(dtype):
        require_kept(inner)
    if isinstance(dtype, _NO_VALUES):
        raise TypeError(f"no values of type {dtype} can be kept; bl.Value(object) keeps what pickle knows")


def as_column(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    """Returns a column of exactly this type. Raises one of `MISFITS` if the type cannot hold a value."""
    require_leaves(values, dtype)
    column = pl.Series(name, values, dtype=dtype, strict=True)
    if column.dtype != dtype:
        raise TypeError(f"found a value of type {column.dtype}")
    return column


def one_by_one(name: str, values: list[Any], dtype: pl.DataType) -> tuple[pl.Series, set[int]]:
    """(the values as a column, null where one does not fit; the numbers of those). Each value is checked by itself."""
    columns, wrong = [pl.Series(name, [], dtype=dtype)], set[int]()
    for number, value in enumerate(values):
        try:
            columns.append(as_column(name, [value], dtype))
        except MISFITS:
            wrong.add(number)
            columns.append(pl.Series(name, [None], dtype=dtype))
    return pl.concat(columns, rechunk=True), wrong


def require_leaves(values: Iterable[Any], dtype: pl.DataType) -> None:
    """Raises one of `MISFITS` for a value inside of a struct that does not fit.

    Polars would turn it into null, and drop a key that is no field of the struct.
    """
    if _has_struct(dtype):
        _require_leaves(values, dtype)


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
        for value in found:
            if isinstance(value, str | bytes) or not isinstance(value, Iterable):
                raise TypeError(f"expected a list, got {value!r}")
        _require_leaves([one for value in found for one in value], _instance(dtype.inner))
    elif found:
        as_column("", found, dtype)


def _has_struct(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Struct) or any(map(_has_struct, _parts(dtype)))


def _parts(dtype: pl.DataType) -> list[pl.DataType]:
    """The types of which a nested type consists."""
    if isinstance(dtype, pl.Struct):
        return [_instance(field.dtype) for field in dtype.fields]
    return [_instance(dtype.inner)] if isinstance(dtype, pl.List | pl.Array) else []


def _instance(dtype: Any) -> pl.DataType:
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made
