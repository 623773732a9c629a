"""Exact sums and means of floats that may be retracted, infinities and NaN included.

Infinity minus infinity is NaN, so infinities and NaNs are not added: they are counted in columns of their own.
"""

from __future__ import annotations

import math
from typing import Final

import polars as pl

from stages.aggregates import exact
from stages.aggregates.base import OfColumn, Part, Schema
from stages.aggregates.exact_parts import PARTS

_COUNTED: Final = {"nan": math.nan, "above": math.inf, "below": -math.inf}
"""The accumulators that count infinities and NaNs, with the value that each counts."""

Columns = dict[str, pl.Expr]


class Finite(OfColumn):
    """A mixin for an aggregate with sums, which stores sums of floats in the columns of `stages.aggregates.exact`.

    It must come before the aggregate in the list of base classes. The accumulator `sum` remains, since state of earlier
    versions has sums of floats in it.
    """

    def of_finite(self, acc: Columns) -> pl.Expr:
        """Returns an expression for the result if all values are finite."""
        raise NotImplementedError

    def parts(self, schema: Schema) -> dict[str, Part]:
        parts = super().parts(schema)
        if not schema[self.column].is_float():
            return parts
        return {**parts, **dict.fromkeys(_COUNTED, Part(pl.Int64(), 0)), **PARTS}

    def lift(self, schema: Schema) -> Columns:
        lifted = super().lift(schema)
        if not schema[self.column].is_float():
            return lifted
        value = pl.col(self.column).cast(pl.Float64)
        is_such = {"nan": value.is_nan(), **{name: value == _COUNTED[name] for name in ("above", "below")}}
        counts = {name: such.fill_null(False).cast(pl.Int64) for name, such in is_such.items()}
        columns, others = exact.split(value)
        return {**lifted, "sum": pl.lit(0.0), **counts, **columns, "rest": exact.limbs_of(others)}

    def negated(self, lifted: Columns, schema: Schema) -> Columns:
        sums = {part: value for part, value in lifted.items() if part != "rest"}
        limbs = {"rest": exact.negated(lifted["rest"])} if "rest" in lifted else {}
        return super().negated(sums, schema) | limbs

    def merge(self, acc: Columns) -> Columns:
        sums = super().merge({part: value for part, value in acc.items() if part != "rest"})
        return sums | ({"rest": exact.added(acc["rest"])} if "rest" in acc else {})

    def extract(self, acc: Columns, schema: Schema) -> pl.Expr:
        if "nan" not in acc:
            return super().extract(acc, schema)
        nan, above, below = (acc[name] > 0 for name in _COUNTED)
        unlimited = pl.when(above).then(math.inf).when(below).then(-math.inf).otherwise(self.of_finite(acc))
        return pl.when(nan | (above & below)).then(math.nan).otherwise(unlimited)
