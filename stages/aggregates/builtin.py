"""Aggregates that keep a number or two, a value, or all values."""

from __future__ import annotations

from typing import ClassVar

import attrs
import polars as pl

from stages.aggregates.base import (
    ARRIVAL,
    Aggregate,
    Numeric,
    OfColumn,
    OfComparable,
    OfNumbers,
    Part,
    Schema,
)
from stages.aggregates.finite import Finite
from stages.aggregates.sums import NARROW, narrow, wide
from windowing.columns import EVENT_TIME, WINDOW_END, WINDOW_START


@attrs.frozen
class Count(Aggregate):
    """Elements, or those whose `column` is not null."""

    subtractable: ClassVar[bool] = True

    column: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return () if self.column is None else (self.column,)

    def dtype(self, schema: Schema) -> pl.DataType:
        return pl.Int64()

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {"count": Part(pl.Int64(), 0)}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        one = pl.lit(1, pl.Int64) if self.column is None else pl.col(self.column).is_not_null().cast(pl.Int64)
        return {"count": one}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {"count": acc["count"].sum()}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc["count"]


def _summed(dtype: pl.DataType) -> pl.DataType:
    """Wide enough to add up: small integers and booleans become Int64, floats Float64, decimals of 38 digits."""
    if dtype == pl.Boolean or (dtype.is_integer() and dtype not in (pl.UInt64, pl.Int128, pl.UInt128)):
        return pl.Int64()
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(38, dtype.scale)
    return pl.Float64() if dtype.is_float() else dtype


@attrs.frozen
class Sum(Numeric):
    """The sum of a column, nulls left out; 0 for no values.

    A sum that its type cannot hold is an error, not another number; what is added up on the way may be beyond it.
    """

    subtractable: ClassVar[bool] = True

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return _summed(dtype)

    def parts(self, schema: Schema) -> dict[str, Part]:
        dtype = self.dtype(schema)
        if halves := wide(dtype):
            return {"sum": Part(dtype, 0), "high": Part(halves.high, 0)}
        return {"sum": Part(pl.Int128() if dtype in NARROW else dtype, 0)}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        dtype = self.dtype(schema)
        value = pl.col(self.column)
        if halves := wide(dtype):
            return dict(zip(("sum", "high"), halves.split(value.cast(dtype)), strict=True))
        return {"sum": value.cast(pl.Int128() if dtype in NARROW else dtype)}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {part: sums.sum() for part, sums in acc.items()}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        dtype, what = self.dtype(schema), f"sum({self.column!r})"
        halves = wide(dtype)
        if halves:
            return pl.map_batches(
                [acc["sum"], acc["high"]],
                lambda sums: halves.total(sums[0], sums[1], what),
                return_dtype=dtype,
                is_elementwise=True,
            )
        if dtype not in NARROW:
            return acc["sum"]
        return acc["sum"].map_batches(
            lambda sums: narrow(sums, dtype, what), return_dtype=dtype, is_elementwise=True
        )

    def where_taken_back(self) -> Aggregate:
        return FiniteSum(self.column, where=self.where)


@attrs.frozen
class FiniteSum(Finite, Sum):
    """The same where elements are taken back: of an infinity or NaN nothing is left then."""


@attrs.frozen
class Mean(OfNumbers):
    """The mean of a column, nulls left out; null for no values."""

    subtractable: ClassVar[bool] = True

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return pl.Float64()

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {"sum": Part(pl.Float64(), 0.0), "count": Part(pl.Int64(), 0)}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        value = pl.col(self.column)
        return {"sum": value.cast(pl.Float64).fill_null(0.0), "count": value.is_not_null().cast(pl.Int64)}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {part: sums.sum() for part, sums in acc.items()}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return pl.when(acc["count"] > 0).then(acc["sum"] / acc["count"])

    def where_taken_back(self) -> Aggregate:
        return FiniteMean(self.column, where=self.where)


@attrs.frozen
class FiniteMean(Finite, Mean):
    """The same where elements are taken back: of an infinity or NaN nothing is left then."""


class _Extreme(OfComparable):
    idempotent: ClassVar[bool] = True

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {"value": Part(self.dtype(schema))}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        return {"value": pl.col(self.column)}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc["value"]


@attrs.frozen
class Min(_Extreme):
    """The least value of a column, nulls left out; null for no values."""

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {"value": acc["value"].min()}


@attrs.frozen
class Max(_Extreme):
    """The greatest value of a column, nulls left out; null for no values."""

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {"value": acc["value"].max()}


@attrs.frozen
class Collect(OfColumn):
    """All values of a column in a list, nulls too, in order of arrival."""

    ordered: ClassVar[bool] = True

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return pl.List(dtype)

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {"values": Part(self.dtype(schema), ())}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        value = pl.col(self.column)
        if not isinstance(schema[self.column], pl.List):
            return {"values": pl.concat_list(value)}
        # Of lists, concat_list would make one list.
        wrapped = pl.concat_list(pl.struct(value.alias("value")))
        return {"values": wrapped.list.eval(pl.element().struct.field("value"))}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {"values": acc["values"].list.explode(keep_nulls=False, empty_as_null=False)}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc["values"]

    def where_windows_merge(self) -> Aggregate:
        return CollectNumbered(self.column, where=self.where)


@attrs.frozen
class CollectNumbered(Collect):
    """The same where windows merge: each value is kept with its number, by which the result is sorted.

    Elements of windows that become one may have come in turns, so no order of the windows is that of arrival.
    """

    numbered: ClassVar[bool] = True
    ordered: ClassVar[bool] = False  # its numbers are

    def parts(self, schema: Schema) -> dict[str, Part]:
        numbered = pl.Struct({"number": pl.Int64(), "value": schema[self.column]})
        return {"values": Part(pl.List(numbered), ())}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        numbered = pl.struct(pl.col(ARRIVAL).alias("number"), pl.col(self.column).alias("value"))
        return {"values": pl.concat_list(numbered)}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        number, value = (pl.element().struct.field(name) for name in ("number", "value"))
        return acc["values"].list.eval(value.sort_by(number))


class _ByTime(OfColumn):
    """The value of one element, chosen by its event time; the accumulator is that time and that value."""

    idempotent: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {"time": Part(pl.Int64()), "value": Part(self.dtype(schema))}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        return {"time": pl.col(EVENT_TIME), "value": pl.col(self.column)}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc["value"]


@attrs.frozen
class First(_ByTime):
    """The value of the element with the least event time; of equals, the one that arrived first."""

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        # A null time is the accumulator of nothing; arg_min leaves nulls out and takes the first of equals.
        return {"time": acc["time"].min(), "value": acc["value"].get(acc["time"].arg_min())}


@attrs.frozen
class Last(_ByTime):
    """The value of the element with the greatest event time; of equals, the one that arrived last."""

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        time = acc["time"]
        latest = acc["value"].filter((time == time.max()).fill_null(False))
        return {"time": time.max(), "value": latest.last()}


@attrs.frozen
class WindowLength(Aggregate):
    """The length of the window in seconds; of a session that is from its first element to its last, plus the gap."""

    idempotent: ClassVar[bool] = True
    subtractable: ClassVar[bool] = True

    def dtype(self, schema: Schema) -> pl.DataType:
        return pl.Float64()

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        start, end = (pl.col(column).cast(pl.Float64) for column in (WINDOW_START, WINDOW_END))
        # By a column: a constant polars turns into its reciprocal, for frames of several rows only, and the last
        # digit would depend on how many windows emit together.
        return (end - start) / (0 * start + 1_000_000)
