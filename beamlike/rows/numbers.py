"""Conversion of text to numbers, without a loss of decimal digits. Text that does not fit the type becomes null."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

import polars as pl

_EXPONENT: Final = r"[eE]"
_MOST: Final = 80  # digits; more than any type has


def decimal_of(text: pl.Expr, dtype: pl.Decimal) -> pl.Expr:
    """Reads the decimals in a String column; null if the type does not have so many digits."""
    return text.map_batches(
        lambda values: read_decimals(values, dtype), return_dtype=dtype, is_elementwise=True
    )


def read_decimals(text: pl.Series, dtype: pl.Decimal) -> pl.Series:
    """Reads the decimals in a String column; null for invalid text, and for more digits than the type has."""
    powers = text.str.contains(_EXPONENT).fill_null(False).arg_true()
    if len(powers):
        # Exponents are rare, so they are converted in Python.
        text = text.scatter(powers, [_written_out(value) for value in text.gather(powers)])
    found = text.cast(dtype, strict=False)
    # Polars would round to the scale.
    finer = text.str.contains(rf"\.\d{{{dtype.scale}}}\d*[1-9]").fill_null(False)
    return (
        found.to_frame("v").select(pl.when(~finer).then("v")).to_series().alias(text.name)
        if finer.any()
        else found
    )


def _written_out(value: str) -> str | None:
    """Returns the number without its exponent; None if it is invalid, or has too many digits for any type."""
    try:
        number = Decimal(value.strip())
    except InvalidOperation:
        return None
    return f"{number:f}" if number.is_finite() and abs(number.adjusted()) < _MOST else None


def narrow(number: pl.Expr) -> pl.Expr:
    """Converts Float64 to Float32; null if a finite value is out of range."""
    cast = number.cast(pl.Float32)
    return pl.when(cast.is_finite() | ~number.is_finite()).then(cast)


def float_of(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Reads the floats in a String column; null for invalid text, and for numbers out of range."""
    number = in_range(text.cast(pl.Float64, strict=False), text)
    return narrow(number) if dtype == pl.Float32 else number


def in_range(number: pl.Expr, text: pl.Expr) -> pl.Expr:
    """Replaces by null the floats that are infinite only because the number in `text` is out of range."""
    return pl.when(~(number.is_infinite() & text.str.contains(r"\d"))).then(number)
