"""Durations and times: in any notation they become whole microseconds, and are printed as written."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windowing.time import (
    DAY,
    GLOBAL_WINDOW_END,
    LONGEST,
    MAX_TIME,
    MIN_TIME,
    Microseconds,
    day_and_clock,
    format_duration,
    format_time,
    microseconds,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

lengths = st.integers(-(10**17), 10**17)
moments = st.datetimes(timezones=st.just(UTC))


@pytest.mark.parametrize(
    ("written", "us"),
    [
        ("90s", 90_000_000),
        ("1m30s", 90_000_000),
        (" 1 min 30 s ", 90_000_000),
        ("1m30S", 90_000_000),
        ("1h", 3_600_000_000),
        ("1d", DAY),
        ("500ms", 500_000),
        ("7us", 7),
        ("1m1ms", 60_001_000),
        ("1.5s", 1_500_000),
        ("0.1s", 100_000),
        ("0.25d", DAY // 4),
        ("30s 1m", 90_000_000),
        ("-2m", -120_000_000),
        ("- 1m30s", -90_000_000),
        ("0s", 0),
        ("5 minutes", 300_000_000),
        ("1 minute", 60_000_000),
        ("5 min", 300_000_000),
        ("5mins", 300_000_000),
        ("10 seconds", 10_000_000),
        ("10 secs", 10_000_000),
        ("1 Hour 30 Minutes", 5_400_000_000),
        ("2 hrs", 7_200_000_000),
        ("250 milliseconds", 250_000),
        ("9 microseconds", 9),
        ("2 days", 2 * DAY),
        ("1 week", 7 * DAY),
        ("2w", 14 * DAY),
        ("-1 week", -7 * DAY),
        (90, 90_000_000),
        (0.1, 100_000),
        (-1.5, -1_500_000),
        (timedelta(minutes=1, microseconds=1), 60_000_001),
    ],
)
def test_a_duration_is_written_in_many_ways(written: Any, us: int) -> None:
    assert microseconds(written) == us


@pytest.mark.parametrize(
    "text",
    ["", " ", "-", "5", "s", "5 x", "5 ss", "1h-30m", "--5s", "five s", "1.s", "1,5s", ".5s", "1e3s", "PT5M"],
)
def test_text_that_is_no_duration_is_shown_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a duration: .*write for example '90s'") as caught:
        microseconds(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("90", "it has no unit (a number of seconds goes without quotes)"),
        ("1.5", "it has no unit (a number of seconds goes without quotes)"),
        ("5 minuets", "'minuets' is no unit, did you mean 'minutes'?"),
        ("2 months", "'months' has no fixed length (bl.CalendarWindows has windows of months and years)"),
        ("1y", "'y' has no fixed length"),
    ],
)
def test_an_error_says_which_part_of_a_duration_is_none(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(hint)):
        microseconds(text)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_duration_is_finite(number: float) -> None:
    with pytest.raises(ValueError, match=f"must be finite, not {number}"):
        microseconds(number)


@pytest.mark.parametrize("duration", ["99999999d", "-99999999d", 10**400, timedelta.max])
def test_a_duration_ends_before_time_does(duration: Any) -> None:
    with pytest.raises(ValueError, match="a duration must be at most 36500000d, not "):
        microseconds(duration)


@pytest.mark.parametrize("value", [None, True, b"5s", [5], Decimal(5), 5j])
def test_what_is_no_duration_at_all_is_a_type_error(value: Any) -> None:
    with pytest.raises(
        TypeError, match="expected a duration such as '90s', a timedelta or seconds, not"
    ) as it:
        microseconds(value)
    assert repr(value) in str(it.value)


@given(lengths)
def test_a_duration_reads_back_as_it_was_shown(us: int) -> None:
    assert microseconds(format_duration(us)) == us


@given(lengths.filter(bool))
def test_a_shown_duration_has_its_units_from_large_to_small(us: int) -> None:
    text = format_duration(us).removeprefix("-")
    positions = [text.find(unit) for unit in ("d", "h", "s")]
    found = [position for position in positions if position >= 0]
    assert found == sorted(found)
    assert not text.startswith("0")


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0s"),
        (1, "1us"),
        (1_500, "1ms500us"),
        (90_000_000, "1m30s"),
        (-90_000_000, "-1m30s"),
        (DAY + 1, "1d1us"),
        (40 * DAY, "40d"),
    ],
)
def test_durations_are_shown_as_users_write_them(us: int, text: str) -> None:
    assert format_duration(us) == text


@given(st.timedeltas(timedelta(microseconds=-LONGEST), timedelta(microseconds=LONGEST)))
def test_a_timedelta_is_exact(duration: timedelta) -> None:
    assert timedelta(microseconds=microseconds(duration)) == duration


@given(st.integers(-(10**12), 10**12))
def test_a_number_counts_seconds(seconds: int) -> None:
    assert microseconds(seconds) == seconds * 1_000_000 == microseconds(f"{seconds}s")


@given(st.decimals(0, 10**9, places=6))
def test_a_fraction_of_a_second_is_exact_to_the_microsecond(seconds: Decimal) -> None:
    assert microseconds(f"{seconds:f}s") == int(seconds * 1_000_000)


@given(lengths)
def test_what_has_been_converted_stays_as_it_is(us: int) -> None:
    once = microseconds(timedelta(microseconds=us))
    assert microseconds(once) is once
    again = pickle.loads(pickle.dumps(once))
    assert isinstance(again, Microseconds)
    assert microseconds(again) == us


@given(moments)
def test_a_time_reads_back_as_it_was_shown(moment: datetime) -> None:
    us = (moment - EPOCH) // timedelta(microseconds=1)
    text = format_time(us)
    assert text.endswith("Z")
    assert datetime.fromisoformat(text) == moment


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.000001Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1_767_225_600_000_000, "2026-01-01T00:00:00Z"),
        (MIN_TIME, "-inf"),
        (MIN_TIME - 1, "-inf"),
        (MIN_TIME + 1, f"{MIN_TIME + 1}us"),
        (GLOBAL_WINDOW_END - 2, f"{GLOBAL_WINDOW_END - 2}us"),
        (GLOBAL_WINDOW_END - 1, "+inf"),  # the last time in the global window: its panes' timestamp
        (GLOBAL_WINDOW_END, "+inf"),
        (MAX_TIME, "+inf"),
    ],
)
def test_limits_and_years_that_no_calendar_has_are_shown_plainly(us: int, text: str) -> None:
    assert format_time(us) == text


def test_the_end_of_input_closes_even_the_global_window_and_fits_64_bits() -> None:
    #   MIN_TIME [-------------- global window --------------) <- a day -> MAX_TIME
    assert -(2**63) < MIN_TIME < 0 < GLOBAL_WINDOW_END
    assert GLOBAL_WINDOW_END + DAY == MAX_TIME < 2**63


def test_a_time_has_a_day_and_a_clock_unless_no_calendar_has_it() -> None:
    assert day_and_clock(86_400_000_000 + 1_999_999) == ("1970-01-02", "00:00:01")
    assert day_and_clock(-1) == ("1969-12-31", "23:59:59")
    assert [day_and_clock(time) for time in (MIN_TIME, MIN_TIME + 5, MAX_TIME)] == [None, None, None]
