"""Arithmetic of SQL that differs from Python's: rounding, and division towards zero.

The functions are computed over whole columns, since as expressions they would contain their arguments many times.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

import narwhals as nw
import polars as pl

from beamlike.expressions.tree import elementwise
from beamlike.expressions.typed import of_pairs
from beamlike.rows.dtypes import as_narwhals

_WHOLE: Final = 2.0**52
"""Floats from this magnitude on have no fraction."""


def rounded(value: nw.Expr, dtype: pl.DataType, digits: int) -> nw.Expr:
    """Rounds a number to some digits after the point, halves away from zero; polars rounds them to the even number."""
    if isinstance(dtype, pl.Decimal) and digits < dtype.scale:
        return elementwise(value, partial(_rounded_decimal, digits), nw.Decimal(38, digits))
    if not dtype.is_float():
        return value
    return elementwise(value.cast(nw.Float64), partial(_rounded_float, digits), nw.Float64)


def _rounded_float(digits: int, numbers: pl.Series) -> pl.Series:
    value, scale = pl.lit(numbers), 10**digits
    scaled = value * scale
    even = scaled.round()
    # Twice the difference is 1, or -1, only for a half that was rounded towards zero.
    towards_zero = ((scaled - even).abs() * 2 == 1) & (((scaled - even) > 0) == (scaled > 0))
    away = pl.when(towards_zero).then(even + (scaled - even) * 2).otherwise(even)
    # polars multiplies by a reciprocal, so the last digits of the quotient need rounding.
    near = (away / scale).round(digits) if digits else away
    return pl.select(pl.when(scaled.abs() < _WHOLE).then(near).otherwise(value)).to_series()


def _rounded_decimal(digits: int, numbers: pl.Series) -> pl.Series:
    value, unit = pl.lit(numbers), Decimal(1).scaleb(-digits)
    raised = value.abs() + pl.lit(unit / 2)
    cut = raised - raised % pl.lit(unit)
    signed = pl.when(value < 0).then(-cut).otherwise(cut)
    return pl.select(signed.cast(pl.Decimal(38, digits))).to_series()


def remainder(left: nw.Expr, right: nw.Expr, dtype: pl.DataType) -> nw.Expr:
    """Returns what a division towards zero leaves, with the sign of the dividend; NULL for a division by zero.

    `dtype` is the type of the result: Int64, Float64 or a decimal.
    """
    return _divided(left, right, dtype, _float_remainder if dtype.is_float() else _remainder)


def whole_quotient(left: nw.Expr, right: nw.Expr, dtype: pl.DataType) -> nw.Expr:
    """Returns the quotient, rounded towards zero: `-7 DIV 2` is -3; NULL for a division by zero."""
    return _divided(left, right, dtype, _float_quotient if dtype.is_float() else _quotient)


def _divided(
    left: nw.Expr, right: nw.Expr, dtype: pl.DataType, function: Callable[[pl.Series], pl.Series]
) -> nw.Expr:
    wide: Any = as_narwhals(pl.Int128() if dtype.is_integer() else dtype)
    pair = nw.struct(left.cast(wide).alias("x"), right.cast(wide).alias("y"))
    result: Any = as_narwhals(dtype)
    return elementwise(pair, function, wide).cast(result)


def _remainder(pair: pl.Series) -> pl.Series:
    x, y = _operands(pair)
    rest = x % y
    return _result(pair, pl.when(_differ(rest, x, y)).then(rest - y).otherwise(rest))


def _quotient(pair: pl.Series) -> pl.Series:
    x, y = _operands(pair)
    return _result(pair, pl.when(_differ(x % y, x, y)).then(x // y + 1).otherwise(x // y))


def _operands(pair: pl.Series) -> tuple[pl.Expr, pl.Expr]:
    """Returns the dividend and the divisor, which is null if it is 0: a Decimal fails there."""
    x, y = (pl.lit(pair.struct.field(name)) for name in ("x", "y"))
    return x, pl.when(y != 0).then(y)


def _differ(rest: pl.Expr, x: pl.Expr, y: pl.Expr) -> pl.Expr:
    """True where a division that rounds down has another result than one that rounds towards zero."""
    return (rest != 0) & ((x < 0) != (y < 0))


def _result(pair: pl.Series, found: pl.Expr) -> pl.Series:
    return pl.select(found.cast(pair.struct.field("x").dtype)).to_series()


def _float_remainder(pair: pl.Series) -> pl.Series:
    import numpy as np

    found = of_pairs(pair, np.fmod)
    return pl.select(pl.when(pl.lit(pair.struct.field("y")) != 0).then(found)).to_series()


def _float_quotient(pair: pl.Series) -> pl.Series:
    exact = pair.struct.field("x") - _float_remainder(pair)
    return (exact / pair.struct.field("y")).round()
