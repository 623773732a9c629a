"""Calls of a user's function for each row, except rows with values that Python cannot hold.

Python's times are of the years 1 to 9999; those of columns may be far outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_
from typing import Any, Final, TypeVar

import polars as pl

Result = TypeVar("Result")

Failed = Callable[[int, Exception], object]
"""Receives the number of a row that cannot be used, and the error."""

BEYOND: Final = (
    "it has a time or a duration that Python cannot hold, such as one outside of the years 1 to 9999"
)

_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
_LONGEST: Final = 999_999_998  # days of a timedelta
_PER_DAY: Final = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def for_each(
    rows: pl.DataFrame, function: Callable[[dict[str, Any]], Result], failed: Failed, instead: Result
) -> list[Result]:
    """The results of the function for each row as a dict; if it raises, `instead`, and `failed` is called."""
    fits = python_has(rows)
    if fits is not None:
        rows = rows.select(pl.when(pl.lit(fits)).then(pl.all()))
    return each(function, rows.iter_rows(named=True), len(rows), failed, instead, fits)


def for_each_value(
    column: pl.Series, function: Callable[[Any], Result], failed: Failed, instead: Result
) -> list[Result]:
    """Like `for_each`, for the values of a column."""
    fits = python_has(column.to_frame())
    if fits is not None:
        column = column.to_frame().select(pl.when(pl.lit(fits)).then(pl.all())).to_series()
    return each(function, column, len(column), failed, instead, fits)


def each(
    function: Callable[[Any], Result],
    values: Iterable[Any],
    count: int,
    failed: Failed,
    instead: Result,
    fits: pl.Series | None = None,
) -> list[Result]:
    """Like `for_each`, for `count` values; those that do not fit fail.

    A value without an error costs no more than the call: a failure interrupts the loop, which continues after it.
    """
    results: list[Result] = []
    calls = map(function, values) if fits is None else map(_fitting(function), values, fits)
    while len(results) < count:
        try:
            results.extend(calls)
            if len(results) == count:
                break
            # It ends what iterates, and would take the rest of the values with it.
            raise RuntimeError("the function raised StopIteration")
        except Exception as error:
            failed(len(results), error)
            results.append(instead)
    return results


def _fitting(function: Callable[[Any], Result]) -> Callable[[Any, bool], Result]:
    def called(value: Any, fits: bool) -> Result:
        if not fits:
            raise ValueError(BEYOND)
        return function(value)

    return called


def python_has(rows: pl.DataFrame) -> pl.Series | None:
    """True for rows whose values Python can hold; None if it can hold all of them."""
    fits = [fit for name, dtype in rows.schema.items() if (fit := _fits(pl.col(name), dtype)) is not None]
    if not fits:
        return None
    mask = rows.select(reduce(and_, fits).alias("fits")).to_series()
    return None if mask.all() else mask


def beyond_python(frame: pl.DataFrame) -> str | None:
    """The first column with a value that Python cannot hold; None if there is none."""
    if python_has(frame) is None:
        return None
    return next(name for name in frame.columns if python_has(frame[[name]]) is not None)


def _fits(value: pl.Expr, dtype: Any) -> pl.Expr | None:
    """True for values that Python can hold, and null. None if it can hold every value of the type."""
    if isinstance(dtype, pl.Date):
        return _between(value, _FIRST_DAY, _LAST_DAY)
    if isinstance(dtype, pl.Datetime):
        if dtype.time_unit == "ns":
            return None
        # In a zone a day less at both ends, as that may take some hours.
        unit, less = _PER_DAY[dtype.time_unit], int(dtype.time_zone not in (None, "UTC"))
        return _between(value, (_FIRST_DAY + less) * unit, (_LAST_DAY + 1 - less) * unit - 1)
    if isinstance(dtype, pl.Duration):
        return (
            _between(value, -_LONGEST * _PER_DAY["ms"], _LONGEST * _PER_DAY["ms"])
            if dtype.time_unit == "ms"
            else None
        )
    if isinstance(dtype, pl.List | pl.Array):
        inner = _fits(pl.element(), dtype.inner)
        listed = value.arr.to_list() if isinstance(dtype, pl.Array) else value
        return None if inner is None else listed.list.eval(inner).list.all().fill_null(True)
    if isinstance(dtype, pl.Struct):
        parts = [_fits(value.struct.field(field.name), field.dtype) for field in dtype.fields]
        known = [part for part in parts if part is not None]
        return reduce(and_, known) if known else None
    return None


def _between(value: pl.Expr, least: int, most: int) -> pl.Expr:
    return value.to_physical().is_between(least, most).fill_null(True)
