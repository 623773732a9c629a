"""The sum and mean of a column. Intermediate sums are exact, except sums of floats without retractions."""

from __future__ import annotations

from typing import ClassVar

import attrs
import polars as pl

from stages.aggregates import exact
from stages.aggregates.base import Aggregate, Numeric, OfNumbers, Part, Schema, without_sign
from stages.aggregates.exact_parts import INTEGER
from stages.aggregates.finite import Finite
from stages.aggregates.sums import NARROW, narrow, wide

Columns = dict[str, pl.Expr]


def summed(dtype: pl.DataType) -> pl.DataType:
    """Returns the type of the sum of a column: Int64 for small integers and Booleans, Float64 for floats, or a wide
    decimal.
    """
    if dtype == pl.Boolean or (dtype.is_integer() and dtype not in (pl.UInt64, pl.Int128, pl.UInt128)):
        return pl.Int64()
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(38, dtype.scale)
    return pl.Float64() if dtype.is_float() else dtype


@attrs.frozen
class Sum(Numeric):
    """The sum of a column, without nulls; 0 if there are no values. A result that overflows its type is an error."""

    subtractable: ClassVar[bool] = True
    has_differences: ClassVar[bool] = True

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return summed(dtype)

    def parts(self, schema: Schema) -> dict[str, Part]:
        dtype = self.dtype(schema)
        if halves := wide(dtype):
            return {"sum": Part(dtype, 0), "high": Part(halves.high, 0)}
        return {"sum": Part(pl.Int128() if dtype in NARROW else dtype, 0)}

    def lift(self, schema: Schema) -> Columns:
        dtype = self.dtype(schema)
        value = pl.col(self.column)
        if halves := wide(dtype):
            return dict(zip(("sum", "high"), halves.split(value.cast(dtype)), strict=True))
        return {"sum": value.cast(pl.Int128() if dtype in NARROW else dtype)}

    def merge(self, acc: Columns) -> Columns:
        return {part: sums.sum() for part, sums in acc.items()}

    def extract(self, acc: Columns, schema: Schema) -> pl.Expr:
        dtype, what = self.dtype(schema), f"sum({self.column!r})"
        if halves := wide(dtype):
            return pl.map_batches(
                [acc["sum"], acc["high"]],
                lambda sums: halves.total(sums[0], sums[1], what),
                return_dtype=dtype,
                is_elementwise=True,
            )
        if dtype not in NARROW:
            return without_sign(acc["sum"], dtype)
        return acc["sum"].map_batches(
            lambda sums: narrow(sums, dtype, what), return_dtype=dtype, is_elementwise=True
        )

    def for_retractions(self) -> Aggregate:
        return FiniteSum(self.column, where=self.where)


@attrs.frozen
class FiniteSum(Finite, Sum):
    """An exact sum of elements that may be retracted. A retracted infinity, NaN or large number has no effect."""

    def of_finite(self, acc: Columns) -> pl.Expr:
        return exact.total(acc["whole"], acc["part"], acc["rest"]) + acc["sum"]


@attrs.frozen
class Mean(OfNumbers):
    """The mean of a column, without nulls; null if there are no values.

    The mean of integers is rounded only once. The mean of decimals is that of their digits as integers, divided by a
    power of ten.
    """

    subtractable: ClassVar[bool] = True

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return pl.Float64()

    def parts(self, schema: Schema) -> dict[str, Part]:
        # `sum` is for floats. In state of earlier versions, it has the sums of all types.
        dtype = schema[self.column]
        counted = {"sum": Part(pl.Float64(), 0.0), "count": Part(pl.Int64(), 0)}
        if dtype.is_float():
            return counted
        high = {"high": Part(INTEGER, 0)} if wide(dtype) else {}
        return {**counted, "whole": Part(INTEGER, 0), **high}

    def lift(self, schema: Schema) -> Columns:
        value, dtype = pl.col(self.column), schema[self.column]
        count = value.is_not_null().cast(pl.Int64)
        if dtype.is_float():
            return {"sum": value.cast(pl.Float64).fill_null(0.0), "count": count}
        counted = {"sum": pl.lit(0.0), "count": count}
        if isinstance(dtype, pl.Decimal):  # in units of its last digit
            value, dtype = value.cast(pl.Decimal(38, dtype.scale)).to_physical(), INTEGER
        return {**counted, **exact.integers(value, dtype)}

    def merge(self, acc: Columns) -> Columns:
        return {part: sums.sum() for part, sums in acc.items()}

    def extract(self, acc: Columns, schema: Schema) -> pl.Expr:
        mean, dtype = acc["sum"] / acc["count"], schema[self.column]
        if not dtype.is_float():
            high = {"high": acc["high"]} if "high" in acc else {}
            quotient = exact.mean(acc["count"], acc["whole"], **high)
            mean += quotient / 10.0**dtype.scale if isinstance(dtype, pl.Decimal) else quotient
        return pl.when(acc["count"] > 0).then(without_sign(mean, pl.Float64()))

    def for_retractions(self) -> Aggregate:
        return FiniteMean(self.column, where=self.where)


@attrs.frozen
class FiniteMean(Finite, Mean):
    """An exact mean of elements that may be retracted. A retracted infinity, NaN or large number has no effect."""

    def of_finite(self, acc: Columns) -> pl.Expr:
        mean = exact.mean(acc["count"], acc["whole"], acc["rest"], part=acc["part"])
        return pl.when(acc["count"] > 0).then(mean + acc["sum"] / acc["count"])
