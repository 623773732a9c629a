"""What users write inside steps: columns, the event time, window and pane of a row, and aggregates."""

from __future__ import annotations

import narwhals as nw
import polars as pl
from narwhals import col, lit, when

from beamlike.errors import WrongType
from beamlike.rows.dtypes import DTypeLike, as_dtype
from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import Collect, Count, First, Last, Max, Mean, Min, Sum, WindowLength
from stages.aggregates.combine_fn import Combine, CombineFn
from windowing.columns import (
    EVENT_TIME,
    PANE_FIRST,
    PANE_INDEX,
    PANE_LAST,
    PANE_NONSPECULATIVE_INDEX,
    PANE_RETRACTED,
    PANE_TIMING,
    RESERVED_PREFIX,
    WINDOW_END,
    WINDOW_START,
)
from windowing.timestamp_combiners import TimestampOf

__all__ = [
    "col",
    "collect",
    "combine",
    "count",
    "event_time",
    "first",
    "last",
    "lit",
    "max",
    "mean",
    "min",
    "pane_first",
    "pane_index",
    "pane_last",
    "pane_nonspeculative_index",
    "pane_retracted",
    "pane_timing",
    "sum",
    "timestamp_of",
    "when",
    "window_end",
    "window_length",
    "window_start",
]


def _read(column: str) -> nw.Expr:
    return nw.col(column).alias(column.removeprefix(RESERVED_PREFIX))


def _moment(column: str) -> nw.Expr:
    return nw.col(column).cast(nw.Datetime("us", "UTC")).alias(column.removeprefix(RESERVED_PREFIX))


def event_time() -> nw.Expr:
    """When the element happened, as Datetime in UTC; after a grouping, the timestamp of the pane."""
    return _moment(EVENT_TIME)


def window_start() -> nw.Expr:
    """The first moment of the element's window, as Datetime in UTC; only after `window_into`."""
    return _moment(WINDOW_START)


def window_end() -> nw.Expr:
    """The end of the element's window, which the window does not contain, as Datetime in UTC."""
    return _moment(WINDOW_END)


def pane_timing() -> nw.Expr:
    """`"early"`, `"on_time"` or `"late"`; like all of a pane, only after a grouping."""
    return _read(PANE_TIMING)


def pane_index() -> nw.Expr:
    """How many panes of the window came before this one."""
    return _read(PANE_INDEX)


def pane_nonspeculative_index() -> nw.Expr:
    """How many panes that were not early came before this one; -1 in an early pane."""
    return _read(PANE_NONSPECULATIVE_INDEX)


def pane_first() -> nw.Expr:
    """Whether the pane is the first of its window."""
    return _read(PANE_FIRST)


def pane_last() -> nw.Expr:
    """Whether the window is closed: no pane of it follows."""
    return _read(PANE_LAST)


def pane_retracted() -> nw.Expr:
    """Whether the pane takes back an earlier one; only after a grouping whose accumulation is RETRACTING."""
    return _read(PANE_RETRACTED)


def timestamp_of(column: str) -> TimestampOf:
    """A timestamp combiner: a pane gets the event time of the elements that this Boolean column marks.

    Of several marked elements that is the earliest that was not late; without any it is the end of the window.
    """
    if not isinstance(column, str):
        raise WrongType(
            f"timestamp_of takes the name of a Boolean column, not {column!r}; compute it with with_columns(...) before"
        )
    return TimestampOf(column)


def count(column: str | None = None) -> Aggregate:
    """The number of elements, or of those whose `column` is not null, as Int64."""
    return Count(column)


def sum(column: str) -> Aggregate:
    """The sum of a column of numbers, nulls left out; 0 for no values."""
    return Sum(column)


def min(column: str) -> Aggregate:
    """The least value of a column, nulls left out; null for no values."""
    return Min(column)


def max(column: str) -> Aggregate:
    """The greatest value of a column, nulls left out; null for no values."""
    return Max(column)


def mean(column: str) -> Aggregate:
    """The mean of a column of numbers as Float64, nulls left out; null for no values."""
    return Mean(column)


def collect(column: str) -> Aggregate:
    """All values of a column in a list, nulls too, in order of arrival.

    In a batch, rows of a source arrive in their order there, and panes of another grouping in order of event time, then
    of the columns that are used.
    """
    return Collect(column)


def first(column: str) -> Aggregate:
    """The value of the element with the least event time; of equals, the one that arrived first, as with `collect`."""
    return First(column)


def last(column: str) -> Aggregate:
    """The value of the element with the greatest event time; of equals, the last to arrive, as with `collect`."""
    return Last(column)


def window_length() -> Aggregate:
    """The length of the window in seconds, as Float64; for a session that includes the gap at its end."""
    return WindowLength()


def combine(fn: CombineFn, column: str, dtype: DTypeLike) -> Aggregate:
    """A user's own aggregate over the values of a column; `dtype` is the type of its results.

    `dtype` is a Python type (`int`, `float`, `str`, `bool`, `datetime`, `bytes`), a polars or narwhals one.
    """
    result: pl.DataType = as_dtype(dtype)
    return Combine(fn, column, result)
