"""The event time of rows: the columns that can hold it, how it is read, and dead letters for rows without one."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, cast

import attrs
import polars as pl

from beamlike.errors import UnknownName, WrongType, nearest
from beamlike.rows.dtypes import type_name
from beamlike.rows.values import row_json, time_of, time_text
from windowing.columns import EVENT_TIME
from windowing.time import DAY, GLOBAL_WINDOW_END, MIN_TIME, format_duration, format_time

# Microseconds per unit; nanoseconds are divided instead.
TimeUnit = Literal["s", "ms", "us", "ns"]

_UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}
_WHOLE_NUMBER: Final = r"^\s*[+-]?\d+\s*$"
_SHOWN: Final = 80  # characters of an unreadable value in an error

DEAD_LETTERS: Final = pl.Schema({"step": pl.String(), "error": pl.String(), "row": pl.String()})
"""The columns of a dead letter: the step that could not use the row, the reason, and the user's columns as JSON."""

_MOMENT: Final = pl.Datetime("us")
_OUR_DAYS: Final = (30 * 365 * DAY, 130 * 365 * DAY)
"""The range of likely event times (us), from about 2000 to 2100."""


@attrs.frozen
class Future:
    """The limit for event times in the future: `max_future` microseconds after processing time `now` (us)."""

    now: int
    max_future: int

    @property
    def last(self) -> int:
        """The last valid event time (us)."""
        return min(self.now + self.max_future, GLOBAL_WINDOW_END - 1)

    def why(self, what: str, time: pl.Expr) -> pl.Expr:
        """Returns an expression for the reason, as text, why a time (us) is too far in the future; null if it is not.
        The text begins with `what`.
        """
        why = pl.concat_str(
            pl.lit(f"{what} in the future: "),
            time_text(time.cast(_MOMENT), _MOMENT),
            pl.lit(
                f" is more than max_future={format_duration(self.max_future)} after processing time, "
                f"{format_time(self.now)}"
            ),
        )
        return pl.when(time > self.last).then(why)


def check_event_time_type(
    dtype: pl.DataType, unit: str | None, *, column: str = "event_time", step: str | None = None
) -> None:
    """Checks, when a pipeline is declared, that the column can hold event times.

    Accepted: Datetime, Date and ISO 8601 String without a unit; integers, Float64, and String of whole numbers, with a
    unit "s", "ms", "us" or "ns". Raises `WrongType` (a `TypeError`) or, for another unit, `UnknownName` (a
    `ValueError`).
    """
    if unit is not None and unit not in _UNITS:
        units = f"'s', 'ms', 'us' and 'ns'{nearest(unit, _UNITS)}"
        raise UnknownName(f"timestamp_unit={unit!r} is no unit of time; there are {units}", step=step)
    what = f"event time column {column!r} is {type_name(dtype)}"
    if dtype.is_integer() or dtype.is_float():
        if unit is None:
            raise WrongType(f"{what}: give timestamp_unit='s', 'ms', 'us' or 'ns' since 1970", step=step)
        if dtype.is_float() and dtype != pl.Float64:
            raise WrongType(
                f"{what}, in which the times of today are two minutes apart; use Float64 or a whole number where it "
                "is written, or cast it to Float64 in a step before with_watermark or with_timestamps",
                step=step,
            )
    elif isinstance(dtype, pl.Datetime) or dtype == pl.Date:
        if unit is not None:
            raise WrongType(f"{what}, which takes no timestamp_unit={unit!r}: it is for numbers", step=step)
    elif dtype != pl.String:
        expected = "Datetime, Date, ISO 8601 String, or a number with timestamp_unit="
        raise WrongType(f"{what}; expected {expected}", step=step)


def read_event_time(
    lf: pl.LazyFrame, column: str, unit: str | None, future: Future | None = None
) -> pl.LazyFrame:
    """Adds the column EVENT_TIME (Int64, microseconds UTC), read from `column`, which is not changed.

    EVENT_TIME is null if the value is null, is not a time, is outside [MIN_TIME, GLOBAL_WINDOW_END), or is after the
    last valid time of `future`. Times without a zone are UTC. Fractions of a microsecond are rounded down; floats are
    rounded to the nearest microsecond, since most decimal fractions have no exact float. Raises like
    `check_event_time_type`.
    """
    dtype = lf.collect_schema()[column]
    check_event_time_type(dtype, unit, column=column)
    time = _microseconds(pl.col(column), dtype, unit)
    within = (time >= MIN_TIME) & (time <= _last(future))
    return lf.with_columns(pl.when(within).then(time).alias(EVENT_TIME))


def event_times(rows: pl.DataFrame, column: str, unit: str | None, future: Future | None) -> pl.Series | None:
    """Returns the column EVENT_TIME of rows in memory, as `read_event_time` adds it; None if it has a null."""
    times = _read_series(rows.get_column(column), unit)
    if times is None:
        times = rows.select(_read_column(column, rows.collect_schema()[column], unit)).to_series()
    first, last = cast(int | None, times.min()), cast(int | None, times.max())
    if first is None or last is None or times.null_count():
        return None
    # A comparison of all rows takes several times as long as the least and the greatest one.
    return times if first >= MIN_TIME and last <= _last(future) else None


