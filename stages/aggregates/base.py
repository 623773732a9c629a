"""Aggregates as triples of expressions: lift (rows -> accumulator columns), merge (an aggregation), extract.

Merging is associative, and the accumulator of nothing is its identity, so how elements were bundled does not show.
"""

from __future__ import annotations

from typing import ClassVar, Final

import attrs
import polars as pl

Schema = pl.Schema

ARRIVAL: Final = "__arrival"
"""Of single rows, where an aggregate is `numbered`: their number, in order of arrival; there may be gaps."""


@attrs.frozen
class Part:
    """One accumulator column: its type and its value for no elements."""

    dtype: pl.DataType
    empty: object = None


@attrs.frozen
class Aggregate:
    """What a grouping computes of each window. Accumulator columns of the result `name` begin with `name + "."`."""

    subtractable: ClassVar[bool] = False
    """Whether accumulators are sums, so that an element that is taken back can be subtracted."""

    idempotent: ClassVar[bool] = False
    """Whether an element that comes again, as what it was or as what it has become, does no harm."""

    ordered: ClassVar[bool] = False
    """Whether the result may depend on the order in which elements arrive."""

    numbered: ClassVar[bool] = False
    """Whether it reads the number of each element in `ARRIVAL`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The input columns that it reads."""
        return ()

    def dtype(self, schema: Schema) -> pl.DataType:
        """The type of the result; `TypeError` says what the input column should have been."""
        raise NotImplementedError

    def parts(self, schema: Schema) -> dict[str, Part]:
        """The accumulator columns, by the end of their name."""
        return {}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        """The accumulators of single rows."""
        return {}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        """The accumulators of a group of accumulators, in order of arrival; nulls are those of nothing."""
        return {}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        """The result."""
        raise NotImplementedError

    def where_windows_merge(self) -> Aggregate:
        """What gives the same result where accumulators are merged in another order than that of arrival."""
        return self


@attrs.frozen
class OfColumn(Aggregate):
    """An aggregate of the values of one column."""

    column: str

    wants: ClassVar[str] = "values that can be stored"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def accepts(self, dtype: pl.DataType) -> bool:
        return dtype != pl.Object

    def dtype(self, schema: Schema) -> pl.DataType:
        dtype = schema[self.column]
        if not self.accepts(dtype):
            name = type(self).__name__.lower()
            raise TypeError(f"{name}({self.column!r}) needs {self.wants}, but the column is {dtype}")
        return self.result(dtype)

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return dtype


class Numeric(OfColumn):
    wants: ClassVar[str] = "a column of numbers or durations"

    def accepts(self, dtype: pl.DataType) -> bool:
        return dtype.is_numeric() or dtype == pl.Boolean or isinstance(dtype, pl.Duration)
