"""Sums and means of floats where elements may be taken back: of what is not finite nothing is left then, either.

Infinity less infinity is no number, so it is not added up: how often each infinity and NaN came is counted beside.
"""

from __future__ import annotations

import math
from typing import Final

import attrs
import polars as pl

from stages.aggregates.base import Aggregate, Part, Schema
from stages.aggregates.builtin import Mean, Sum

_COUNTED: Final = {"nan": math.nan, "above": math.inf, "below": -math.inf}
"""The accumulators beside the sum, and what they count."""

Columns = dict[str, pl.Expr]


def where_taken_back(aggregate: Aggregate) -> Aggregate:
    """What gives the same result, also of what is left where elements are taken back."""
    if isinstance(aggregate, Sum):
        return FiniteSum(aggregate.column, where=aggregate.where)
    return FiniteMean(aggregate.column, where=aggregate.where) if isinstance(aggregate, Mean) else aggregate


@attrs.frozen
class FiniteSum(Sum):
    """The same sum."""

    @property
    def kind(self) -> str:
        return "sum"

    def parts(self, schema: Schema) -> dict[str, Part]:
        return super().parts(schema) | _parts(schema[self.column])

    def lift(self, schema: Schema) -> Columns:
        return super().lift(schema) | _lifted(self.column, schema)

    def extract(self, acc: Columns, schema: Schema) -> pl.Expr:
        return _of_all(super().extract(acc, schema), acc)


@attrs.frozen
class FiniteMean(Mean):
    """The same mean."""

    @property
    def kind(self) -> str:
        return "mean"

    def parts(self, schema: Schema) -> dict[str, Part]:
        return super().parts(schema) | _parts(schema[self.column])

    def lift(self, schema: Schema) -> Columns:
        return super().lift(schema) | _lifted(self.column, schema)

    def merge(self, acc: Columns) -> Columns:
        return {part: sums.sum() for part, sums in acc.items()}

    def extract(self, acc: Columns, schema: Schema) -> pl.Expr:
        return _of_all(super().extract(acc, schema), acc)


def _parts(dtype: pl.DataType) -> dict[str, Part]:
    return dict.fromkeys(_COUNTED, Part(pl.Int64(), 0)) if dtype.is_float() else {}


def _lifted(column: str, schema: Schema) -> Columns:
    if not schema[column].is_float():
        return {}
    value = pl.col(column).cast(pl.Float64)
    is_such = {"nan": value.is_nan(), **{name: value == _COUNTED[name] for name in ("above", "below")}}
    counts = {name: such.fill_null(False).cast(pl.Int64) for name, such in is_such.items()}
    return {"sum": pl.when(value.is_finite()).then(value).otherwise(0.0), **counts}


def _of_all(finite: pl.Expr, acc: Columns) -> pl.Expr:
    """The result, of that of the finite values."""
    if "nan" not in acc:
        return finite
    nan, above, below = (acc[name] > 0 for name in _COUNTED)
    return (
        pl.when(nan | (above & below))
        .then(math.nan)
        .when(above)
        .then(math.inf)
        .when(below)
        .then(-math.inf)
        .otherwise(finite)
    )
