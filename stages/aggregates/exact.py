"""Exact sums of floats and integers, stored as columns of integers, and their correctly rounded totals and means.

A float is split into integer columns, whose sums are exact. So a sum depends neither on the order of elements, nor on
bundles, nor on elements that were retracted:

    whole   the integer part, if the float is below 2**80 and a multiple of 2**-80
    part    its fraction, in units of 2**-80
    rest    limbs of other floats: (place, limb) pairs, each of the value limb * 2**(20 * place)

`total` and `mean` combine the columns and round once, to the nearest float and ties to even, as IEEE 754 requires of
a single operation.
"""

from __future__ import annotations

import polars as pl

from stages.aggregates.exact_parts import BITS, FRACTION, INTEGER, LIMBS, PLACES
from stages.aggregates.lists import GROUP, merged

Columns = dict[str, pl.Expr]


def split(value: pl.Expr) -> tuple[Columns, pl.Expr]:
    """Returns expressions for the columns `whole` and `part` of floats, and for the remaining float, which they cannot
    hold.

    The remaining float is 0 if the columns hold the value exactly. It is the value itself for infinities, NaN and other
    values that do not fit.
    """
    unit = 2.0 ** (BITS * FRACTION)
    below = (value - value.truncate()) * unit
    fits = (value.abs() < 2.0**80) & (below == below.floor())
    fitting = pl.when(fits).then(value).otherwise(0.0)
    whole = fitting.truncate()
    part = (fitting - whole) * unit
    return {"whole": whole.cast(INTEGER), "part": part.cast(INTEGER)}, value - fitting


def integers(value: pl.Expr, dtype: pl.DataType) -> Columns:
    """Returns expressions for the columns of integers: `whole` and, for integers of 128 bits, `high`; 0 for null."""
    if dtype not in (pl.Int128, pl.UInt128):
        return {"whole": value.cast(INTEGER).fill_null(0)}
    base = pl.lit(2 ** (BITS * PLACES["high"]), dtype)
    columns = {"whole": value % base, "high": value // base}
    return {name: column.cast(INTEGER).fill_null(0) for name, column in columns.items()}


def limbs_of(beyond: pl.Expr) -> pl.Expr:
    """Returns an expression for the column `rest`: the limbs of floats that `whole` and `part` cannot hold. Null, 0,
    infinities and NaN have no limbs.
    """
    return beyond.map_batches(_limbs_of, return_dtype=LIMBS, is_elementwise=True)


def negated(limbs: pl.Expr) -> pl.Expr:
    """Returns an expression for negated limbs. Added to the original limbs, they give 0."""
    place, limb = (pl.element().struct.field(name) for name in ("place", "limb"))
    return limbs.list.eval(pl.struct(place, -limb))


def added(limbs: pl.Expr) -> pl.Expr:
    """Returns an aggregation that adds up the limbs of a group."""
    return merged(limbs, _added)


def total(whole: pl.Expr, part: pl.Expr, rest: pl.Expr) -> pl.Expr:
    """Returns an expression for the sum as a float, from its three columns. It is rounded once."""
    return _rounded({"whole": whole, "part": part}, rest, None)


def mean(count: pl.Expr, whole: pl.Expr, rest: pl.Expr | None = None, **others: pl.Expr) -> pl.Expr:
    """Returns an expression for a sum divided by `count`, rounded once; NaN if the count is 0.

    `others` are further columns of the sum: `part` of floats, or `high` of integers, in units of 2**60.
    """
    return _rounded({"whole": whole, **others}, rest, count)


def _rounded(columns: Columns, rest: pl.Expr | None, count: pl.Expr | None) -> pl.Expr:
    given = {**columns, **({} if rest is None else {"rest": rest})}
    given |= {} if count is None else {"count": count}
    together = pl.struct(expression.alias(name) for name, expression in given.items())
    return together.map_batches(_floats_of, return_dtype=pl.Float64, is_elementwise=True)


def _floats_of(sums: pl.Series) -> pl.Series:
    from stages.aggregates.exact_limbs import rounded_floats  # imports numpy

    return rounded_floats(sums)


def _limbs_of(values: pl.Series) -> pl.Series:
    from stages.aggregates.exact_limbs import split_limbs

    return split_limbs(values)


def _added(items: pl.DataFrame) -> pl.DataFrame:
    sums = items.group_by(GROUP, "place").agg(pl.col("limb").sum())
    return sums.filter(pl.col("limb") != 0).sort(GROUP, "place")
