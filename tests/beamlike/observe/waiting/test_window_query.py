"""The parsing of a user's text for a window or key: a window of the stage, or an error with the reason."""

from __future__ import annotations

import attrs
import pytest

import beamlike as bl
from beamlike.errors import UnknownKey, UnknownWindow
from beamlike.observe.waiting.explain import why
from beamlike.observe.waiting.window_query import parse_key, parse_window
from beamlike.observe.words import length
from beamlike.plan.run_graph import describe_run
from beamlike.records.graph import RunDescription
from stages.facts import from_json, to_json
from tests.support.histories import PLAN, at, history, sliding, stage, waiting
from windowing.time import format_time


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T12:00:00Z/2026-01-31T12:02:00Z",
        "[2026-01-31T12:00:00Z, 2026-01-31T12:02:00Z)",
        "2026-01-31 12:00 / 2026-01-31 12:02",
        "2026-01-31T13:00+01:00/2026-01-31T12:02",
        "2026-01-31T12:00",
        "2026-01-31T12:01:59.999999",
    ],
)
def test_a_window_is_written_as_it_is_shown_or_by_a_time_in_it(text: str):
    found = parse_window(text, "average", PLAN.stages["average"])
    assert (found.start, found.end) == (at(0), at(120))


def test_a_time_in_overlapping_windows_names_the_last_of_them():
    windows = stage((), spacing=sliding(120, 60), windows="SlidingWindows(size=2m, period=1m)")
    found = parse_window("2026-01-31T12:01:30", "n", windows)
    assert (found.start, found.end) == (at(60), at(180))
    assert parse_window("2026-01-31T12:00/2026-01-31T12:02", "n", windows).start == at(0)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("noon", "average", "'noon' is no time; write it as in ISO 8601, such as 2026-01-31T12:00:00Z"),
        ("2026-01-31/2026-02-01/2026-02-02", "average", "is no window; write START/END"),
        ("2026-01-31T12:02/2026-01-31T12:00", "average", "is no window: its end is not after its start"),
        (
            "2026-01-31T12:01/2026-01-31T12:03",
            "average",
            "stage `average` has no window [2026-01-31T12:01:00Z, 2026-01-31T12:03:00Z): its windows are FixedWindows"
            "(size=2m); did you mean [2026-01-31T12:00:00Z, 2026-01-31T12:02:00Z)?",
        ),
        ("2026-01-31T12:01", "sessions", "are Sessions(gap=1m), whose ends do not follow from their starts"),
    ],
)
def test_what_is_no_window_of_the_stage_is_refused(text: str, name: str, message: str):
    with pytest.raises(UnknownWindow) as error:
        why(history(waiting()), stage=name, window=text)
    assert message in str(error.value)


@pytest.mark.parametrize("gap", [1, 60, 3600])
@pytest.mark.parametrize("seconds", [-7200, 0, 30, 100])
def test_a_time_among_sessions_asks_about_a_session_of_that_time(gap: int, seconds: int) -> None:
    sessions = attrs.evolve(PLAN.stages["sessions"], session_gap=gap * 1_000_000)
    plan = attrs.evolve(PLAN, stages={**PLAN.stages, "sessions": sessions})
    time = format_time(at(seconds))
    found = parse_window(time, "sessions", sessions)
    assert (found.start, found.end) == (at(seconds), at(seconds + gap))
    first, then, *_ = why(history(waiting(), plan=plan), stage="sessions", window=time)[1:]
    assert first == f"a session of which {time} is the last element ends {length(gap * 1_000_000)} later"
    assert ("is not over" in then) == (seconds + gap > 43)  # the input watermark


def test_a_time_in_a_gap_between_windows_is_refused():
    windows = stage((), spacing=sliding(60, 90), windows="SlidingWindows(size=1m, period=1m30s)")
    with pytest.raises(UnknownWindow, match=r"no window at .*: there are gaps of 30s between its windows"):
        parse_window("2026-01-31T12:01:20", "n", windows)


def test_of_several_keys_a_text_may_have_commas() -> None:
    """Texts with commas make the bounds of keys ambiguous, so only a text with too few parts is refused."""
    keys = attrs.evolve(stage((), ("city", "user")), key_types=("String", "String"))
    assert parse_key("Paris, Texas, ada", "n", keys) is None
    with pytest.raises(UnknownKey, match=r"has no key 'ada': a key is city \(String\), user \(String\)"):
        parse_key("ada", "n", keys)
    numbers = attrs.evolve(keys, key_types=("Int64", "Int64"))
    with pytest.raises(UnknownKey, match="has no key '1, 2, 3'"):
        parse_key("1, 2, 3", "n", numbers)


def test_a_time_in_a_calendar_window_finds_its_window() -> None:
    p = bl.Pipeline("p")
    watermark = bl.MonotonousTimestamps()
    read = p.read("rows", bl.Rows([{"at": 1}]), timestamp="at", timestamp_unit="s", watermark=watermark)
    months = bl.CalendarWindows.months(timezone="Europe/Berlin")
    read.window_into(months).aggregate(n=bl.count()).named("monthly").write("out", bl.Memory())
    stage = from_json(RunDescription, to_json(describe_run(p.plan()))).stages["monthly"]
    found = parse_window("2026-03-31T21:59:59Z", "monthly", stage)
    assert str(found) == "[2026-02-28T23:00:00Z, 2026-03-31T22:00:00Z)"
    assert parse_window(str(found), "monthly", stage) == found
    with pytest.raises(
        UnknownWindow, match=r"has no window .*; did you mean \[2026-02-28T23:00:00Z, 2026-03-"
    ):
        parse_window("2026-03-05T00:00Z/2026-04-01T00:00Z", "monthly", stage)
