"""Aggregates that keep a number, a value, or all values."""

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
)
from windowing.columns import EVENT_TIME, WINDOW_END, WINDOW_START


@attrs.frozen
class Count(Aggregate):
    """The number of elements, or of those whose `column` is not null."""

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
    """Like `Collect`, for windows that merge: each value is kept with its number, by which the result is sorted.

    Elements of windows that merge may have arrived in turns, so no order of the windows is that of arrival.
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
    """The length of the window in seconds; of a session, from its first element to its last, plus the gap."""

    idempotent: ClassVar[bool] = True
    subtractable: ClassVar[bool] = True

    def dtype(self, schema: Schema) -> pl.DataType:
        return pl.Float64()

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        start, end = (pl.col(column).cast(pl.Float64) for column in (WINDOW_START, WINDOW_END))
        # By a column: a constant polars turns into its reciprocal, for frames of several rows only, and the last
        # digit would depend on how many windows emit together.
        return (end - start) / (0 * start + 1_000_000)
