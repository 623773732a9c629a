"""Assertions on panes: matches, and the messages of failures."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.testing import TestStream, assert_panes


def moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def pane(user: str, start: int, score: int, timing: str = "on_time") -> dict[str, Any]:
    return {"window_start": moment(start), "user": user, "score": score, "pane_timing": timing}


PANES = [pane("a", 0, 3, "early"), pane("a", 0, 5), pane("b", 10, 3)]


@pytest.mark.parametrize("actual", [PANES, pl.DataFrame(PANES), tuple(PANES)])
def test_panes_are_compared_in_any_order_on_the_columns_that_are_named(actual: Any) -> None:
    assert_panes(actual, [{"user": "b"}, {"user": "a", "score": 5}, {"score": 3, "window_start": 0}])


@pytest.mark.parametrize(
    "time", [10, 10.0, "1970-01-01T00:00:10Z", moment(10), datetime(1970, 1, 1, 0, 0, 10)]
)
def test_times_are_written_as_in_a_test_stream(time: Any) -> None:
    assert_panes(PANES[2:], [{"window_start": time}])


def test_an_expected_pane_that_fits_several_leaves_the_others_theirs() -> None:
    assert_panes(PANES, [{"score": 3}, {"user": "a"}, {"user": "a", "pane_timing": "early"}])
    with pytest.raises(AssertionError, match="2 panes are as expected, 1 missing, 1 unexpected"):
        assert_panes(PANES, [{"user": "b"}, {"user": "b"}, {"user": "a"}])


def test_a_failure_shows_what_is_missing_what_is_too_much_and_what_differs() -> None:
    with pytest.raises(AssertionError) as failure:
        assert_panes(PANES, [{"user": "a", "score": 3}, {"window_start": 10, "user": "a", "score": 5}])
    assert str(failure.value).splitlines() == [
        "1 panes are as expected, 1 missing, 2 unexpected",
        "  missing:    window_start=10, user='a', score=5",
        "    nearest has window_start=1970-01-01T00:00:00Z, expected 1970-01-01T00:00:10Z",
        "  unexpected: window_start=1970-01-01T00:00:00Z, user='a', score=5, pane_timing='on_time'",
        "  unexpected: window_start=1970-01-01T00:00:10Z, user='b', score=3, pane_timing='on_time'",
    ]


def test_no_panes_are_expected_with_an_empty_list() -> None:
    assert_panes([], [])
    with pytest.raises(AssertionError, match="3 unexpected"):
        assert_panes(PANES, [])


def test_a_column_that_no_pane_has_is_no_difference_but_an_error() -> None:
    with pytest.raises(bl.PlanError, match=r"no column 'pane_time'.*did you mean 'pane_timing'"):
        assert_panes(PANES, [{"pane_time": "early"}])


def test_an_unknown_column_is_named_if_there_is_not_one_pane() -> None:
    with pytest.raises(bl.PlanError, match=r"no column 'pane_time'.*did you mean 'pane_timing'"):
        assert_panes(pl.DataFrame(PANES).clear(), [{"pane_time": "early"}])
    with pytest.raises(AssertionError, match="1 missing"):
        assert_panes([], [{"pane_time": "early"}])


def test_nan_is_nan() -> None:
    nan = float("nan")
    assert_panes([{"mean": nan, "all": [1.0, nan]}], [{"mean": float("nan"), "all": [1, -nan]}])
    with pytest.raises(AssertionError, match=r"nearest has mean=1\.0, expected nan"):
        assert_panes([{"mean": 1.0}], [{"mean": nan}])


@pytest.mark.parametrize("wrong", [{"user": "a"}, [3], None, "user", 5])
def test_what_is_no_list_of_panes_is_a_type_error_that_says_what_is_expected(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"assert_panes: expected is a list of dicts such as \[\{'user'"):
        assert_panes(PANES, wrong)
    with pytest.raises(TypeError, match=r"assert_panes: actual is .* bl.Memory, a list of dicts such as"):
        assert_panes(wrong, [])


def test_the_panes_of_a_sink_in_memory() -> None:
    p, out = bl.Pipeline("example"), bl.Memory()
    stream = (
        TestStream({"user": str, "at": datetime, "score": int})
        .add_elements(
            [{"user": "a", "at": moment(1), "score": 1}, {"user": "a", "at": moment(2), "score": 2}]
        )
        .advance_watermark_to(10)
    )
    plays = p.read("plays", stream, timestamp="at")
    early = bl.AfterWatermark(early=bl.AfterCount(2))
    windowed = plays.window_into(bl.FixedWindows("10s"), trigger=early, accumulation="accumulating")
    windowed.group_by("user").aggregate(score=bl.sum("score")).write("out", out)
    p.run()
    assert_panes(
        out,
        [
            {"window_start": 0, "user": "a", "score": 3, "pane_timing": "early"},
            {"window_start": 0, "user": "a", "score": 3, "pane_timing": "on_time"},
        ],
    )
