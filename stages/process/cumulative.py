"""Cumulative (running) aggregates: for each row, the aggregate of all rows of its key up to this row."""

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
    """An aggregate with a result for each row: that of the row and all rows before it.

    In each step, a row with the accumulators of the previous steps is put before the rows of each key.
    """

    def dtype(self, schema: pl.Schema) -> pl.DataType:
        """Returns the type of the result. Raises `TypeError` for a column type that the aggregate does not support."""

    def parts(self, schema: pl.Schema) -> dict[str, pl.DataType]:
        """Returns the types of the accumulators by name."""

    def lift(self, schema: pl.Schema) -> Columns:
        """Returns expressions, by name, for the accumulators of a single row."""

    def so_far(self, acc: Columns) -> Columns:
        """Returns expressions, by name, for the merged accumulators of a row and all rows before it in its group."""

    def extract(self, acc: Columns, schema: pl.Schema) -> pl.Expr:
        """Returns the expression that computes the result from accumulators."""


@attrs.frozen
class Previous:
    """The value of a column in the previous row of the same key; null in the first row."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The input columns that the aggregate reads."""
        return (self.column,)

    def __str__(self) -> str:
        return f"previous({self.column})"

    def dtype(self, schema: pl.Schema) -> pl.DataType:
        return schema[self.column]

    def parts(self, schema: pl.Schema) -> dict[str, pl.DataType]:
        return {"value": schema[self.column], "before": schema[self.column]}

    def lift(self, schema: pl.Schema) -> Columns:
        return {"value": pl.col(self.column), "before": pl.lit(None, schema[self.column])}

    def so_far(self, acc: Columns) -> Columns:
        return {"value": acc["value"], "before": acc["value"].shift(1)}

    def extract(self, acc: Columns, schema: pl.Schema) -> pl.Expr:
        return acc["before"]


@attrs.frozen
class OfAggregate(Declared):
    """The cumulative form of a grouping's aggregate. `text` is the aggregate as a user writes it."""

    aggregate: Count | Sum | Mean | Min | Max | First | Last
    text: str

    def __str__(self) -> str:
        return self.text

    def identity(self) -> Any:
        return self.aggregate.identity()

    def dtype(self, schema: pl.Schema) -> pl.DataType:
        dtype = self.aggregate.dtype(schema)
        if isinstance(self.aggregate, Min | Max) and isinstance(dtype, pl.Enum | pl.Categorical):
            raise TypeError(f"{self.text} has no running form of {dtype}; cast the column to String before")
        return dtype

    def parts(self, schema: pl.Schema) -> dict[str, pl.DataType]:
        return {name: part.dtype for name, part in self.aggregate.parts(schema).items()}

    def lift(self, schema: pl.Schema) -> Columns:
        return self.aggregate.lift_accepted(schema)

    def so_far(self, acc: Columns) -> Columns:
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
        return self.aggregate.extract(acc, schema)


def _replaced(acc: Columns, better: pl.Expr) -> Columns:
    """Returns the time and value of the latest row for which `better` is true. A null time means that there is no value
    yet.
    """
    found = better.fill_null(True) & acc["time"].is_not_null()
    latest = (
        pl.when(found).then(pl.struct(acc["time"].alias("time"), acc["value"].alias("value"))).forward_fill()
    )
    return {"time": latest.struct.field("time"), "value": latest.struct.field("value")}


def cumulative(aggregate: Aggregate | Previous, text: str) -> Cumulative | None:
    """Returns the cumulative form of an aggregate, shown as `text`; None if it has none."""
    if isinstance(aggregate, Previous):
        return aggregate
    if isinstance(aggregate, Count | Sum | Mean | Min | Max | First | Last):
        return OfAggregate(aggregate, text)
    return None
