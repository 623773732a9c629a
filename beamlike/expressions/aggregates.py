"""Aggregates for `aggregate(plays=bl.count(), longest=bl.max("length"))`.

With `where=`, a Boolean expression over the row, an aggregate uses only the rows for which it is true.
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
from stages.aggregates.counted import ApproxQuantile, CollectSet, CountDistinct, Median, Mode, Quantile
from stages.aggregates.distinct import ApproxCountDistinct
from stages.aggregates.ranked import ArgMax, ArgMin, Bottom, Nulls, Sample, Top
from stages.aggregates.totals import Mean, Sum

__all__ = [
    "all", "any", "approx_count_distinct", "approx_quantile", "arg_max", "arg_min", "bottom", "collect", "collect_set",
    "combine", "count", "count_distinct", "first", "last", "max", "mean", "median", "min", "mode", "quantile",
    "sample", "std", "sum", "top", "var", "window_length",
]  # fmt: skip

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
    """The number of elements, or of those with a non-null `column`, as Int64.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).collect()["n"].to_list()
        [2, 1]
    """
    return Count(column, where=_condition(where))


def count_distinct(column: str, *, where: Where = None) -> Aggregate:
    """The exact number of distinct non-null values of a column, as Int64. The state keeps all these values.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(users=bl.count_distinct("user")).collect()["users"].item()
        2
    """
    return CountDistinct(column, where=_condition(where))


def approx_count_distinct(column: str, *, where: Where = None) -> Aggregate:
    """An estimate of the number of distinct non-null values of a column, as Int64.

    The estimate is exact up to 4,095 values; above, its standard error is 1.6%. The state has at most 32 KiB.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(users=bl.approx_count_distinct("user")).collect()["users"].item()
        2
    """
    return ApproxCountDistinct(column, where=_condition(where))


# Numbers


def sum(column: str, *, where: Where = None) -> Aggregate:
    """The sum of the non-null values of a column of numbers or durations; 0 without values.

    Integers and Booleans give Int64, unsigned integers UInt64, integers of 128 bits their own type, floats Float64, and
    decimals a decimal of 38 digits. A sum that its type cannot hold fails the run with `StepError`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(total=bl.sum("points")).collect()["total"].item()
        12
    """
    return Sum(column, where=_condition(where))


def mean(column: str, *, where: Where = None) -> Aggregate:
    """The mean of the non-null values of a column of numbers, as Float64; null without values.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(mean=bl.mean("points")).collect()["mean"].item()
        4.0
    """
    return Mean(column, where=_condition(where))


def var(column: str, *, where: Where = None) -> Aggregate:
    """The sample variance of the non-null values of a column of numbers, as Float64; null for fewer than two values.

    The divisor is one less than the number of values. The result is correct to the last digits.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(var=bl.var("points")).collect()["var"].item()
        1.0
    """
    from stages.aggregates.spread import Var

    return Var(column, where=_condition(where))


def std(column: str, *, where: Where = None) -> Aggregate:
    """The sample standard deviation of a column of numbers, as Float64: the square root of `var`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(std=bl.std("points")).collect()["std"].item()
        1.0
    """
    from stages.aggregates.spread import Std

    return Std(column, where=_condition(where))


def quantile(column: str, q: float, *, where: Where = None) -> Aggregate:
    """The exact quantile of a column of numbers or durations, as Float64 or a duration.

    Its rank among the n values is `q * (n - 1)`, from 0 on; between two values it is interpolated. Nulls and NaN are
    ignored; without values it is null. The state keeps all distinct values; that of `approx_quantile` is bounded.

    Args:
        column: The column.
        q: The share of values below the quantile, from 0 to 1.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(most=bl.quantile("points", 0.75)).collect()["most"].item()
        4.5
    """
    return Quantile(column, q, where=_condition(where))


def median(column: str, *, where: Where = None) -> Aggregate:
    """The exact median of a column of numbers or durations: `quantile(column, 0.5)`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(median=bl.median("points")).collect()["median"].item()
        4.0
    """
    return Median(column, where=_condition(where))


def approx_quantile(column: str, q: float, *, where: Where = None) -> Aggregate:
    """An estimate of a quantile of a column of numbers or durations, as Float64 or a duration.

    Of n values, the result is at most 1% away from the value at rank `q * (n - 1)`, rounded down. Nulls and NaN are
    ignored; without values it is null. The state has a count for each 2% step that has a value.

    Args:
        column: The column.
        q: The share of values below the quantile, from 0 to 1.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(most=bl.approx_quantile("points", 0.99)).collect()["most"].round(2).item()
        4.01
    """
    return ApproxQuantile(column, q, where=_condition(where))


# Values


def min(column: str, *, where: Where = None) -> Aggregate:
    """The least non-null value of a column, in the column's type; null without values.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(least=bl.min("points")).collect()["least"].item()
        3
    """
    return Min(column, where=_condition(where))


def max(column: str, *, where: Where = None) -> Aggregate:
    """The greatest non-null value of a column, in the column's type; null without values.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(most=bl.max("points")).collect()["most"].item()
        5
    """
    return Max(column, where=_condition(where))


def mode(column: str, *, where: Where = None) -> Aggregate:
    """The most frequent non-null value of a column, the least if several are equally frequent; null without values.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(most=bl.mode("user")).collect()["most"].item()
        'ada'
    """
    return Mode(column, where=_condition(where))


def any(column: str, *, where: Where = None) -> Aggregate:
    """True if some value of a Boolean column is true; nulls are ignored, and without values it is false.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.with_columns(good=bl.col("points") > 3).window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(any=bl.any("good")).collect()["any"].item()
        True
    """
    return flags.Any(column, where=_condition(where))


def all(column: str, *, where: Where = None) -> Aggregate:
    """True if all values of a Boolean column are true; nulls are ignored, and without values it is true.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.with_columns(good=bl.col("points") > 3).window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(all=bl.all("good")).collect()["all"].item()
        False
    """
    return flags.All(column, where=_condition(where))


def collect(column: str, *, where: Where = None) -> Aggregate:
    """All values of a column, including nulls, in a list in arrival order.

    Within a batch, rows of a source arrive in the order of the source. Panes of an earlier grouping arrive in order of
    event time, and panes with equal time in order of the columns that the aggregates use.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(users=bl.collect("user")).collect()["users"].to_list()
        [['ada', 'bob', 'ada']]
    """
    return Collect(column, where=_condition(where))


def collect_set(column: str, *, where: Where = None) -> Aggregate:
    """The distinct non-null values of a column in a sorted list.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(users=bl.collect_set("user")).collect()["users"].to_list()
        [['ada', 'bob']]
    """
    return CollectSet(column, where=_condition(where))


# Values of chosen rows


def first(column: str, *, where: Where = None) -> Aggregate:
    """The value in the row with the least event time. Of several such rows, the first in the order of `collect` counts.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(first=bl.first("points")).collect()["first"].item()
        3
    """
    return First(column, where=_condition(where))


def last(column: str, *, where: Where = None) -> Aggregate:
    """The value in the row with the greatest event time. Of several such rows, the last in the order of `collect`
    counts.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(last=bl.last("points")).collect()["last"].item()
        4
    """
    return Last(column, where=_condition(where))


def arg_max(column: Columns, *, by: Columns, nulls: Nulls = "ignore", where: Where = None) -> Aggregate:
    """The value of `column` in the row with the greatest `by`, the least if there are several such rows; null without
    rows.

    Args:
        column: One column, or several, such as `["price", "bidder"]`, which give a struct.
        by: One column, or several, compared in turn: a later column decides only between rows that are equal in all
            earlier ones.
        nulls: The rank of a row in which a column of `by` is null: "ignore" leaves the row out, and also one with NaN.
            With "least", null is less than all values, with "greatest" greater, and NaN is the greatest number.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(best=bl.arg_max("user", by="points")).collect()["best"].item()
        'bob'
    """
    return ArgMax(column, by=by, nulls=nulls, where=_condition(where))


def arg_min(column: Columns, *, by: Columns, nulls: Nulls = "ignore", where: Where = None) -> Aggregate:
    """The value of `column` in the row with the least `by`; arguments are as in `arg_max`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(worst=bl.arg_min("user", by="points")).collect()["worst"].item()
        'ada'
    """
    return ArgMin(column, by=by, nulls=nulls, where=_condition(where))


def top(
    column: Columns,
    n: int,
    *,
    by: Columns | None = None,
    ties: bool = False,
    nulls: Nulls = "ignore",
    where: Where = None,
) -> Aggregate:
    """The values of `column` in the `n` rows with the greatest `by`, in a list, greatest first.

    Of rows with equal `by`, those with lesser values are first.

    Args:
        column: One column, or several, which give structs.
        n: The number of rows.
        by: As in `arg_max`; by default `column` itself.
        ties: True adds all rows whose `by` equals that of the last row.
        nulls: As in `arg_max`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(best=bl.top("user", 2, by="points")).collect()["best"].to_list()
        [['bob', 'ada']]
    """
    return Top(column, n, by=by, ties=ties, nulls=nulls, where=_condition(where))


def bottom(
    column: Columns,
    n: int,
    *,
    by: Columns | None = None,
    ties: bool = False,
    nulls: Nulls = "ignore",
    where: Where = None,
) -> Aggregate:
    """The values of `column` in the `n` rows with the least `by`, least first; arguments are as in `top`.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(least=bl.bottom("points", 2)).collect()["least"].to_list()
        [[3, 4]]
    """
    return Bottom(column, n, by=by, ties=ties, nulls=nulls, where=_condition(where))


def sample(column: Columns, n: int, *, where: Where = None) -> Aggregate:
    """The values of `column`, including nulls, in `n` random rows, in a list: all sets of `n` rows are equally likely.

    The choice depends on a hash of a row's event time and values. So a replay chooses the same rows, and rows with
    equal time and values are chosen together.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"))
        >>> days.aggregate(some=bl.sample("user", 2)).collect()["some"].list.len().item()
        2
    """
    return Sample(column, n, where=_condition(where))


# Others


def window_length() -> Aggregate:
    """The length of the window in seconds, as Float64. The length of a session includes the gap at its end.

    Example, with the `plays` of `bl.Collection`:
        >>> sessions = plays.window_into(bl.Sessions("1m")).group_by("user")
        >>> sessions.aggregate(seconds=bl.window_length()).collect()[["user", "seconds"]].rows()
        [('ada', 60.0), ('bob', 60.0), ('ada', 60.0)]
    """
    return WindowLength()


def combine(fn: CombineFn, column: str, dtype: DTypeLike, *, where: Where = None) -> Aggregate:
    """An aggregate of your own over the values of a column.

    Args:
        fn: An object with the four methods of `CombineFn`.
        column: The column.
        dtype: The type of the results: a Python type (`int`, `float`, `str`, `bool`, `datetime`, `bytes`), or a polars
            or narwhals one.

    Raises:
        TypeError: `fn` lacks a method.

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
