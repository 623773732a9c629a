"""Simple aggregates: count, min, max, collect, first, last, and the length of the window."""

from __future__ import annotations

from typing import ClassVar

import attrs
import polars as pl

from stages.aggregates.base import (
    ARRIVAL,
    Aggregate,
    OfColumn,
    OfComparable,
    Part,
    Schema,
    without_sign,
)
from stages.aggregates.standing import InOrder, Refoldable, Standing
from windowing.columns import EVENT_TIME, WINDOW_END, WINDOW_START


@attrs.frozen
class Count(Aggregate):
    """The number of elements; with `column`, the number of elements in which it is not null."""

    subtractable: ClassVar[bool] = True
    has_differences: ClassVar[bool] = True

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


class _Extreme(Refoldable, OfComparable):
    idempotent: ClassVar[bool] = True

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {"value": Part(self.dtype(schema))}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        return {"value": pl.col(self.column)}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return without_sign(acc["value"], self.dtype(schema))


@attrs.frozen
class Min(_Extreme):
    """The least value of a column, without nulls; null if there are no values."""

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {"value": acc["value"].min()}


@attrs.frozen
class Max(_Extreme):
    """The greatest value of a column, without nulls; null if there are no values."""

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {"value": acc["value"].max()}


@attrs.frozen
class Collect(OfColumn):
    """A list of all values of a column, including nulls, in order of arrival."""

    ordered: ClassVar[bool] = True

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return pl.List(dtype)

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {"values": Part(self.dtype(schema), ())}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        value = pl.col(self.column)
        if not isinstance(schema[self.column], pl.List):
            return {"values": pl.concat_list(value)}
        # concat_list would concatenate the items of lists, so these are wrapped in structs.
        wrapped = pl.concat_list(pl.struct(value.alias("value")))
        return {"values": wrapped.list.eval(pl.element().struct.field("value"))}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {"values": acc["values"].list.explode(keep_nulls=False, empty_as_null=False)}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        return acc["values"]

    def for_retractions(self) -> Aggregate:
        return Standing.of(InOrder(self.column, where=self.where))

    def for_merging_windows(self) -> Aggregate:
        return CollectNumbered(self.column, where=self.where)


@attrs.frozen
class CollectNumbered(Collect):
    """Like `Collect`, for windows that merge: stores the arrival number of each value, and sorts the result by it.

    Elements of two windows may have arrived alternately, so concatenating their lists would not be in arrival order.
    """

    numbered: ClassVar[bool] = True
    ordered: ClassVar[bool] = False  # the stored numbers have the order

    def parts(self, schema: Schema) -> dict[str, Part]:
        numbered = pl.Struct({"number": pl.Int64(), "value": schema[self.column]})
        return {"values": Part(pl.List(numbered), ())}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        numbered = pl.struct(pl.col(ARRIVAL).alias("number"), pl.col(self.column).alias("value"))
        return {"values": pl.concat_list(numbered)}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        number, value = (pl.element().struct.field(name) for name in ("number", "value"))
        return acc["values"].list.eval(value.sort_by(number))


class _ByTime(Refoldable, OfColumn):
    """The base class of aggregates that select one element by event time. An accumulator is its time and value."""

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
    """The value of the element with the least event time; if several have it, of the one that arrived first."""

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        # A null time is an empty accumulator: arg_min ignores nulls, and returns the first of equal times.
        return {"time": acc["time"].min(), "value": acc["value"].get(acc["time"].arg_min())}


@attrs.frozen
class Last(_ByTime):
    """The value of the element with the greatest event time; if several have it, of the one that arrived last."""

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        time = acc["time"]
        latest = acc["value"].filter((time == time.max()).fill_null(False))
        return {"time": time.max(), "value": latest.last()}


@attrs.frozen
class LastPane(Last):
    """The struct of the element with the greatest number in the field `index`, such as a pane of its window."""

    index: str = attrs.field(kw_only=True)

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        return {"time": pl.col(self.column).struct.field(self.index), "value": pl.col(self.column)}


@attrs.frozen
class WindowLength(Aggregate):
    """The length of the window in seconds. That of a session is the time from first to last element, plus the gap."""

    idempotent: ClassVar[bool] = True
    subtractable: ClassVar[bool] = True

    def dtype(self, schema: Schema) -> pl.DataType:
        return pl.Float64()

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        start, end = (pl.col(column).cast(pl.Float64) for column in (WINDOW_START, WINDOW_END))
        # The divisor is a column: polars would replace a constant by its reciprocal, but only in frames of several
        # rows, so the last digit would depend on the number of windows that emit together.
        return (end - start) / (0 * start + 1_000_000)
