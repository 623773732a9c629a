"""Sums and means of floats where elements may be taken back: of what is not finite nothing is left then, either.

Infinity less infinity is no number, so it is not added up: how often each infinity and NaN came is counted beside.
"""

from __future__ import annotations

import math
from typing import Final

import polars as pl

from stages.aggregates.base import OfColumn, Part, Schema

_COUNTED: Final = {"nan": math.nan, "above": math.inf, "below": -math.inf}
"""The accumulators beside the sum, and what they count."""

Columns = dict[str, pl.Expr]


class Finite(OfColumn):
    """To be put before an aggregate whose accumulator `sum` is one of floats: the same result, of the finite values."""

    def parts(self, schema: Schema) -> dict[str, Part]:
        counted = dict.fromkeys(_COUNTED, Part(pl.Int64(), 0)) if schema[self.column].is_float() else {}
        return super().parts(schema) | counted

    def lift(self, schema: Schema) -> Columns:
        lifted = super().lift(schema)
        if not schema[self.column].is_float():
            return lifted
        value = pl.col(self.column).cast(pl.Float64)
        is_such = {"nan": value.is_nan(), **{name: value == _COUNTED[name] for name in ("above", "below")}}
        counts = {name: such.fill_null(False).cast(pl.Int64) for name, such in is_such.items()}
        return {**lifted, "sum": pl.when(value.is_finite()).then(value).otherwise(0.0), **counts}

    def extract(self, acc: Columns, schema: Schema) -> pl.Expr:
        finite = super().extract(acc, schema)
        if "nan" not in acc:
            return finite
        nan, above, below = (acc[name] > 0 for name in _COUNTED)
        unlimited = pl.when(above).then(math.inf).when(below).then(-math.inf).otherwise(finite)
        return pl.when(nan | (above & below)).then(math.nan).otherwise(unlimited)
