"""Aggregates that count how often each value of a column occurs: count distinct, set, mode, quantiles."""

from __future__ import annotations

import math
import sys
from typing import Any, ClassVar, Final

import attrs
import polars as pl

from stages.aggregates.base import Aggregate, Numeric, OfColumn, OfComparable, Part, Schema, alike
from stages.aggregates.lists import GROUP, chosen, merged, only
from stages.aggregates.multisets import added

_COUNTS: Final = "counts"
_VALUE: Final = pl.element().struct.field("value")
_COUNT: Final = pl.element().struct.field("count")

ERROR: Final = 0.01
"""The maximum relative error of an approximate quantile."""

_BASE: Final = (1 + ERROR) / (1 - ERROR)
"""The base of logarithms: all numbers with the same logarithm, rounded up, are within `ERROR` of their middle."""
_LIMIT: Final = 38_000
"""The logarithm that stands for infinity: greater than that of any finite number to the base `_BASE`."""
_ZERO: Final = 2 * _LIMIT
"""The offset that makes all logarithms positive, so that the sign can be that of the number."""


class _Counted(OfColumn):
    """The base class of aggregates whose accumulator is a list of (value, count), sorted by value, without nulls.

    If a retraction arrives before its element, the count is negative until then.
    """

    subtractable: ClassVar[bool] = True

    def counted(self, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
        """Returns an expression for the value to count in each row, and its type."""
        dtype = schema[self.column]
        return alike(self.column, dtype), dtype

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {_COUNTS: Part(self._list(schema), ())}

    def _list(self, schema: Schema) -> pl.List:
        return pl.List(pl.Struct({"value": self.counted(schema)[1], "count": pl.Int64()}))

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        value, _ = self.counted(schema)
        item = pl.struct(value.alias("value"), pl.lit(1, pl.Int64).alias("count"))
        return {_COUNTS: only(item, value.is_not_null(), self._list(schema))}

    def negated(self, lifted: dict[str, pl.Expr], schema: Schema) -> dict[str, pl.Expr]:
        return {_COUNTS: lifted[_COUNTS].list.eval(pl.struct(_VALUE, -_COUNT))}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {_COUNTS: merged(acc[_COUNTS], added)}


class _Distinct(OfComparable, _Counted):
    pass


@attrs.frozen
class CountDistinct(_Distinct):
    """The number of distinct values of a column, without nulls."""

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return pl.Int64()

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc[_COUNTS].list.eval((_COUNT > 0).cast(pl.Int64)).list.sum()


@attrs.frozen
class CollectSet(_Distinct):
    """The sorted list of the distinct values of a column, without nulls."""

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return pl.List(dtype)

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc[_COUNTS].list.eval(_VALUE.filter(_COUNT > 0))


@attrs.frozen
class Mode(_Distinct):
    """The most frequent value of a column, without nulls; null if there are no values. Of several, the least value."""

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return chosen(acc[_COUNTS], self.dtype(schema), _most_often, "value")


def _most_often(items: pl.DataFrame) -> pl.DataFrame:
    most = pl.col("count") == pl.col("count").max().over(GROUP)
    return items.filter(most & (pl.col("count") > 0)).unique(GROUP, keep="first", maintain_order=True)


def _is_share(owner: Aggregate, attribute: attrs.Attribute[Any], value: object) -> None:
    what = f"{owner.kind}: q must be from 0 to 1, such as 0.99"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what}, not {value!r}")
    if not 0 <= value <= 1:
        raise ValueError(f"{what}, not {value!r}")


