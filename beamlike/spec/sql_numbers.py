"""Arithmetic of SQL that differs from Python's: rounding, and division towards zero."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import narwhals as nw
import polars as pl

from beamlike.expressions.tree import elementwise
from beamlike.expressions.typed import of_pairs

_WHOLE: Final = 2.0**52
"""Floats from this magnitude on have no fraction."""


def rounded(value: nw.Expr, dtype: pl.DataType, digits: int) -> nw.Expr:
    """Rounds a number to some digits after the point, halves away from zero; polars rounds them to the even number."""
    if isinstance(dtype, pl.Decimal):
        return _rounded_decimal(value, dtype, digits)
    if not dtype.is_float():
        return value
    value, scale = value.cast(nw.Float64), 10**digits
    scaled = value * scale if digits else value
    even = scaled.round()
    # Twice the difference is 1, or -1, only for a half that was rounded towards zero.
    towards_zero = ((scaled - even).abs() * 2 == 1) & (((scaled - even) > 0) == (scaled > 0))
    away = nw.when(towards_zero).then(even + (scaled - even) * 2).otherwise(even)
    # polars multiplies by a reciprocal, so the last digits of the quotient need rounding.
    near = (away / scale).round(digits) if digits else away
    return nw.when(scaled.abs() < _WHOLE).then(near).otherwise(value)


def _rounded_decimal(value: nw.Expr, dtype: pl.Decimal, digits: int) -> nw.Expr:
    if digits >= dtype.scale:
        return value
    unit = Decimal(1).scaleb(-digits)
    raised = value.abs() + nw.lit(unit / 2)
    cut = raised - raised % nw.lit(unit)
    signed = nw.when(value < 0).then(-cut).otherwise(cut)
    return signed.cast(nw.Decimal(38, digits))


def remainder(left: nw.Expr, right: nw.Expr, *, floats: bool) -> nw.Expr:
    """Returns what a division towards zero leaves, with the sign of the dividend; NULL for a division by zero."""
    right = _not_zero(right)
    if floats:
        return elementwise(_pair(left, right), _float_remainder, nw.Float64)
    rest = left % right
    return nw.when((rest != 0) & ((rest < 0) != (left < 0))).then(rest - right).otherwise(rest)


def whole_quotient(left: nw.Expr, right: nw.Expr, *, floats: bool) -> nw.Expr:
    """Returns the quotient, rounded towards zero: `-7 DIV 2` is -3; NULL for a division by zero."""
    if floats:
        exact = left - remainder(left, right, floats=True)
        return (exact / _not_zero(right)).round()
    right = _not_zero(right)
    quotient, rest = left // right, left % right
    return nw.when((rest != 0) & ((left < 0) != (right < 0))).then(quotient + 1).otherwise(quotient)


def _not_zero(divisor: nw.Expr) -> nw.Expr:
    # Not around the quotient: it is computed for all rows, and fails for a Decimal and zero.
    return nw.when(divisor != 0).then(divisor)


def _pair(left: nw.Expr, right: nw.Expr) -> nw.Expr:
    return nw.struct(left.cast(nw.Float64).alias("x"), right.cast(nw.Float64).alias("y"))


def _float_remainder(pair: pl.Series) -> pl.Series:
    import numpy as np

    return of_pairs(pair, np.fmod)
