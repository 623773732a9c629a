"""Calendar windows: whole days, weeks, months and years in a time zone."""

from __future__ import annotations

import calendar
import difflib
import zoneinfo
from collections.abc import Iterable
from datetime import date, datetime
from typing import Final

import attrs
import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.time import DAY, GLOBAL_WINDOW_END, MIN_TIME
from windowing.windows import Frame, WindowFn

_UNITS: Final = {"days": 1, "weeks": 7, "months": 31, "years": 366}
"""The maximum number of days of each unit."""
_MOST: Final = {"days": 3_600_000, "weeks": 500_000, "months": 100_000, "years": 9_000}

_EPOCH: Final = date(1970, 1, 1)
_FIRST_DAY: Final = (date(2, 1, 1) - _EPOCH).days
_LAST_DAY: Final = (date(9999, 1, 1) - _EPOCH).days
_FIRST, _LAST = _FIRST_DAY * DAY, _LAST_DAY * DAY
"""The range of times (us) with a date. All times outside of it are in the first or the last window."""

_WEEKDAYS: Final = [name.lower() for name in calendar.day_name]
_SECOND: Final = 1_000_000

_BOUNDS: Final = "__bounds"
_NAIVE: Final = pl.Datetime("us")
_UTC: Final = pl.Datetime("us", "UTC")


def _date(value: date | str) -> date:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"CalendarWindows: start must be a date such as '1970-01-01', not {value!r}"
            ) from None
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeError(f"CalendarWindows: start must be a date such as '1970-01-01', not {value!r}")
    return value


