"""Cumulative aggregates: for each row, the accumulators of all rows of its key up to that row."""

from __future__ import annotations

from typing import Any, Protocol

import attrs
import polars as pl

from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import Count, First, Last, Max, Min
from stages.aggregates.totals import Mean, Sum
from windowing.identity import Declared

Columns = dict[str, pl.Expr]


class Cumulative(Protocol):
    """An aggregate that has a value for each row.

    The first row of a key in a step contains the accumulators of all steps before; the rows after it are lifted.
    """

    def dtype(self, schema: pl.Schema) -> pl.DataType:
        """The type of the result. Raises `TypeError` for a column that the aggregate cannot read."""

    def parts(self, schema: pl.Schema) -> dict[str, pl.DataType]:
        """The accumulator columns, by the suffix of their name."""

    def lift(self, schema: pl.Schema) -> Columns:
        """The accumulators of single rows."""

    def so_far(self, acc: Columns) -> Columns:
        """The accumulators of each row and all rows before it in its group."""

    def extract(self, acc: Columns, schema: pl.Schema) -> pl.Expr:
        """The result."""


@attrs.frozen
class Previous:
    """The value of a column in the previous row of the same key; null in the first row."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The input columns that it reads."""
        return (self.column,)

    def __str__(self) -> str:
        return f"previous({self.column})"

    def dtype(self, schema: pl.Schema) -> pl.DataType:
        """The type of the column."""
        return schema[self.column]

    def parts(self, schema: pl.Schema) -> dict[str, pl.DataType]:
        """The current and the previous value."""
        return {"value": schema[self.column], "before": schema[self.column]}

    def lift(self, schema: pl.Schema) -> Columns:
        """The current value, with null as the previous one."""
        return {"value": pl.col(self.column), "before": pl.lit(None, schema[self.column])}

    def so_far(self, acc: Columns) -> Columns:
        """The current value, and that of the row before."""
        return {"value": acc["value"], "before": acc["value"].shift(1)}

    def extract(self, acc: Columns, schema: pl.Schema) -> pl.Expr:
        """The previous value."""
        return acc["before"]


@attrs.frozen
class OfAggregate(Declared):
    """The cumulative form of an aggregate of groupings."""

    aggregate: Count | Sum | Mean | Min | Max | First | Last
    text: str

    def __str__(self) -> str:
        return self.text

    def identity(self) -> Any:
        return self.aggregate.identity()

    def dtype(self, schema: pl.Schema) -> pl.DataType:
        """The result type of the aggregate."""
        dtype = self.aggregate.dtype(schema)
        if isinstance(self.aggregate, Min | Max) and isinstance(dtype, pl.Enum | pl.Categorical):
            raise TypeError(f"{self.text} has no running form of {dtype}; cast the column to String before")
        return dtype

    def parts(self, schema: pl.Schema) -> dict[str, pl.DataType]:
        """The accumulator types of the aggregate."""
        return {name: part.dtype for name, part in self.aggregate.parts(schema).items()}

    def lift(self, schema: pl.Schema) -> Columns:
        """The accumulators of single rows, as in a grouping."""
        return self.aggregate.lift_taken(schema)

    def so_far(self, acc: Columns) -> Columns:
        """Sums are added up, extremes are kept, and for first and last the better of two values by time is kept."""
        match self.aggregate:
            case Count() | Sum() | Mean():
                return {name: part.fill_null(strategy="zero").cum_sum() for name, part in acc.items()}
            case Min():
                return {"value": acc["value"].cum_min().forward_fill()}
            case Max():
                return {"value": acc["value"].cum_max().forward_fill()}
            case First():
                return _replaced(acc, acc["time"] < acc["time"].cum_min().forward_fill().shift(1))
            case Last():
                return _replaced(acc, acc["time"] >= acc["time"].cum_max().forward_fill().shift(1))

    def extract(self, acc: Columns, schema: pl.Schema) -> pl.Expr:
        """The result, as in a grouping."""
        return self.aggregate.extract(acc, schema)


def _replaced(acc: Columns, better: pl.Expr) -> Columns:
    """Time and value of the last row that was better than all rows before it. A null time means no value so far."""
    found = better.fill_null(True) & acc["time"].is_not_null()
    taken = (
        pl.when(found).then(pl.struct(acc["time"].alias("time"), acc["value"].alias("value"))).forward_fill()
    )
    return {"time": taken.struct.field("time"), "value": taken.struct.field("value")}


def cumulative(aggregate: Aggregate | Previous, text: str) -> Cumulative | None:
    """Returns the cumulative form of an aggregate, shown as `text`; None if it has none."""
    if isinstance(aggregate, Previous):
        return aggregate
    if isinstance(aggregate, Count | Sum | Mean | Min | Max | First | Last):
        return OfAggregate(aggregate, text)
    return None
