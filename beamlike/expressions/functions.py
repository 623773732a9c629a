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
    """When the element happened, as Datetime in UTC; after a grouping, the timestamp of the pane.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.select(minute=bl.event_time().dt.minute()).collect()["minute"].to_list()
        [0, 0, 1]
    """
    return _moment(EVENT_TIME)


def window_start() -> nw.Expr:
    """The first moment of the element's window, as Datetime in UTC; only after `window_into`.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m"))
        >>> minutes.select(minute=bl.window_start().dt.minute()).collect()["minute"].to_list()
        [0, 0, 1]
    """
    return _moment(WINDOW_START)


def window_end() -> nw.Expr:
    """The end of the element's window, which the window does not contain, as Datetime in UTC.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m"))
        >>> minutes.select(minute=bl.window_end().dt.minute()).collect()["minute"].to_list()
        [1, 1, 2]
    """
    return _moment(WINDOW_END)


def pane_timing() -> nw.Expr:
    """`"early"`, `"on_time"` or `"late"`, as String; like all of a pane, only after a grouping.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Repeatedly(bl.AfterCount(2)))
        >>> days.aggregate(n=bl.count()).select("n", timing=bl.pane_timing()).collect()["timing"].to_list()
        ['early', 'on_time']
    """
    return _read(PANE_TIMING)


def pane_index() -> nw.Expr:
    """How many panes of the window came before this one, as Int64; only after a grouping.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Repeatedly(bl.AfterCount(2)))
        >>> days.aggregate(n=bl.count()).select("n", index=bl.pane_index()).collect()["index"].to_list()
        [0, 1]
    """
    return _read(PANE_INDEX)


def pane_nonspeculative_index() -> nw.Expr:
    """How many panes that were not early came before this one, as Int64; -1 in an early pane.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Repeatedly(bl.AfterCount(2)))
        >>> counts = days.aggregate(n=bl.count()).select("n", index=bl.pane_nonspeculative_index())
        >>> counts.collect()["index"].to_list()
        [-1, 0]
    """
    return _read(PANE_NONSPECULATIVE_INDEX)


def pane_first() -> nw.Expr:
    """Whether the pane is the first of its window, as Boolean; only after a grouping.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Repeatedly(bl.AfterCount(2)))
        >>> days.aggregate(n=bl.count()).filter(bl.pane_first()).collect()["n"].to_list()
        [2]
    """
    return _read(PANE_FIRST)


def pane_last() -> nw.Expr:
    """Whether the window is closed, so that no pane of it follows, as Boolean; only after a grouping.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Repeatedly(bl.AfterCount(2)))
        >>> days.aggregate(n=bl.count()).filter(bl.pane_last()).collect()["n"].to_list()
        [1]
    """
    return _read(PANE_LAST)


def pane_retracted() -> nw.Expr:
    """Whether the pane takes back an earlier one, as Boolean; only after a grouping whose accumulation is RETRACTING.

    Example, with the `plays` of `bl.Collection`:
        >>> early = bl.AfterWatermark(early=bl.AfterCount(2))
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=early, accumulation="retracting")
        >>> days.aggregate(n=bl.count()).collect()[["n", "pane_retracted"]].rows()
        [(2, False), (2, True), (3, False)]
    """
    return _read(PANE_RETRACTED)


def timestamp_of(column: str) -> TimestampOf:
    """A timestamp combiner: a pane gets the event time of the elements that this Boolean column marks.

    Of several marked elements that is the earliest that was not late; without any it is the end of the window. Raises
    `WrongType` for what is no name of a column.

    Example, with the `plays` of `bl.Collection`:
        >>> marked = plays.with_columns(best=bl.col("points") == 5)
        >>> days = marked.window_into(bl.FixedWindows("1d"), timestamp_combiner=bl.timestamp_of("best"))
        >>> str(days.aggregate(n=bl.count()).collect()["event_time"].item())
        '2026-01-31 12:00:40+00:00'
    """
    if not isinstance(column, str):
        raise WrongType(
            f"timestamp_of takes the name of a Boolean column, not {column!r}; compute it with with_columns(...) before"
        )
    return TimestampOf(column)


