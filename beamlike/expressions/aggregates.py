"""Aggregates as users write them, in `aggregate(plays=bl.count(), longest=bl.max("length"))`.

With `where=`, a Boolean expression on the row, an aggregate takes only the rows for which it is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import polars as pl

from beamlike.errors import WrongType
from beamlike.expressions.row_expression import ExpressionOfRows
from beamlike.rows.dtypes import DTypeLike, as_dtype
from stages.aggregates import flags
from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import Collect, Count, First, Last, Max, Min, WindowLength
from stages.aggregates.combine_fn import Combine, CombineFn
from stages.aggregates.counted import CollectSet, CountDistinct, Median, Mode, Quantile
from stages.aggregates.distinct import ApproxCountDistinct
from stages.aggregates.ranked import ArgMax, ArgMin, Bottom, Sample, Top
from stages.aggregates.spread import Std, Var
from stages.aggregates.totals import Mean, Sum

__all__ = [
    "all",
    "any",
    "approx_count_distinct",
    "arg_max",
    "arg_min",
    "bottom",
    "collect",
    "collect_set",
    "combine",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "mean",
    "median",
    "min",
    "mode",
    "quantile",
    "sample",
    "std",
    "sum",
    "top",
    "var",
    "window_length",
]

Where = nw.Expr | None
Columns = str | Sequence[str]


def _condition(where: Any) -> ExpressionOfRows | None:
    if where is None:
        return None
    if isinstance(where, nw.Expr):
        return ExpressionOfRows(where)
    hint = "; this is a polars expression, write it with bl.col" if isinstance(where, pl.Expr) else ""
    if isinstance(where, str):
        hint = f"; for a Boolean column write bl.col({where!r})"
    raise WrongType(f"where= takes an expression such as bl.col('score') > 3, not {where!r}{hint}")


# Counts


def count(column: str | None = None, *, where: Where = None) -> Aggregate:
    """The number of elements, or of those whose `column` is not null, as Int64.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).collect()["n"].to_list()
        [2, 1]
    """
    return Count(column, where=_condition(where))


def count_distinct(column: str, *, where: Where = None) -> Aggregate:
    """The number of distinct values of a column as Int64, nulls left out; exact, so all of them are kept.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(users=bl.count_distinct("user")).collect()["users"].item()
        2
    """
    return CountDistinct(column, where=_condition(where))


def approx_count_distinct(column: str, *, where: Where = None) -> Aggregate:
    """About the number of distinct values of a column as Int64, nulls left out.

    Up to 4,095 it is exact; above, its standard error is 1.6%. At most 32 KiB are kept.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(users=bl.approx_count_distinct("user")).collect()["users"].item()
        2
    """
    return ApproxCountDistinct(column, where=_condition(where))


# Numbers


def sum(column: str, *, where: Where = None) -> Aggregate:
    """The sum of a column of numbers or durations, nulls left out; 0 for no values.

    Integers and Booleans give Int64, unsigned integers UInt64, and those of 128 bits their own type; floats give
    Float64, and decimals a decimal of 38 digits. A sum that its type cannot hold fails the run with `StepError`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(total=bl.sum("points")).collect()["total"].item()
        12
    """
    return Sum(column, where=_condition(where))


def mean(column: str, *, where: Where = None) -> Aggregate:
    """The mean of a column of numbers as Float64, nulls left out; null for no values.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(mean=bl.mean("points")).collect()["mean"].item()
        4.0
    """
    return Mean(column, where=_condition(where))


def var(column: str, *, where: Where = None) -> Aggregate:
    """The variance of a column of numbers as Float64, nulls left out; null for fewer than two values.

    It is that of a sample, which divides by one less than the number of values, and correct to the last digits.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(var=bl.var("points")).collect()["var"].item()
        1.0
    """
    return Var(column, where=_condition(where))


def std(column: str, *, where: Where = None) -> Aggregate:
    """The standard deviation of a column of numbers as Float64: the root of its `var`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(std=bl.std("points")).collect()["std"].item()
        1.0
    """
    return Std(column, where=_condition(where))


def quantile(column: str, q: float, *, where: Where = None) -> Aggregate:
    """About the value of a column of numbers or durations that is greater than a part `q` of them, from 0 to 1.

    Of n values it is at most 1% away from the one at rank `q * (n - 1)`, rounded down, in order of size. Nulls and NaN
    are left out; it is Float64 or a duration, and null for no values.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(most=bl.quantile("points", 0.99)).collect()["most"].round(2).item()
        4.01
    """
    return Quantile(column, q, where=_condition(where))


def median(column: str, *, where: Where = None) -> Aggregate:
    """About the median of a column of numbers or durations: `quantile(column, 0.5)`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(median=bl.median("points")).collect()["median"].round(2).item()
        4.01
    """
    return Median(column, where=_condition(where))


# Values


def min(column: str, *, where: Where = None) -> Aggregate:
    """The least value of a column, nulls left out; null for no values. It has the type of the column.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(least=bl.min("points")).collect()["least"].item()
        3
    """
    return Min(column, where=_condition(where))


def max(column: str, *, where: Where = None) -> Aggregate:
    """The greatest value of a column, nulls left out; null for no values. It has the type of the column.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(most=bl.max("points")).collect()["most"].item()
        5
    """
    return Max(column, where=_condition(where))


def mode(column: str, *, where: Where = None) -> Aggregate:
    """The value of a column that came most often, of several the least, nulls left out; null for no values.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(most=bl.mode("user")).collect()["most"].item()
        'ada'
    """
    return Mode(column, where=_condition(where))


def any(column: str, *, where: Where = None) -> Aggregate:
    """Whether some value of a Boolean column is true, nulls left out; false for no values.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.with_columns(good=bl.col("points") > 3).window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(any=bl.any("good")).collect()["any"].item()
        True
    """
    return flags.Any(column, where=_condition(where))


def all(column: str, *, where: Where = None) -> Aggregate:
    """Whether all values of a Boolean column are true, nulls left out; true for no values.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.with_columns(good=bl.col("points") > 3).window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(all=bl.all("good")).collect()["all"].item()
        False
    """
    return flags.All(column, where=_condition(where))


def collect(column: str, *, where: Where = None) -> Aggregate:
    """All values of a column in a list, nulls too, in order of arrival.

    In a batch, rows of a source arrive in their order there, and panes of another grouping in order of event time,
    then of the columns that are used.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(users=bl.collect("user")).collect()["users"].to_list()
        [['ada', 'bob', 'ada']]
    """
    return Collect(column, where=_condition(where))


def collect_set(column: str, *, where: Where = None) -> Aggregate:
    """The distinct values of a column in a list, in their order, nulls left out.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(users=bl.collect_set("user")).collect()["users"].to_list()
        [['ada', 'bob']]
    """
    return CollectSet(column, where=_condition(where))


# Values of chosen rows; `column` is one, or several such as ["price", "bidder"], which give a struct


def first(column: str, *, where: Where = None) -> Aggregate:
    """The value of the element with the least event time; of equals, the one that arrived first, as with `collect`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(first=bl.first("points")).collect()["first"].item()
        3
    """
    return First(column, where=_condition(where))


def last(column: str, *, where: Where = None) -> Aggregate:
    """The value of the element with the greatest event time; of equals, the last to arrive, as with `collect`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(last=bl.last("points")).collect()["last"].item()
        4
    """
    return Last(column, where=_condition(where))


def arg_max(column: Columns, *, by: Columns, where: Where = None) -> Aggregate:
    """The value of `column` in the row with the greatest `by`; of several rows, the least value.

    `by` may be several columns, of which the next decides between rows that are equal in those before.

    Of several columns, `arg_max(["price", "bidder"], by="price")`, it is a struct. Rows whose `by` is null or NaN are
    left out; null for no rows.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(best=bl.arg_max("user", by="points")).collect()["best"].item()
        'bob'
    """
    return ArgMax(column, by=by, where=_condition(where))


def arg_min(column: Columns, *, by: Columns, where: Where = None) -> Aggregate:
    """The same in the row with the least `by`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(worst=bl.arg_min("user", by="points")).collect()["worst"].item()
        'ada'
    """
    return ArgMin(column, by=by, where=_condition(where))


def top(
    column: Columns, n: int, *, by: Columns | None = None, ties: bool = False, where: Where = None
) -> Aggregate:
    """The values of `column` in the `n` rows with the greatest `by`, or of itself, in a list, greatest first.

    Of rows with equal `by`, those with lesser values come first. With `ties=True` there are more than `n` where the
    last of them is equal to others in `by`. Of several columns the values are structs; `by` may be several columns, of
    which the next decides between rows that are equal in those before. Rows whose `by` is null or NaN are left out.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(best=bl.top("user", 2, by="points")).collect()["best"].to_list()
        [['bob', 'ada']]
    """
    return Top(column, n, by=by, ties=ties, where=_condition(where))


def bottom(
    column: Columns, n: int, *, by: Columns | None = None, ties: bool = False, where: Where = None
) -> Aggregate:
    """The same in the `n` rows with the least `by`, least first.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(least=bl.bottom("points", 2)).collect()["least"].to_list()
        [[3, 4]]
    """
    return Bottom(column, n, by=by, ties=ties, where=_condition(where))


def sample(column: Columns, n: int, *, where: Where = None) -> Aggregate:
    """The values of `column`, nulls too, in `n` rows by chance, in a list: each set of rows is as likely as another.

    Chance is a hash of event time and values, so rows are chosen again when they come again. Rows that have both in
    common are chosen together.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(some=bl.sample("user", 2)).collect()["some"].list.len().item()
        2
    """
    return Sample(column, n, where=_condition(where))


# Others


def window_length() -> Aggregate:
    """The length of the window in seconds, as Float64; for a session that includes the gap at its end.

    Example, with the `plays` of `bl.Collection`:
        >>> sessions = plays.window_into(bl.Sessions("1m")).group_by("user")
        >>> sessions.aggregate(seconds=bl.window_length()).collect()[["user", "seconds"]].rows()
        [('ada', 60.0), ('bob', 60.0), ('ada', 60.0)]
    """
    return WindowLength()


def combine(fn: CombineFn, column: str, dtype: DTypeLike, *, where: Where = None) -> Aggregate:
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
    return Combine(fn, column, as_dtype(dtype), where=_condition(where))
