"""Calls of a user's function for each row. Rows with values that Python cannot represent fail without a call.

Python has times of the years 1 to 9999 only; columns may have others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any, Final, Protocol, TypeVar

import polars as pl

from windowing.python_values import dicts_of, values_of

Result = TypeVar("Result")

Failed = Callable[[int, Exception], object]
"""A callback for a row that failed, with the position of the row and the error."""

BEYOND: Final = (
    "it has a time or a duration that Python cannot hold, such as one outside of the years 1 to 9999"
)

_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
_LONGEST: Final = 999_999_998  # days of a timedelta
_PER_DAY: Final = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


class Objects(Protocol):
    """The conversion of rows to objects of a user's class, which a function receives in place of dicts."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns of which an object is made."""

    def refused(self, rows: pl.DataFrame) -> dict[int, str]:
        """Returns the reasons why rows cannot become objects, by row number. Rows that can are missing."""

    def raw(self, rows: pl.DataFrame) -> list[Any]:
        """Converts rows to a list of the arguments of `make`, such as tuples or dicts."""

    @property
    def make(self) -> Callable[[Any], Any]:
        """The function that makes an object of an item that `raw` returned. It raises if the class refuses them."""


def is_one_row(given: object) -> bool:
    """True for a single row: a dict, text, a named tuple or a model. A list of rows is expected, and to iterate over a
    single row would yield its keys, characters or values.
    """
    kind = type(given)
    return isinstance(given, Mapping | str) or hasattr(kind, "_fields") or hasattr(kind, "model_fields")


def unusable(rows: pl.DataFrame, objects: Objects | None = None) -> dict[int, str]:
    """Returns the reasons why a function cannot be called with rows, by row number. Usable rows are missing.

    The function receives dicts or, with `objects`, objects that `objects` makes. Values must be in the range of
    Python's types.
    """
    read = rows if objects is None else rows.select(objects.columns)
    wrong = {} if objects is None else objects.refused(read)
    fits = python_has(read)
    return wrong if fits is None else {**wrong, **dict.fromkeys((~fits).arg_true().to_list(), BEYOND)}


def for_each(
    rows: pl.DataFrame, function: Callable[[dict[str, Any]], Result], failed: Failed, instead: Result
) -> list[Result]:
    """Calls the function with each row as a dict, and returns the results.

    If a call raises, `failed` is called with the row number and the error, and the result of the row is `instead`.
    """
    fits = python_has(rows)
    if fits is not None:
        rows = rows.select(pl.when(pl.lit(fits)).then(pl.all()))
    return each(function, dicts_of(rows), len(rows), failed, instead, fits)


def for_each_value(
    column: pl.Series, function: Callable[[Any], Result], failed: Failed, instead: Result
) -> list[Result]:
    """Like `for_each`, but calls the function with each value of a column."""
    fits = python_has(column.to_frame())
    if fits is not None:
        column = column.to_frame().select(pl.when(pl.lit(fits)).then(pl.all())).to_series()
    return each(function, values_of(column), len(column), failed, instead, fits)


def each(
    function: Callable[[Any], Result],
    values: Iterable[Any],
    count: int,
    failed: Failed,
    instead: Result,
    fits: pl.Series | None = None,
) -> list[Result]:
    """Like `for_each`, with any `count` values. Values for which `fits` is false fail without a call."""
    # The loop is in C (`extend`), so a value costs no more than its call. An error ends it, and it is started again.
    results: list[Result] = []
    calls = map(function, values) if fits is None else map(_fitting(function), values, fits)
    while len(results) < count:
        try:
            results.extend(calls)
            if len(results) == count:
                break
            # A StopIteration of the user's function ends `extend` without an error, which would lose all later values.
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
    """Returns a mask of the rows whose values Python can represent; None if it can represent all of them."""
    fits = [fit for name, dtype in rows.schema.items() if (fit := _fits(pl.col(name), dtype)) is not None]
    if not fits:
        return None
    mask = rows.select(reduce(and_, fits).alias("fits")).to_series()
    return None if mask.all() else mask


def beyond_python(frame: pl.DataFrame) -> str | None:
    """Returns the name of the first column with a value that Python cannot represent; None if there is none."""
    if python_has(frame) is None:
        return None
    return next(name for name in frame.columns if python_has(frame[[name]]) is not None)


def _fits(value: pl.Expr, dtype: Any) -> pl.Expr | None:
    """Returns an expression that is true for null and for values that Python can represent; None if it can represent
    all.
    """
    if isinstance(dtype, pl.Date):
        return _between(value, _FIRST_DAY, _LAST_DAY)
    if isinstance(dtype, pl.Datetime):
        if dtype.time_unit == "ns":
            return None
        # With a time zone, a day less at both ends, since its offset may be up to a day.
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