def count(column: str | None = None) -> Aggregate:
    """The number of elements, or of those whose `column` is not null, as Int64.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).collect()["n"].to_list()
        [2, 1]
    """
    return Count(column)


def sum(column: str) -> Aggregate:
    """The sum of a column of numbers or durations, nulls left out; 0 for no values.

    Integers and Booleans give Int64, unsigned integers UInt64, and those of 128 bits their own type; floats give
    Float64, and decimals a decimal of 38 digits. A sum that its type cannot hold fails the run with `StepError`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(total=bl.sum("points")).collect()["total"].item()
        12
    """
    return Sum(column)


def min(column: str) -> Aggregate:
    """The least value of a column, nulls left out; null for no values. It has the type of the column.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(least=bl.min("points")).collect()["least"].item()
        3
    """
    return Min(column)


def max(column: str) -> Aggregate:
    """The greatest value of a column, nulls left out; null for no values. It has the type of the column.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(most=bl.max("points")).collect()["most"].item()
        5
    """
    return Max(column)


def mean(column: str) -> Aggregate:
    """The mean of a column of numbers as Float64, nulls left out; null for no values.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(mean=bl.mean("points")).collect()["mean"].item()
        4.0
    """
    return Mean(column)


def collect(column: str) -> Aggregate:
    """All values of a column in a list, nulls too, in order of arrival.

    In a batch, rows of a source arrive in their order there, and panes of another grouping in order of event time,
    then of the columns that are used.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(users=bl.collect("user")).collect()["users"].to_list()
        [['ada', 'bob', 'ada']]
    """
    return Collect(column)


def first(column: str) -> Aggregate:
    """The value of the element with the least event time; of equals, the one that arrived first, as with `collect`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(first=bl.first("points")).collect()["first"].item()
        3
    """
    return First(column)


def last(column: str) -> Aggregate:
    """The value of the element with the greatest event time; of equals, the last to arrive, as with `collect`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(last=bl.last("points")).collect()["last"].item()
        4
    """
    return Last(column)


def window_length() -> Aggregate:
    """The length of the window in seconds, as Float64; for a session that includes the gap at its end.

    Example, with the `plays` of `bl.Collection`:
        >>> sessions = plays.window_into(bl.Sessions("1m")).group_by("user")
        >>> sessions.aggregate(seconds=bl.window_length()).collect()[["user", "seconds"]].rows()
        [('ada', 60.0), ('bob', 60.0), ('ada', 60.0)]
    """
    return WindowLength()


def combine(fn: CombineFn, column: str, dtype: DTypeLike) -> Aggregate:
    """A user's own aggregate over the values of a column; `dtype` is the type of its results.

    `fn` is an object with the four functions of `CombineFn`. `dtype` is a Python type (`int`, `float`, `str`, `bool`,
    `datetime`, `bytes`), a polars or narwhals one. Raises `TypeError` for a `fn` that lacks a function.

    Example, with the `plays` of `bl.Collection`:
        >>> class Longest(bl.CombineFn):
        ...     def create_accumulator(self):
        ...         return ""
        ...
        ...     def add_input(self, accumulator, element):
        ...         return self.merge_accumulators([accumulator, element])
        ...
        ...     def merge_accumulators(self, accumulators):
        ...         return sorted(accumulators, key=lambda text: (len(text), text))[-1]
        ...
        ...     def extract_output(self, accumulator):
        ...         return accumulator
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(longest=bl.combine(Longest(), "user", str)).collect()["longest"].item()
        'bob'
    """
    result: pl.DataType = as_dtype(dtype)
    return Combine(fn, column, result)
