"""Sums of integers, decimals and durations without intermediate overflow; a result that overflows its type is an error.

So the result does not depend on the order of elements. Integers of up to 64 bits are added in 128 bits. Values of wider
types, and durations, are divided into `high * base + low`, which are added apart; neither sum can overflow.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import attrs
import polars as pl

from stages.errors import ResultError

NARROW: Final[dict[pl.DataType, tuple[int, int]]] = {
    pl.Int64(): (-(2**63), 2**63 - 1),
    pl.UInt64(): (0, 2**64 - 1),
}
"""The types of results whose sums are computed in 128 bits, with their least and greatest value."""

_DIGITS: Final = 38


@attrs.frozen
class Wide:
    """The division of values of a type into two parts, `high * base + low`.

    `base`, and the least and greatest allowed sum, are in units of the physical values: those of a decimal without its
    point, and those of a duration in its time unit.
    """

    dtype: pl.DataType
    base: int
    least: int
    most: int

    @property
    def high(self) -> pl.DataType:
        """The type of the column with the sum of the high parts of values."""
        return pl.Int64() if isinstance(self.dtype, pl.Duration) else pl.Int128()

    def split(self, value: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
        """Returns expressions for the low and the high part of a value; null for null."""
        if isinstance(self.dtype, pl.Decimal):
            low = value % _unit(self.dtype, self.base)
            return low, (value.to_physical() - low.to_physical()) // self.base
        stored = value.to_physical()
        base = pl.lit(self.base, pl.Int64 if isinstance(self.dtype, pl.Duration) else self.dtype)
        return (stored % base).cast(self.dtype), (stored // base).cast(self.high)

    def total(self, low: pl.Series, high: pl.Series, what: str) -> pl.Series:
        """Combines sums of low and high parts. Raises `ResultError`, which names `what`, if one overflows the type."""
        lows = low.to_physical()
        # Retractions can make the low sum negative, which wraps around in an unsigned type.
        if self.dtype == pl.UInt128:
            lows = lows.cast(pl.Int128, wrap_numerical=True)
        parts = pl.DataFrame({"low": lows, "high": high})
        base = pl.lit(self.base, self.high)
        parts = parts.with_columns(pl.col("low") % base, pl.col("high") + pl.col("low") // base)
        least, most = divmod(self.least, self.base), divmod(self.most, self.base)
        at_least = (pl.col("high") > least[0]) | ((pl.col("high") == least[0]) & (pl.col("low") >= least[1]))
        at_most = (pl.col("high") < most[0]) | ((pl.col("high") == most[0]) & (pl.col("low") <= most[1]))
        beyond = parts.filter(~(at_least & at_most))
        if len(beyond):
            lost = beyond["high"][0] * self.base + beyond["low"][0]
            scale = self.dtype.scale if isinstance(self.dtype, pl.Decimal) else 0
            raise _beyond(what, Decimal(lost).scaleb(-scale) if scale else lost, self.dtype)
        return parts.select(self._joined().alias(low.name)).to_series()

    def _joined(self) -> pl.Expr:
        # Both parts get the same sign. Otherwise `high * base` alone may overflow for the least number of the type.
        up = ((pl.col("high") < 0) & (pl.col("low") > 0)).cast(self.high)
        high, low = pl.col("high") + up, pl.col("low") - up * pl.lit(self.base, self.high)
        if isinstance(self.dtype, pl.Decimal):
            units = (_unit(self.dtype, self.base), _unit(self.dtype, 1))
            return high.cast(pl.Decimal(_DIGITS, 0)) * units[0] + low.cast(pl.Decimal(_DIGITS, 0)) * units[1]
        stored = pl.UInt128() if self.dtype == pl.UInt128 else self.high
        return (high.cast(stored) * pl.lit(self.base, stored) + low.cast(stored)).cast(self.dtype)


def wide(dtype: pl.DataType) -> Wide | None:
    """Returns the division of sums of this type; None if they need no division."""
    if isinstance(dtype, pl.Duration):
        return Wide(dtype, 2**32, -(2**63), 2**63 - 1)
    if isinstance(dtype, pl.Decimal):
        return Wide(dtype, 10**19, 1 - 10**_DIGITS, 10**_DIGITS - 1)
    if dtype == pl.Int128:
        return Wide(dtype, 2**64, -(2**127), 2**127 - 1)
    return Wide(dtype, 2**64, 0, 2**128 - 1) if dtype == pl.UInt128 else None


def narrow(sums: pl.Series, dtype: pl.DataType, what: str) -> pl.Series:
    """Casts sums of 128 bits to this type. Raises `ResultError`, which names `what`, if one overflows it."""
    least, most = NARROW[dtype]
    beyond = sums.filter((sums < least) | (sums > most))
    if len(beyond):
        raise _beyond(what, beyond[0], dtype)
    return sums.cast(dtype)


def _unit(dtype: pl.Decimal, stored: int) -> pl.Expr:
    """Returns the decimal literal with this physical value: its digits without the point."""
    return pl.lit(Decimal(stored).scaleb(-dtype.scale), dtype)


def _beyond(what: str, total: Any, dtype: pl.DataType) -> ResultError:
    return ResultError(
        f"{what} is {total}, which {dtype} cannot hold: add up smaller units or fewer elements, or cast the column to "
        "a float before"
    )