def _whole(name: str, value: object, least: int, most: int, note: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(
            f"CalendarWindows: {name} must be a whole number from {least} to {most}{note}, not {value!r}"
        )
    return value


def _nearest(word: object, words: Iterable[str]) -> str:
    known = {name.lower(): name for name in words}
    near = difflib.get_close_matches(str(word).lower(), known, n=1)
    return f"; did you mean {known[near[0]]!r}?" if near else ""


def _unit(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if value not in _UNITS:
        allowed = ", ".join(map(repr, _UNITS))
        raise ValueError(f"CalendarWindows: unit must be {allowed}, not {value!r}")


def _count(owner: CalendarWindows, attribute: attrs.Attribute[int], value: object) -> None:
    _whole("count", value, 1, _MOST[owner.unit], f" {owner.unit}")


def _zone(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"CalendarWindows: timezone must be a name such as 'Europe/Berlin', not {value!r}")
    try:
        pl.Series([0], dtype=_UTC).dt.convert_time_zone(value)
    except pl.exceptions.ComputeError:
        hint = _nearest(value, sorted(zoneinfo.available_timezones()))
        raise ValueError(f"CalendarWindows: there is no time zone {value!r}{hint}") from None


@attrs.frozen(repr=False)
class CalendarWindows(WindowFn):
    """Windows of whole days, weeks, months or years, which begin at local midnight of a time zone.

    Create them with `days`, `weeks`, `months` or `years`. A day on which the clocks change has 23 or 25 hours. If the
    clocks skip midnight, a window begins when they jump over it; if midnight occurs twice, it begins at the first.
    Windows also exist before `start`. All times before the year 2 are in the first window, and all times after the year
    9998 are in the last one. After the year 2099, standard time is used throughout.

    Raises:
        ValueError: For a time zone or a day that does not exist.

    Example, with the `plays` of `bl.Collection`:
        >>> months = bl.CalendarWindows.months(timezone="Europe/Berlin")
        >>> counts = plays.window_into(months).aggregate(n=bl.count())
        >>> str(counts.select("n", start=bl.window_start()).collect()["start"].item())
        '2025-12-31 23:00:00+00:00'
    """

    unit: str = attrs.field(validator=_unit)
    count: int = attrs.field(default=1, validator=_count)
    start: date = attrs.field(default=_EPOCH, converter=_date, repr=lambda value: repr(value.isoformat()))
    timezone: str = attrs.field(default="UTC", validator=_zone)

    @start.validator
    def _in_every_unit(self, attribute: attrs.Attribute[date], value: date) -> None:
        if self.unit == "months" and value.day > 28:
            raise ValueError(
                f"CalendarWindows: a month begins on day 1 to 28, which all have, not {value.day}"
            )
        if self.unit == "years" and (value.month, value.day) == (2, 29):
            raise ValueError("CalendarWindows: a year cannot begin on 29 February, which not all have")

    @classmethod
    def days(cls, n: int = 1, *, timezone: str = "UTC", start: date | str = _EPOCH) -> CalendarWindows:
        """Creates windows of `n` days.

        Args:
            n: The number of days of a window.
            timezone: The name of a time zone, such as "Europe/Berlin".
            start: A date, such as "1970-01-01", on which one of the windows begins.
        """
        return cls("days", n, start, timezone)

    @classmethod
    def weeks(cls, n: int = 1, *, starts_on: str = "monday", timezone: str = "UTC") -> CalendarWindows:
        """Creates windows of `n` weeks.

        Args:
            n: The number of weeks of a window.
            starts_on: The weekday on which windows begin, such as "monday". One window begins on this weekday of the
                calendar week (Monday to Sunday) of 1970-01-01.
            timezone: The name of a time zone, such as "Europe/Berlin".
        """
        if starts_on not in _WEEKDAYS:
            hint = _nearest(starts_on, _WEEKDAYS)
            raise ValueError(
                f"CalendarWindows: starts_on must be {', '.join(map(repr, _WEEKDAYS))}, not {starts_on!r}{hint}"
            )
        return cls("weeks", n, date.fromisocalendar(1970, 1, _WEEKDAYS.index(starts_on) + 1), timezone)

    @classmethod
    def months(
        cls, n: int = 1, *, day: int = 1, start: str = "1970-01", timezone: str = "UTC"
    ) -> CalendarWindows:
        """Creates windows of `n` months.

        Args:
            n: The number of months of a window.
            day: The day of the month on which windows begin, from 1 to 28.
            start: A month, such as "1970-01", in which one of the windows begins.
            timezone: The name of a time zone, such as "Europe/Berlin".
        """
        _whole("day", day, 1, 28, ", which every month has")
        try:
            first = date.fromisoformat(f"{start}-01")
        except ValueError:
            raise ValueError(
                f"CalendarWindows: start must be a month such as '1970-01', not {start!r}"
            ) from None
        return cls("months", n, first.replace(day=day), timezone)

    @classmethod
    def years(
        cls, n: int = 1, *, month: int = 1, day: int = 1, start: int = 1970, timezone: str = "UTC"
    ) -> CalendarWindows:
        """Creates windows of `n` years.

        Args:
            n: The number of years of a window.
            month: The month in which windows begin.
            day: The day of that month on which windows begin. It must exist in every year.
            start: A year in which one of the windows begins.
            timezone: The name of a time zone, such as "Europe/Berlin".
        """
        _whole("start", start, 1, 9999)
        _whole("month", month, 1, 12)
        # 2001 is no leap year, so all its days exist in every year.
        _whole("day", day, 1, calendar.monthrange(2001, month)[1], f" in {calendar.month_name[month]}")
        return cls("years", n, date(start, month, day), timezone)

    @property
    def span(self) -> int:
        """The maximum length of a window (us). It includes a day, by which clocks are turned back at most."""
        return (self.count * _UNITS[self.unit] + 1) * DAY

    def assign(self, frame: Frame) -> Frame:
        dtype = pl.Struct(dict.fromkeys(WINDOW_COLUMNS, pl.Int64))
        bounds = pl.col(EVENT_TIME).map_batches(self._bounds, return_dtype=dtype, is_elementwise=True)
        fields = [pl.col(_BOUNDS).struct.field(column) for column in WINDOW_COLUMNS]
        return frame.with_columns(bounds.alias(_BOUNDS)).with_columns(fields).drop(_BOUNDS)

    def _bounds(self, times: pl.Series) -> pl.Series:
        """Returns the windows of times, as structs of start and end."""
        # A time is in the window of its local date. But when clocks are turned back over midnight, the earlier date
        # appears again after its window has ended; such times are in the next window.
        known = times.clip(_FIRST, _LAST)
        days = known.cast(_UTC).dt.convert_time_zone(self.timezone).dt.date().cast(pl.Int32)
        rows = pl.DataFrame({"time": known, "day": days})
        rows = rows.join(self._windows(days.unique()), on="day", how="left", maintain_order="left")
        over = pl.col("time") >= pl.col("end")
        start = pl.when(over).then(pl.col("end")).otherwise(pl.col("start"))
        end = pl.when(over).then(pl.col("next_end")).otherwise(pl.col("end"))
        return rows.select(
            pl.when(start <= _FIRST).then(MIN_TIME).otherwise(start).alias(WINDOW_START),
            pl.when(end > _LAST).then(GLOBAL_WINDOW_END).otherwise(end).alias(WINDOW_END),
        ).to_struct(times.name)

    def _windows(self, days: pl.Series) -> pl.DataFrame:
        """Returns the start and end (us) of the window of each day (days since 1970), and the end of the window after
        it.
        """
        in_months = self.unit in ("months", "years")
        first_days = self._months(days) if in_months else self._days(days)
        return pl.DataFrame(
            {"day": days} | {name: self._midnights(first) for name, first in first_days.items()}
        )

    def _days(self, days: pl.Series) -> dict[str, pl.Series]:
        length = self.count * _UNITS[self.unit]
        # In polars, % has the sign of the divisor, so this rounds down for negative numbers, too.
        first = days - (days - (self.start - _EPOCH).days) % length
        return {"start": first, "end": first + length, "next_end": first + 2 * length}

    def _months(self, days: pl.Series) -> dict[str, pl.Series]:
        length = self.count * (12 if self.unit == "years" else 1)
        dates = days.cast(pl.Date)
        month = dates.dt.year() * 12 + (dates.dt.month().cast(pl.Int32) - 1)
        month -= (dates.dt.day() < self.start.day).cast(pl.Int32)
        first = month - (month - (self.start.year * 12 + self.start.month - 1)) % length
        return {
            "start": self._day_of(first),
            "end": self._day_of(first + length),
            "next_end": self._day_of(first + 2 * length),
        }

    def _day_of(self, months: pl.Series) -> pl.Series:
        """Returns the days (since 1970) on which windows begin in these months, which are counted from January of year
        0.
        """
        months = months.clip(12, 9999 * 12 + 11)
        dates = pl.date(pl.col("month") // 12, pl.col("month") % 12 + 1, self.start.day)
        return pl.DataFrame({"month": months}).select(dates.cast(pl.Int32)).to_series()

    def _midnights(self, days: pl.Series) -> pl.Series:
        """Returns the times (us) at which days (since 1970) begin in the time zone."""
        # Two days beyond a limit, a time is beyond the limit in every time zone.
        naive = days.clip(_FIRST_DAY - 2, _LAST_DAY + 2).cast(pl.Date).cast(_NAIVE)
        local = naive.dt.replace_time_zone(self.timezone, ambiguous="earliest", non_existent="null")
        moments = local.cast(pl.Int64)
        left_out = moments.is_null() & days.is_not_null()
        if not left_out.any():
            return moments
        return moments.scatter(left_out.arg_true(), self._jumps(naive.filter(left_out)))

    def _jumps(self, local: pl.Series) -> pl.Series:
        """Returns the times (us) at which the clocks jump over these local times, which do not exist."""
        # Found by bisection over seconds, since clocks jump at whole seconds.
        wanted = local.cast(pl.Int64) // _SECOND
        before, after = wanted - DAY // _SECOND, wanted + DAY // _SECOND
        for _ in range((2 * DAY // _SECOND).bit_length()):
            middle = (before + after) // 2
            moments = (middle * _SECOND).cast(_UTC).dt.convert_time_zone(self.timezone)
            reached = moments.dt.replace_time_zone(None) >= local
            before, after = middle.zip_with(~reached, before), middle.zip_with(reached, after)
        return after * _SECOND
