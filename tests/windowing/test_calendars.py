"""Calendar windows, compared with the time zones of Python, also where clocks skip or repeat midnight."""

from __future__ import annotations

import pickle
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.support.runs import StageRun
from tests.windowing.test_windows import placed
from windowing import CalendarWindows, FixedWindows, WindowFn, Windowing
from windowing.columns import EVENT_TIME
from windowing.time import DAY, GLOBAL_WINDOW_END, MIN_TIME

HOUR = DAY // 24
SECOND = 1_000_000


def at(text: str) -> int:
    """Returns the time in microseconds of a moment in UTC such as `2024-03-31T01:00`."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


ODD_NIGHTS = [
    ("Africa/Cairo", "2010-09-09T21:00"),  # ambiguous: from 00:00 back to 23:00
    ("Africa/Cairo", "2014-05-15T22:00"),  # left out: from 00:00 to 01:00
    ("America/Havana", "2012-11-04T05:00"),  # ambiguous: from 01:00 back to 00:00
    ("America/Sao_Paulo", "2017-10-15T03:00"),  # left out
    ("America/Sao_Paulo", "2018-02-18T02:00"),  # from 00:00 back to 23:00 of the day before
    ("America/St_Johns", "2010-11-07T02:31"),  # from 00:01 back to 23:01 of the day before
    ("America/Toronto", "1919-03-31T04:30"),  # left out: from 23:30 to 00:30
    ("Asia/Beirut", "2015-03-28T22:00"),  # left out
    ("Asia/Kathmandu", "1985-12-31T18:30"),  # a quarter of an hour
    ("Atlantic/Azores", "1992-09-27T01:00"),
    ("Australia/Lord_Howe", "2015-04-04T15:00"),  # half an hour
    ("Europe/Berlin", "2015-03-29T01:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),  # the 30th is no day
    ("Pacific/Kwajalein", "1993-08-21T12:00"),  # the 21st is no day
]
"""Zones, and when their clocks change."""

zones = st.sampled_from(sorted({zone for zone, _ in ODD_NIGHTS} | {"UTC", "Asia/Kolkata"}))


def known(zone: str) -> bool:
    """True if polars knows the zone, too."""
    try:
        return CalendarWindows.days(timezone=zone).timezone == zone
    except ValueError:
        return False


all_zones = st.sampled_from(sorted(filter(known, zoneinfo.available_timezones())))
odd_starts = st.sampled_from([date(2015, 1, 1), date(1970, 1, 1), date(2004, 2, 29), date(1958, 3, 31)])
starts = odd_starts | st.dates(date(1900, 1, 1), date(2100, 1, 1))


@st.composite
def calendars(draw: st.DrawFn, zone: st.SearchStrategy[str] = zones) -> CalendarWindows:
    """Draws calendar windows of all kinds."""
    unit = draw(st.sampled_from(["days", "weeks", "months", "years"]))
    start = draw(starts)
    return CalendarWindows(unit, draw(st.integers(1, 5)), start.replace(day=min(start.day, 28)), draw(zone))


def times_in(first: int, last: int) -> st.SearchStrategy[int]:
    """Draws times between years, in microseconds."""
    return st.integers(at(f"{first:04}-01-01"), at(f"{last:04}-12-31"))


odd_times = st.sampled_from([at(moment) for _, moment in ODD_NIGHTS]).flatmap(
    lambda moment: st.sampled_from([moment, moment - 1]) | st.integers(moment - 3 * DAY, moment + 3 * DAY)
)
clock_times = odd_times | times_in(1940, 2020)
all_times = (
    clock_times
    | st.integers(MIN_TIME, GLOBAL_WINDOW_END - 1)
    | times_in(1, 3)
    | times_in(9997, 9999)
    | st.sampled_from([MIN_TIME, GLOBAL_WINDOW_END - 1])
)


# By definition


def midnight(day: date, zone: str) -> int:
    """Returns the first second in which the clocks show that date, at midnight or, if that is skipped, later."""
    begin = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone))
    second = int(begin.timestamp())
    while datetime.fromtimestamp(second - 1, ZoneInfo(zone)).replace(tzinfo=None) >= begin.replace(
        tzinfo=None
    ):
        second -= 1
    return second * SECOND


def nth_start(windows: CalendarWindows, n: int) -> date:
    """Returns the date on which the nth window from `start` begins."""
    n *= windows.count
    if windows.unit in ("days", "weeks"):
        return windows.start + timedelta(days=n * (7 if windows.unit == "weeks" else 1))
    months = windows.start.year * 12 + windows.start.month - 1 + n * (12 if windows.unit == "years" else 1)
    return windows.start.replace(year=months // 12, month=months % 12 + 1)


def by_definition(windows: CalendarWindows, time: int) -> list[tuple[int, int]]:
    """Returns the windows that contain a time, out of several windows around it."""
    today = datetime.fromtimestamp(time // SECOND, UTC).date()
    length = windows.count * {"days": 1, "weeks": 7, "months": 30.44, "years": 365.25}[windows.unit]
    guess = round((today - windows.start).days / length)
    bounds = [midnight(nth_start(windows, n), windows.timezone) for n in range(guess - 3, guess + 5)]
    return [(start, end) for start, end in pairwise(bounds) if start <= time < end]


@given(calendars(), st.lists(clock_times, max_size=4))
def test_an_element_is_in_the_one_window_between_two_midnights(
    windows: CalendarWindows, times: list[int]
) -> None:
    expected = [(n, *bounds) for n, time in enumerate(times) for bounds in by_definition(windows, time)]
    assert placed(windows, times) == expected
    assert len(expected) == len(times)


def window_of(windows: WindowFn, time: int) -> tuple[int, int]:
    ((_, start, end),) = placed(windows, [time])
    return start, end


@given(
    calendars(zones | all_zones),
    all_times,
)
def test_windows_tile_time(windows: CalendarWindows, time: int) -> None:
    start, end = window_of(windows, time)
    assert MIN_TIME <= start <= time < end <= GLOBAL_WINDOW_END
    assert window_of(windows, start) == window_of(windows, end - 1) == (start, end)
    if start > MIN_TIME:
        assert window_of(windows, start - 1)[1] == start
    if end < GLOBAL_WINDOW_END:
        assert window_of(windows, end)[0] == end
    if start > MIN_TIME and end < GLOBAL_WINDOW_END:
        assert end - start <= windows.span


@given(st.integers(1, 9), st.dates(date(1900, 1, 1), date(2100, 1, 1)), st.lists(all_times, max_size=4))
def test_days_in_utc_are_fixed_windows(n: int, start: date, times: list[int]) -> None:
    times = [time for time in times if at("0003-01-01") < time < at("9998-01-01")]
    fixed = FixedWindows(timedelta(days=n), start - date(1970, 1, 1))
    assert placed(CalendarWindows.days(n, start=start), times) == placed(fixed, times)


@given(calendars(), st.lists(all_times, max_size=4))
def test_a_lazy_frame_gets_the_same_windows(windows: CalendarWindows, times: list[int]) -> None:
    frame = pl.DataFrame({EVENT_TIME: times}, schema={EVENT_TIME: pl.Int64})
    assert_frame_equal(windows.assign(frame.lazy()).collect(), windows.assign(frame))


# Days that are odd


@pytest.mark.parametrize(
    ("zone", "time", "start", "end"),
    [
        # 23 and 25 hours
        ("Europe/Berlin", "2024-03-31T12:00", "2024-03-30T23:00", "2024-03-31T22:00"),
        ("Europe/Berlin", "2024-10-27T12:00", "2024-10-26T22:00", "2024-10-27T23:00"),
        # No midnight: the day begins at 01:00.
        ("America/Sao_Paulo", "2018-11-04T12:00", "2018-11-04T03:00", "2018-11-05T02:00"),
        ("Asia/Beirut", "2015-03-29T12:00", "2015-03-28T22:00", "2015-03-29T21:00"),
        # Two midnights: the first one counts.
        ("America/Havana", "2012-11-04T04:30", "2012-11-04T04:00", "2012-11-05T05:00"),
        # The clocks go back behind midnight, into a date that is over.
        ("America/St_Johns", "2010-11-07T02:30", "2010-11-07T02:30", "2010-11-08T03:30"),
        ("America/St_Johns", "2010-11-07T02:45", "2010-11-07T02:30", "2010-11-08T03:30"),
        # No 30 December
        ("Pacific/Apia", "2011-12-30T09:59", "2011-12-29T10:00", "2011-12-30T10:00"),
        ("Pacific/Apia", "2011-12-30T10:00", "2011-12-30T10:00", "2011-12-31T10:00"),
    ],
)
def test_a_day_is_as_long_as_the_clocks_say(zone: str, time: str, start: str, end: str) -> None:
    assert window_of(CalendarWindows.days(timezone=zone), at(time)) == (at(start), at(end))


@pytest.mark.parametrize(
    ("windows", "time", "start", "end"),
    [
        (CalendarWindows.days(3), "1969-12-31", "1969-12-29", "1970-01-01"),
        (CalendarWindows.days(2, start="2024-05-02"), "2024-05-01", "2024-04-30", "2024-05-02"),
        (CalendarWindows.weeks(), "2024-05-01", "2024-04-29", "2024-05-06"),
        (CalendarWindows.weeks(starts_on="sunday"), "2024-05-01", "2024-04-28", "2024-05-05"),
        (CalendarWindows.weeks(2), "1970-01-01", "1969-12-29", "1970-01-12"),
        (CalendarWindows.weeks(2), "1969-12-28", "1969-12-15", "1969-12-29"),
        (CalendarWindows.months(), "2024-02-29", "2024-02-01", "2024-03-01"),
        (CalendarWindows.months(day=15), "2024-02-14", "2024-01-15", "2024-02-15"),
        (CalendarWindows.months(3), "1969-12-31", "1969-10-01", "1970-01-01"),
        (CalendarWindows.months(3, start="2024-02"), "2024-01-31", "2023-11-01", "2024-02-01"),
        (CalendarWindows.years(), "1969-12-31", "1969-01-01", "1970-01-01"),
        (CalendarWindows.years(month=4, day=6), "2024-04-05", "2023-04-06", "2024-04-06"),
        (CalendarWindows.years(month=3, day=31), "2024-04-01", "2024-03-31", "2025-03-31"),
        (CalendarWindows.years(10, start=2001), "2000-12-31", "1991-01-01", "2001-01-01"),
    ],
)
def test_windows_begin_where_they_are_said_to(
    windows: CalendarWindows, time: str, start: str, end: str
) -> None:
    assert window_of(windows, at(time)) == (at(start), at(end))


def test_times_that_have_no_date_are_in_the_first_and_the_last_window() -> None:
    years = CalendarWindows.years()
    assert window_of(years, MIN_TIME) == window_of(years, at("0002-06-01")) == (MIN_TIME, at("0003-01-01"))
    last = (at("9998-01-01"), GLOBAL_WINDOW_END)
    assert window_of(CalendarWindows.years(2), GLOBAL_WINDOW_END - 1) == last
    assert window_of(CalendarWindows.years(9000), 0) == (0, GLOBAL_WINDOW_END)


def test_a_day_is_over_when_the_clocks_say_so() -> None:
    run = StageRun(Windowing(CalendarWindows.days(timezone="Europe/Berlin"), allowed_lateness="1h"))
    day = at("2024-03-30T23:00"), at("2024-03-31T22:00")
    first_week = [("a", day, day * DAY) for day in range(7)]
    assert len(run.step(first_week, at("1970-03-01")).panes) == 7
    step = run.step([("a", 1, day[0]), ("a", 2, day[1] - 1), ("a", 3, day[1]), ("b", 4, day[0])], day[1] - 1)
    assert (step.panes, step.live, step.late) == ([], 3, 0)
    step = run.step([("a", 5, MIN_TIME), ("a", 6, GLOBAL_WINDOW_END - 1)], day[1])
    assert {(pane.key, tuple(pane.values)) for pane in step.panes} == {("a", (1, 2)), ("b", (4,))}
    assert {pane.window for pane in step.panes} == {day}
    assert (step.live, step.late) == (4, 1)


# Declarations


def test_they_are_the_same_windows_for_all_keys_but_not_of_one_length() -> None:
    windows = CalendarWindows.months(2)
    assert (windows.span, windows.period, windows.merging, windows.columns) == (63 * DAY, None, False, ())
    assert CalendarWindows.days().span >= 25 * HOUR


@given(calendars())
def test_they_are_values(windows: CalendarWindows) -> None:
    assert pickle.loads(pickle.dumps(Windowing(windows))) == Windowing(windows)
    assert attrs.evolve(windows) == windows
    assert eval(repr(windows), {"CalendarWindows": CalendarWindows}) == windows


@pytest.mark.parametrize(
    ("declare", "error", "message"),
    [
        (
            lambda: CalendarWindows.days(timezone="europe/Berln"),
            ValueError,
            "no time zone 'europe/Berln'; did you mean 'Europe/Berlin'",
        ),
        (lambda: CalendarWindows.days(timezone=1), TypeError, "timezone must be a name such as .* not 1"),  # type: ignore[arg-type]
        (
            lambda: CalendarWindows.days(0),
            ValueError,
            "count must be a whole number from 1 to .* days, not 0",
        ),
        (lambda: CalendarWindows.days(10**9), ValueError, "count must be a whole number from 1 to"),
        (lambda: CalendarWindows.years(True), ValueError, "count must be a whole number .*, not True"),
        (lambda: CalendarWindows.days(start="today"), ValueError, "start must be a date such as .* 'today'"),
        (lambda: CalendarWindows.days(start=1970), TypeError, "start must be a date such as .* not 1970"),  # type: ignore[arg-type]
        (
            lambda: CalendarWindows.days(start=datetime(1970, 1, 1)),
            TypeError,
            "start must be a date such as '1970-01-01', not datetime",
        ),
        (
            lambda: CalendarWindows.weeks(starts_on="Mnday"),
            ValueError,
            "'monday', .*, not 'Mnday'; did you mean 'monday'",
        ),
        (lambda: CalendarWindows.months(day=31), ValueError, "day .* 1 to 28, which every month has, not 31"),
        (lambda: CalendarWindows.months(start="1970"), ValueError, "start must be a month such as '1970-01'"),
        (lambda: CalendarWindows("months", 1, "1970-01-31"), ValueError, "begins on day 1 to 28"),
        (lambda: CalendarWindows("years", 1, "2024-02-29"), ValueError, "cannot begin on 29 February"),
        (lambda: CalendarWindows.years(month=13), ValueError, "month must be a whole number from 1 to 12"),
        (lambda: CalendarWindows.years(month=4, day=31), ValueError, "from 1 to 30 in April, not 31"),
        (lambda: CalendarWindows.years(start="1970"), ValueError, "start must be a whole number .* '1970'"),  # type: ignore[arg-type]
        (lambda: CalendarWindows("hours"), ValueError, "unit must be 'days', .* not 'hours'"),
    ],
)
def test_a_calendar_that_does_not_exist_is_refused(
    declare: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"CalendarWindows: .*{message}"):
        declare()
