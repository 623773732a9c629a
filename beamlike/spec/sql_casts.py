"""CAST in SQL: the types, and the casts that polars' `cast` does not have or computes otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

import narwhals as nw
import polars as pl

from beamlike.expressions.typed import TypeFault
from beamlike.rows.dtypes import as_narwhals, type_name
from beamlike.spec.sql_numbers import rounded

TYPES: Final[Mapping[str, pl.DataType]] = {
    "TINYINT": pl.Int8(), "SMALLINT": pl.Int16(), "INT": pl.Int32(), "BIGINT": pl.Int64(), "FLOAT": pl.Float32(),
    "DOUBLE": pl.Float64(), "BOOLEAN": pl.Boolean(), "TEXT": pl.String(), "VARCHAR": pl.String(), "CHAR": pl.String(),
    "DATE": pl.Date(), "TIMESTAMP": pl.Datetime("us"), "TIMESTAMPTZ": pl.Datetime("us", "UTC"),
}  # fmt: skip
"""The types that a cast may have, besides DECIMAL."""

TIMES: Final[Mapping[str, Callable[[str], date]]] = {
    "DATE": date.fromisoformat,
    "TIMESTAMP": datetime.fromisoformat,
    "TIMESTAMPTZ": datetime.fromisoformat,
}
"""The types of times, each with a function that reads a literal."""

_FLAGS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_ZONED: Final = r"(Z|[+-]\d\d:?\d\d)$"
_DIGITS: Final = 18
"""The digits after the point that are read of a text, before it is rounded to those of its type."""
_SECOND: Final = 1_000_000


def cast(value: nw.Expr, given: pl.DataType, target: pl.DataType) -> nw.Expr:
    """Returns a value in another type. Text that has another form than the type's fails.

    Numbers are rounded to the digits of the type, halves away from zero. A timestamp and a number are converted by the
    seconds since 1970.

    Raises:
        TypeFault: SQL has no such cast, such as from a date to a number.
    """
    if given in (target, pl.Null()):
        return value.cast(_narwhals(target))
    if isinstance(given, pl.String) and isinstance(target, pl.Decimal):
        exact = pl.Decimal(38, max(target.scale, _DIGITS))
        return rounded(value.cast(_narwhals(exact)), exact, target.scale).cast(_narwhals(target))
    if isinstance(given, pl.String) and type(target) in _OF_TEXT:
        return _OF_TEXT[type(target)](value, target)
    moment = isinstance(given, pl.Datetime | pl.Duration)
    if moment and target.is_numeric():
        ticks = value.dt.timestamp("us") if isinstance(given, pl.Datetime) else value.dt.total_microseconds()
        seconds = ticks // _SECOND if target.is_integer() else ticks / _SECOND
        return seconds.cast(_narwhals(target))
    if isinstance(target, pl.Datetime) and (given.is_numeric() and not isinstance(given, pl.Boolean)):
        ticks = value * _SECOND if given.is_integer() else rounded(value * _SECOND, given, 0)
        return ticks.cast(nw.Int64).cast(_narwhals(target))
    if moment and isinstance(target, pl.Datetime) and isinstance(given, pl.Datetime):
        return value if target.time_zone and given.time_zone else value.cast(_narwhals(target))
    if (_is_time(given) != _is_time(target) and not isinstance(target, pl.String)) or isinstance(
        given, pl.Duration
    ):
        raise TypeFault(f"there is no cast from {type_name(given)} to {type_name(target)}")
    if (
        not given.is_integer()
        and given.is_numeric()
        and (target.is_integer() or isinstance(target, pl.Decimal))
    ):
        value = rounded(value, given, target.scale if isinstance(target, pl.Decimal) else 0)
    return value.cast(_narwhals(target))


def time_literal(text: str, kind: str) -> nw.Expr:
    """Returns the literal for a text such as that of `DATE '2026-01-31'`. A time without a zone is in UTC, if it
    needs one. Raises `ValueError` for other text.
    """
    value = TIMES[kind](text)
    if kind == "TIMESTAMPTZ" and isinstance(value, datetime):
        value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return nw.lit(value, _narwhals(TYPES[kind]))


def _narwhals(dtype: pl.DataType) -> Any:
    return as_narwhals(dtype)


def _is_time(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Date | pl.Datetime | pl.Time | pl.Duration)


# A format is given for each, since polars would guess one from the first row of a batch.


def _date(text: nw.Expr, target: pl.DataType) -> nw.Expr:
    return text.str.to_date("%Y-%m-%d")


def _timestamp(text: nw.Expr, target: pl.DataType) -> nw.Expr:
    if not isinstance(target, pl.Datetime) or target.time_zone is None:
        return _with_clock(text).str.to_datetime("%Y-%m-%d %H:%M:%S%.f")
    whole = _with_clock(text)
    zoned = nw.when(whole.str.contains(_ZONED)).then(whole).otherwise(nw.concat_str(whole, nw.lit("Z")))
    return zoned.str.to_datetime("%+")


def _with_clock(text: nw.Expr) -> nw.Expr:
    """Returns the text of a time with a blank before its hour; that of a day gets the hour."""
    blank = text.str.replace("T", " ", n=1, literal=True)
    return nw.when(text.str.len_chars() > 10).then(blank).otherwise(nw.concat_str(text, nw.lit(" 00:00:00")))


def _flag(text: nw.Expr, target: pl.DataType) -> nw.Expr:
    return text.str.to_lowercase().replace_strict(
        [*_FLAGS, None], [*_FLAGS.values(), None], return_dtype=nw.Boolean
    )


_OF_TEXT: Final[Mapping[type[pl.DataType], Callable[[nw.Expr, pl.DataType], nw.Expr]]] = {
    pl.Date: _date, pl.Datetime: _timestamp, pl.Boolean: _flag,
}  # fmt: skip
