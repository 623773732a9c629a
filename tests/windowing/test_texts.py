"""The text of a declaration is the call that creates it again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import beamlike as bl

DECLARED: dict[str, Any] = {
    'FixedWindows("1m")': bl.FixedWindows("1m"),
    'FixedWindows("1h", offset="30s")': bl.FixedWindows(timedelta(hours=1), "30 seconds"),
    'FixedWindows("1m30s")': bl.FixedWindows(90),
    'FixedWindows("2d")': bl.FixedWindows("2 days"),
    'SlidingWindows("1h", "10m")': bl.SlidingWindows("1h", period="10m"),
    'SlidingWindows("1h", "10m", offset="5m")': bl.SlidingWindows("1h", "10m", "5m"),
    'CumulativeWindows("1d", "1h")': bl.CumulativeWindows("24h", "60m"),
    'Sessions("500ms")': bl.Sessions(0.5),
    "GlobalWindows()": bl.GlobalWindows(),
    "CalendarWindows('days')": bl.CalendarWindows.days(),
    "CalendarWindows('months', count=3, timezone='Europe/Berlin')": bl.CalendarWindows.months(
        3, timezone="Europe/Berlin"
    ),
    'BoundedOutOfOrderness("10s")': bl.BoundedOutOfOrderness("10s"),
    'BoundedOutOfOrderness("10s", idle_after="1m")': bl.BoundedOutOfOrderness("10s", idle_after="1m"),
    "MonotonousTimestamps()": bl.MonotonousTimestamps(),
    "MonotonousTimestamps(per_split='page')": bl.MonotonousTimestamps(per_split="page"),
    'ProcessingTimeLag("5s")': bl.ProcessingTimeLag("5s"),
    "PercentileLateness(0.99)": bl.PercentileLateness(0.99),
    "IngressTimestamps()": bl.IngressTimestamps(),
    'AfterProcessingTime("1m")': bl.AfterProcessingTime("1m"),
    "AfterWatermark(early=AfterCount(3))": bl.AfterWatermark(early=bl.AfterCount(3)),
    "Repeatedly(AfterCount(2)).or_finally(AfterWatermark())": bl.Repeatedly(bl.AfterCount(2)).or_finally(
        bl.AfterWatermark()
    ),
}


@pytest.mark.parametrize("text", DECLARED)
def test_a_declaration_is_written_in_the_words_that_made_it(text: str) -> None:
    assert repr(DECLARED[text]) == text
    assert eval(text, vars(bl)) == DECLARED[text]


def test_a_windowing_shows_its_choices_without_defaults() -> None:
    at = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
    plays = bl.Pipeline("p").read("plays", bl.Rows([{"at": 1}]), **at)
    made = plays.window_into(bl.FixedWindows("1m"), accumulation="accumulating", allowed_lateness="2m")
    assert repr(made.windowing) == (
        'Windowing(windows=FixedWindows("1m"), accumulation=\'accumulating\', allowed_lateness="2m")'
    )