@attrs.frozen
class Quantile(Numeric, _Counted):
    """The exact `q`-quantile of a column, without nulls and NaN; null if there are no values.

    The rank of the result is q * (n - 1). Between two values it is interpolated, as in numpy and pandas.
    """

    q: float = attrs.field(validator=_is_share)

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return dtype if isinstance(dtype, pl.Duration) else pl.Float64()

    def counted(self, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
        value, dtype = super().counted(schema)
        return (value.fill_nan(None), dtype) if dtype.is_float() else (value, dtype)

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        found = chosen(acc[_COUNTS], pl.Float64(), self._interpolated, "value")
        dtype = self.dtype(schema)
        return found.round().cast(pl.Int64).cast(dtype) if isinstance(dtype, pl.Duration) else found

    def _interpolated(self, items: pl.DataFrame) -> pl.DataFrame:
        number = pl.col("value")
        number = number.to_physical() if isinstance(items.schema["value"], pl.Duration) else number
        rank = self.q * (pl.col("count") - 1)
        least, next_one = (
            _at_rank(items, one.cast(pl.Int64)).select(GROUP, number.cast(pl.Float64))
            for one in (rank.floor(), rank.ceil())
        )
        ranks = _ranks(items, rank)
        low, high, part = least["value"], next_one["value"], ranks["rank"] - ranks["rank"].floor()
        # Halves, as the difference of two finite numbers may be infinite.
        between = low + (high / 2 - low / 2) * (2 * part)
        return least.with_columns(value=between.zip_with((part > 0) & (low != high), low))


@attrs.frozen
class Median(Quantile):
    """The exact median of a column, its 0.5-quantile: the value in the middle, or the mean of the two in the middle."""

    q: float = attrs.field(default=0.5, init=False)


def _ranks(items: pl.DataFrame, rank: pl.Expr) -> pl.DataFrame:
    """Returns the groups that have values, each with the number of its values and its rank, which is computed of it."""
    positive = items.filter(pl.col("count") > 0)
    return (
        positive.group_by(GROUP, maintain_order=True)
        .agg(pl.col("count").sum())
        .with_columns(rank.alias("rank"))
    )


def _at_rank(items: pl.DataFrame, rank: pl.Expr) -> pl.DataFrame:
    """Returns the value of each group at a rank that is computed of the number of its values, from 0 on."""
    # Ranks are positions among the items of all groups together, so that one join finds them for all groups.
    positive = items.filter(pl.col("count") > 0).with_columns((pl.col("count").cum_sum() - 1).alias("last"))
    groups = _ranks(items, rank)
    before = (pl.col("count").cum_sum() - pl.col("count")).cast(pl.Int64)
    return groups.select(GROUP, (before + pl.col("rank")).alias("last")).join_asof(
        positive.select("value", pl.col("last").cast(pl.Int64)), on="last", strategy="forward"
    )


@attrs.frozen
class ApproxQuantile(Numeric, _Counted):
    """An estimate of the `q`-quantile: within a relative error of `ERROR` of the value at rank floor(q * (n - 1)).

    It counts values by their logarithm to the base `_BASE`, rounded up. Masson, Rim, Lee: DDSketch, VLDB 2019.
    Nulls and NaN are ignored; null if there are no values.
    """

    q: float = attrs.field(validator=_is_share)

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return dtype if isinstance(dtype, pl.Duration) else pl.Float64()

    def counted(self, schema: Schema) -> tuple[pl.Expr, pl.DataType]:
        value = pl.col(self.column)
        if isinstance(schema[self.column], pl.Duration):
            value = value.to_physical()
        value = value.cast(pl.Float64).fill_nan(None)
        # A positive number has a positive bucket, a negative number the negative bucket of its absolute value, and 0
        # has bucket 0. So buckets, by which accumulators are sorted, have the order of the numbers.
        bucket = (value.abs().log() / math.log(_BASE)).ceil().clip(-_LIMIT, _LIMIT) + _ZERO
        signed = pl.when(value == 0).then(0).otherwise(bucket * value.sign())
        return pl.when(value.is_not_null()).then(signed).cast(pl.Int32), pl.Int32()

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        bucket = chosen(acc[_COUNTS], pl.Int32(), self._at_rank, "value")
        value = pl.when(bucket == 0).then(0.0).otherwise(bucket.sign() * _middle(bucket.abs() - _ZERO))
        value = pl.when(bucket.is_not_null()).then(value)
        dtype = self.dtype(schema)
        return value.round().cast(pl.Int64).cast(dtype) if isinstance(dtype, pl.Duration) else value

    def _at_rank(self, items: pl.DataFrame) -> pl.DataFrame:
        return _at_rank(items, (self.q * (pl.col("count") - 1)).floor().cast(pl.Int64))


def _middle(logarithm: pl.Expr) -> pl.Expr:
    """Returns the number with the least relative error for all numbers with this logarithm, rounded up."""
    middle = pl.lit(_BASE).pow(logarithm - 1) * (2 * _BASE / (_BASE + 1))
    finite = middle.clip(upper_bound=sys.float_info.max)
    return pl.when(logarithm < _LIMIT).then(finite).otherwise(math.inf)
