"""Numbers read from text: every digit of a decimal is kept, and what does not fit is null."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

import polars as pl

_EXPONENT: Final = r"[eE]"
_MOST: Final = 80  # digits; no type has so many


def decimal_of(text: pl.Expr, dtype: pl.Decimal) -> pl.Expr:
    """The decimal that a String column has as text; null where the type does not have so many digits."""
    return text.map_batches(
        lambda values: read_decimals(values, dtype), return_dtype=dtype, is_elementwise=True
    )


def read_decimals(text: pl.Series, dtype: pl.Decimal) -> pl.Series:
    """The decimals of a String column; null where one is none, or has more digits than the type."""
    powers = text.str.contains(_EXPONENT).fill_null(False).arg_true()
    if len(powers):
        # Few writers use exponents, so that Python may see to these.
        text = text.scatter(powers, [_written_out(value) for value in text.gather(powers)])
    found = text.cast(dtype, strict=False)
    # Polars rounds to the scale.
    finer = text.str.contains(rf"\.\d{{{dtype.scale}}}\d*[1-9]").fill_null(False)
    return (
        found.to_frame("v").select(pl.when(~finer).then("v")).to_series().alias(text.name)
        if finer.any()
        else found
    )


def _written_out(value: str) -> str | None:
    """The number without its exponent; None where it has too many digits for any type, or is none."""
    try:
        number = Decimal(value.strip())
    except InvalidOperation:
        return None
    return f"{number:f}" if number.is_finite() and abs(number.adjusted()) < _MOST else None


def narrow(number: pl.Expr) -> pl.Expr:
    """Float64 as Float32; null where a finite value is beyond its range."""
    cast = number.cast(pl.Float32)
    return pl.when(cast.is_finite() | ~number.is_finite()).then(cast)


def float_of(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The float that a String column has as text; null where it is none, or is beyond the range of the type."""
    number = in_range(text.cast(pl.Float64, strict=False), text)
    return narrow(number) if dtype == pl.Float32 else number


def in_range(number: pl.Expr, text: pl.Expr) -> pl.Expr:
    """Floats without those that are infinite only since the number in `text` is out of their range."""
    return pl.when(~(number.is_infinite() & text.str.contains(r"\d"))).then(number)
