"""The variance and standard deviation of a column."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import attrs
import numpy as np
import polars as pl

from stages.aggregates import limbs
from stages.aggregates.base import OfNumbers, Part, Schema
from stages.aggregates.lists import GROUP, ITEM, merged

_SUMS: Final = "sums"
_LIST: Final = pl.List(pl.Int64())
_DIGITS: Final = 18


class _Spread(OfNumbers):
    """The base class of `Var` and `Std`. The accumulator is a list with sums of values and squares (`limbs`), or empty.

    Nulls are ignored.
    """

    subtractable: ClassVar[bool] = True
    power: ClassVar[int]
    """The power of the unit of the column in the unit of the result."""

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return pl.Float64()

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {_SUMS: Part(_LIST, ())}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        return {_SUMS: self._single(_lifted, schema)}

    def negated(self, lifted: dict[str, pl.Expr], schema: Schema) -> dict[str, pl.Expr]:
        return {_SUMS: self._single(_undone, schema)}

    def _single(self, lift: Callable[[pl.Series], pl.Series], schema: Schema) -> pl.Expr:
        value = _exact(pl.col(self.column), schema[self.column])
        lists = value.map_batches(lift, return_dtype=_LIST, is_elementwise=True)
        return pl.when(value.is_not_null()).then(lists).otherwise(pl.lit([], _LIST))

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {_SUMS: merged(acc[_SUMS], _added)}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        found = acc[_SUMS].map_batches(self.of_sums, return_dtype=pl.Float64, is_elementwise=True)
        return found / 10.0 ** (self.power * (_digits(schema[self.column]) or 0))

    def of_sums(self, sums: pl.Series) -> pl.Series:
        """Returns the result of each accumulator; null for fewer than two values."""
        nonempty = sums.list.len() > 0
        rows = _rows(sums.filter(nonempty).list.explode(keep_nulls=False, empty_as_null=False))
        number, power = limbs.variance(rows)
        found = pl.Series(self.of_variance(number, power))
        several = pl.Series(limbs.counts(rows) > 1)
        nothing = pl.Series([None], dtype=pl.Float64)
        results = pl.repeat(None, len(sums), dtype=pl.Float64, eager=True)
        return results.scatter(nonempty.arg_true(), found.zip_with(several, nothing))

    def of_variance(self, number: limbs.Floats, power: limbs.Ints) -> limbs.Floats:
        """Returns the results for the variances number * 2**power."""
        raise NotImplementedError


@attrs.frozen
class Var(_Spread):
    """The sample variance of a column, divided by the number of values minus 1; null for fewer than two values."""

    power: ClassVar[int] = 2

    def of_variance(self, number: limbs.Floats, power: limbs.Ints) -> limbs.Floats:
        with np.errstate(over="ignore"):  # the result is infinite then
            return np.ldexp(number, power)


@attrs.frozen
class Std(_Spread):
    """The sample standard deviation of a column, the square root of `Var`; null for fewer than two values."""

    power: ClassVar[int] = 1

    def of_variance(self, number: limbs.Floats, power: limbs.Ints) -> limbs.Floats:
        return np.ldexp(np.sqrt(number), power // 2)


def _exact(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Returns numbers as integers of 64 bits if they are exact as such, else as floats; decimals in units of their last
    digit.
    """
    if _digits(dtype) is not None:
        return value.to_physical().cast(pl.Int64)
    if dtype == pl.Boolean or (dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128)):
        return value if dtype == pl.UInt64 else value.cast(pl.Int64)
    return value.cast(pl.Float64)


def _digits(dtype: pl.DataType) -> int | None:
    """Returns the digits after the point of decimals that fit into 64 bits; None for any other type."""
    return dtype.scale if isinstance(dtype, pl.Decimal) and dtype.precision <= _DIGITS else None


def _lifted(values: pl.Series) -> pl.Series:
    return _lists(_limbs(values))


def _undone(values: pl.Series) -> pl.Series:
    return _lists(limbs.negated(_limbs(values)))


def _limbs(values: pl.Series) -> limbs.Ints:
    # Not in the expression: polars leaves `fill_null` out where it knows that the result of a null is not used.
    known = values.fill_null(0).to_numpy()
    return (limbs.of_integers if values.dtype.is_integer() else limbs.of_numbers)(known)


def _lists(rows: limbs.Ints) -> pl.Series:
    return pl.Series(rows.ravel()).reshape((len(rows), limbs.WIDTH)).arr.to_list()


def _rows(flat: pl.Series) -> limbs.Ints:
    rows: limbs.Ints = flat.to_numpy().reshape(-1, limbs.WIDTH)
    return rows


def _added(items: pl.DataFrame) -> pl.DataFrame:
    if items.is_empty():
        return items
    groups = items[GROUP].gather_every(limbs.WIDTH).rle().struct.unnest()
    starts = groups["len"].cum_sum().to_numpy() - groups["len"].to_numpy()
    sums = limbs.added(_rows(items[ITEM]), starts.astype(np.int64))
    return pl.DataFrame({GROUP: np.repeat(groups["value"].to_numpy(), limbs.WIDTH), ITEM: sums.ravel()})