def _read_series(values: pl.Series, unit: str | None) -> pl.Series | None:
    """Returns EVENT_TIME of integers or times that are all within the range of event times, without a query.

    Otherwise None.
    """
    dtype = values.dtype
    if isinstance(dtype, pl.Datetime):
        values, unit = values.to_physical(), dtype.time_unit
    elif dtype != pl.Int64 or unit is None:
        return None
    factor = _UNITS[unit]
    first, last = cast(int | None, values.min()), cast(int | None, values.max())
    if first is None or last is None or values.null_count():
        return None
    if factor == 0:
        return (values // 1_000).alias(EVENT_TIME)
    # Polars multiplies modulo 2**64.
    if first * factor < MIN_TIME or last * factor >= GLOBAL_WINDOW_END:
        return None
    return (values * factor if factor > 1 else values).alias(EVENT_TIME)


@lru_cache(maxsize=256)
def _read_column(column: str, dtype: pl.DataType, unit: str | None) -> pl.Expr:
    """Returns an expression for EVENT_TIME, except for its limits."""
    check_event_time_type(dtype, unit, column=column)
    return _microseconds(pl.col(column), dtype, unit).alias(EVENT_TIME)


def _last(future: Future | None) -> int:
    """Returns the last valid event time (us)."""
    return GLOBAL_WINDOW_END - 1 if future is None else future.last


def _microseconds(value: pl.Expr, dtype: pl.DataType, unit: str | None) -> pl.Expr:
    if isinstance(dtype, pl.Datetime):
        return _scaled(value.to_physical(), _UNITS[dtype.time_unit])
    if dtype == pl.Date:
        return _scaled(value.to_physical().cast(pl.Int64), DAY)
    if unit is None:
        return time_of(value).to_physical()
    if dtype.is_float():
        micros = value * (_UNITS[unit] or 1e-3)
        return micros.round().cast(pl.Int64, strict=False)
    if dtype == pl.String:
        value = value.str.strip_chars()
    return _scaled(value.cast(pl.Int64, strict=False), _UNITS[unit])


def _scaled(number: pl.Expr, factor: int) -> pl.Expr:
    """Converts `number`, which has a unit of `factor` microseconds, to microseconds; null if Int64 cannot hold the
    result.

    Factor 0 means nanoseconds.
    """
    if factor == 0:
        return number // 1_000
    if factor == 1:
        return number
    # Polars multiplies modulo 2**64, so numbers that would overflow are made null first.
    within = number.is_between(-(-MIN_TIME // factor), GLOBAL_WINDOW_END // factor)
    return pl.when(within).then(number) * factor


def split_dead_letters(
    lf: pl.LazyFrame, source_name: str, column: str, unit: str | None = None, future: Future | None = None
) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Splits the result of `read_event_time` into the rows with an event time, and dead letters for the others."""
    schema = lf.collect_schema()
    lost = pl.col(EVENT_TIME).is_null()
    dead = lf.filter(lost).select(
        pl.lit(source_name).alias("step"),
        why_unreadable(column, schema[column], unit, future).alias("error"),
        row_json(schema).alias("row"),
    )
    return lf.filter(~lost), dead


def count_rows(lf: pl.LazyFrame) -> pl.LazyFrame:
    """Counts the rows of the result of `read_event_time` as `rows`, and those without event time as `lost`.

    This is cheaper than creating dead letters, which need every column of the source.
    """
    return lf.select(rows=pl.len().cast(pl.Int64), lost=pl.col(EVENT_TIME).is_null().sum().cast(pl.Int64))


def why_unreadable(
    column: str, dtype: pl.DataType, unit: str | None, future: Future | None = None
) -> pl.Expr:
    """Returns, as text, the reason why a row has no event time."""
    value, what = pl.col(column), f"event time column {column!r} is"
    if dtype != pl.String:
        number = value.to_physical().cast(pl.String)
        out = pl.concat_str(pl.lit(f"{what} out of range: "), number, pl.lit(_unit_text(dtype, unit)))
        no_time = pl.concat_str(pl.lit(f"{what} not a time: "), number)
        why = pl.when(value.is_finite()).then(out).otherwise(no_time) if dtype.is_float() else out
    else:
        quoted = pl.concat_str(pl.lit("'"), value.str.head(_SHOWN), pl.lit("'"))
        number_text = value.str.contains(_WHOLE_NUMBER) if unit is not None else pl.lit(False)
        how = pl.when(number_text).then(pl.lit(" out of range: ")).otherwise(pl.lit(" not a time: "))
        why = pl.concat_str(pl.lit(what), how, quoted)
    if future is not None:
        time = _microseconds(value, dtype, unit)
        within = pl.when(time.is_between(MIN_TIME, GLOBAL_WINDOW_END - 1)).then(time)
        why = pl.coalesce(future.why(what, within), why)
    if unit is not None:
        why = pl.concat_str(why, _in_another_unit(value, unit))
    return pl.when(value.is_null()).then(pl.lit(f"{what} null")).otherwise(why)


def _in_another_unit(value: pl.Expr, unit: str) -> pl.Expr:
    """Returns a hint, as text, if a number is a likely time in a finer unit; otherwise empty text."""
    hint, number = pl.lit(""), value.cast(pl.Float64, strict=False)
    for finer in list(_UNITS)[list(_UNITS).index(unit) + 1 :]:
        micros = number * (_UNITS[finer] or 1e-3)
        time = time_text(pl.when(micros.is_between(*_OUR_DAYS)).then(micros).cast(_MOMENT), _MOMENT)
        why = pl.concat_str(pl.lit(f"; with timestamp_unit={finer!r} it is "), time)
        hint = pl.when(micros.is_between(*_OUR_DAYS)).then(why).otherwise(hint)
    return hint


def _unit_text(dtype: pl.DataType, unit: str | None) -> str:
    if isinstance(dtype, pl.Datetime):
        return f" {dtype.time_unit}"
    return " days" if dtype == pl.Date else f" {unit}" if unit else ""
