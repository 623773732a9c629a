"""Fast conversion of columns to Python values, of rows to dicts, and of times to columns.

polars makes a time in UTC in half a microsecond, and the dict of a row in one. Here the columns are converted one after
the other, times by numpy, and the dict of a row is a display such as `{"user": v0, "at": v1}`, which is compiled once
for each list of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime
from functools import lru_cache
from itertools import chain
from typing import Any, Final
from zoneinfo import ZoneInfo

import polars as pl

_SLICE: Final = 8192
"""The number of rows of which the values are in memory at once."""
_NULL: Final = -(2**63)
"""The number that means null among the times of numpy (`NaT`)."""

_DATETIMES: Final = {datetime, type(None)}
_YEARS: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The first and the last instant of the years 1 to 9999, the times of datetimes (us)."""


def values_of(column: pl.Series) -> list[Any]:
    """Returns the values of a column: the same as `to_list`. A time that Python cannot represent raises an error."""
    found = _as_times(column.dtype)
    if found is None:
        return column.to_list()
    unit, epoch = found
    numbers = column.to_physical().cast(pl.Int64)
    if numbers.min() == _NULL:
        if epoch is not None:
            raise OverflowError(f"column {column.name!r} has a time that Python cannot hold")
        return column.to_list()
    durations: list[Any] = numbers.fill_null(_NULL).to_numpy().view(f"timedelta64[{unit}]").tolist()
    if epoch is None:
        return durations
    if column.null_count():
        return [None if since is None else epoch + since for since in durations]
    return [epoch + since for since in durations]


def dicts_of(rows: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yields the rows as dicts: the same as `iter_rows(named=True)`."""
    if not rows.columns:
        return ({} for _ in range(len(rows)))
    make = _display(tuple(rows.columns))
    return chain.from_iterable(map(make, *columns) for columns in _slices(rows))


def tuples_of(rows: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yields the rows as tuples: the same as `iter_rows()`."""
    return chain.from_iterable(zip(*columns, strict=True) for columns in _slices(rows))


def _slices(rows: pl.DataFrame) -> Iterator[list[list[Any]]]:
    """Yields the values of all columns, a list for each, for some rows at a time."""
    return ([values_of(column) for column in part.iter_columns()] for part in rows.iter_slices(_SLICE))


@lru_cache(maxsize=256)
def _display(names: tuple[str, ...]) -> Callable[..., dict[str, Any]]:
    """Compiles the function that makes the dict of a row from its values, such as `lambda v0, v1: {"a": v0, "b": v1}`.

    A dict display takes half the time of `dict(zip(names, values))`.
    """
    values = [f"v{number}" for number in range(len(names))]
    entries = (f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    made: Callable[..., dict[str, Any]] = eval(f"lambda {', '.join(values)}: {{{', '.join(entries)}}}", {})
    return made


@lru_cache(maxsize=256)
def _as_times(dtype: pl.DataType) -> tuple[str, datetime | date | None] | None:
    """Returns numpy's unit of a type of times and the time of the number 0, which is None for durations.

    Returns None for other types, and for times that are left to polars: in nanoseconds, which it rounds, of other
    zones, and durations that may be longer than those of Python.
    """
    match dtype:
        case pl.Date():
            return "D", date(1970, 1, 1)
        case pl.Duration(time_unit="us"):
            return "us", None
        case pl.Datetime(time_unit=("us" | "ms") as unit, time_zone=("UTC" | None) as zone):
            return unit, datetime(1970, 1, 1, tzinfo=None if zone is None else ZoneInfo(zone))
    return None


def column_of_times(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series | None:
    """Returns datetimes as a column, as `pl.Series` would; None if this is left to polars: other types and values,
    among them datetimes without a zone for a column with one.
    """
    if (
        not isinstance(dtype, pl.Datetime)
        or dtype.time_unit != "us"
        or not {*map(type, values)} <= _DATETIMES
    ):
        return None
    found = _as_times(dtype)
    if found is None:
        return None
    epoch: Any = found[1]
    try:
        since = [None if value is None else value - epoch for value in values]
    except TypeError:  # with and without a zone
        return None
    column = pl.Series(name, since, dtype=pl.Duration("us")).cast(pl.Int64)
    return column.cast(dtype) if column.is_between(*_YEARS).all() else None
