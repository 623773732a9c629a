"""Values of keys, which may be text as on the command line, in the type of their column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import polars as pl

from beamlike.errors import UnknownKey
from windowing.time import microseconds

_PARSED: Final[Mapping[type[pl.DataType], Callable[[str], Any]]] = {
    pl.Date: date.fromisoformat,
    pl.Datetime: datetime.fromisoformat,
    pl.Time: time.fromisoformat,
    pl.Duration: lambda text: timedelta(microseconds=microseconds(text)),
    pl.Decimal: Decimal,
    pl.Boolean: lambda text: {"true": True, "false": False}[text.lower()],
    pl.Binary: str.encode,
}
"""For types whose text polars does not convert: the function that parses it, times in ISO 8601."""


def value_of_type(value: Any, dtype: pl.DataType, what: str) -> Any:
    """Returns a value in the type of a column. Raises `UnknownKey`, which calls the column `what`, if it has none."""
    try:
        if isinstance(value, str) and dtype.base_type() in _PARSED:
            value = _PARSED[dtype.base_type()](value)
        if isinstance(value, datetime) and isinstance(dtype, pl.Datetime):
            value = _in_zone(value, dtype)
        if isinstance(value, bool) and dtype != pl.Boolean():
            raise TypeError
        found = pl.Series([value]).cast(dtype, strict=True)
        if isinstance(value, float) and dtype.is_integer() and found[0] != value:
            raise ValueError
    except (pl.exceptions.PolarsError, TypeError, ValueError, KeyError, OverflowError, InvalidOperation):
        raise UnknownKey(f"{what} is {dtype}, and {value!r} is none") from None
    return found[0]


def _in_zone(value: datetime, dtype: pl.Datetime) -> datetime:
    """Returns a time with a zone if the column has one, otherwise without. A time without a zone is in UTC."""
    aware = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return aware if dtype.time_zone else aware.replace(tzinfo=None)
