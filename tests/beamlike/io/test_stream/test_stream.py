"""Test streams: their declarations and refusals, and the same steps in process, on shards and on Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamlike.rows.dtypes import type_name
from beamlike.testing import TestStream
from stages.progress.splits import SourceState, announced
from stages.strategies.announced import AnnouncedWatermark, announcement
from stages.strategies.base import Summary
from windowing.time import MIN_TIME, Microseconds

SCHEMA = {"user": str, "at": int, "score": int}
SECOND = 1_000_000
EMPTY = TestStream(SCHEMA)


def play(user: str, at: int | None, score: int = 1) -> dict[str, Any]:
    return {"user": user, "at": at, "score": score}


# Declarations


def test_a_stream_never_changes() -> None:
    one = EMPTY.add_elements([play("a", 1)])
    two = one.advance_watermark_to(5)
    assert [len(stream.steps) for stream in (EMPTY, one, two)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (5, 5 * SECOND),
        (2**53 // SECOND, 2**53 // SECOND * SECOND),
        (-0.5, -SECOND // 2),
        (Microseconds(7), 7),
        ("1970-01-01T00:00:05.000001Z", 5 * SECOND + 1),
        ("1970-01-02", 86_400 * SECOND),
        ("1970-01-01T02:00:00+02:00", 0),
        (datetime(1970, 1, 1, 0, 0, 3), 3 * SECOND),
        (datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC), 3 * SECOND),
    ],
)
def test_times_are_datetimes_text_or_seconds(time: Any, expected: int) -> None:
    (step,) = EMPTY.advance_watermark_to(time).steps
    assert step.summary == announcement(expected)


def test_processing_time_starts_at_zero_and_adds_up() -> None:
    stream = (
        EMPTY.advance_processing_time(10)
        .advance_watermark_to(1)
        .advance_processing_time("1m")
        .advance_processing_time(timedelta(milliseconds=1))
    )
    assert [step.processing_time for step in stream.steps] == [10_000_000, 10_000_000, 70_000_000, 70_001_000]
    assert stream.step(99).processing_time == 70_001_000


def test_a_stream_is_bounded_if_it_was_told_its_end() -> None:
    assert not EMPTY.advance_watermark_to(5).bounded
    assert EMPTY.advance_watermark_to_infinity().bounded


def test_the_percentiles_of_a_stream_are_those_announced_anywhere() -> None:
    stream = EMPTY.advance_watermark_to(1, {90: 2}).advance_watermark_to(3, percentiles={66: 9, 90: 3})
    assert stream.percentiles == (66, 90)
    assert stream.watermark == AnnouncedWatermark(percentiles=(66, 90))


REFUSED: dict[str, tuple[Callable[[TestStream], object], type[Exception], str]] = {
    "watermark that stays": (lambda s: s.advance_watermark_to(10), ValueError, "00:00:10Z, not to .*00:00:10Z"),
    "watermark that goes back": (lambda s: s.advance_watermark_to("1970-01-01"), ValueError, "not to .*00:00Z"),
    "watermark at the end": (lambda s: s.advance_watermark_to(1e13), ValueError, r"advance_watermark_to_infinity"),
    "no time": (lambda s: s.advance_watermark_to("soon"), ValueError, "not a time: 'soon'"),
    "a flag for a time": (lambda s: s.advance_watermark_to(True), TypeError, "not True"),
    "not a number": (lambda s: s.advance_watermark_to(float("nan")), ValueError, "finite, not nan"),
    "no advance": (lambda s: s.advance_processing_time("0s"), ValueError, "more than 0s, not '0s'"),
    "backwards": (lambda s: s.advance_processing_time(-1), ValueError, "more than 0s, not -1"),
    "no duration": (lambda s: s.advance_processing_time("x"), ValueError, "not a duration: 'x'"),
    "percentile behind": (lambda s: s.advance_watermark_to(20, {66: 15}), ValueError, "66 .*00:00:20Z.*00:00:15Z"),
    "percentile back": (lambda s: s.advance_watermark_to(20, {50: 25}), ValueError, "50 .*00:00:30Z.*00:00:25Z"),
    "no percentile": (lambda s: s.advance_watermark_to(20, {100: 25}), ValueError, "1 to 99, not 100"),
    "no percentiles": (lambda s: s.advance_watermark_to(20, 66), TypeError, "a dict such as .66: .* not 66"),
    "time beyond all": (lambda s: s.advance_watermark_to(1e308), ValueError, "finite, not 1e.308"),
    "duration beyond all": (lambda s: s.advance_processing_time(1e308), ValueError, "1e.308 lies outside of time"),
    "clock beyond all": (lambda s: s.advance_processing_time(10**30), ValueError, "out of range after 10+"),
    "unknown column": (lambda s: s.add_elements([{"usr": "a"}]), ValueError, "'usr'.*did you mean 'user'"),
    "wrong type": (lambda s: s.add_elements([play("a", "x")]), TypeError, "column 'at' is Int64, not 'x'"),
    "no dict": (lambda s: s.add_elements([5]), TypeError, "not 5"),
    "no list": (lambda s: s.add_elements({"user": "a"}), TypeError, "list of dicts"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_the_step_named(case: str) -> None:
    build, kind, message = REFUSED[case]
    stream = EMPTY.add_elements([]).advance_watermark_to(10, percentiles={50: 30})
    with pytest.raises(kind, match=f"^TestStream, step 2: .*{message}"):
        build(stream)


TYPES: list[tuple[Any, list[Any], list[Any]]] = [
    (str, ["a", None], [3, b"a"]),
    (int, [3, -(2**63)], [1.7, 1.0, True, "1", 2**63]),
    (float, [1, 1.5, float("nan")], [True, "1"]),
    (bool, [True], [1, "true"]),
    (datetime, [datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)], [5, "2026-01-01", date(2026, 1, 1)]),
    (pl.Date, [date(2026, 1, 1)], [datetime(2026, 1, 1)]),
    (bytes, [b"a"], ["a"]),
    (pl.Int8, [127], [300]),
    (pl.Enum(["a"]), ["a"], ["z"]),
    (pl.List(pl.Int64), [[1, None], []], [[1.5], 1]),
    (pl.Struct({"x": pl.Int64}), [{"x": 1}, {}], [{"x": True}, {"y": 1}]),
]


@pytest.mark.parametrize(("dtype", "right", "wrong"), TYPES)
def test_elements_are_of_the_declared_types_and_nothing_is_converted(
    dtype: Any, right: list[Any], wrong: list[Any]
) -> None:
    stream = TestStream({"v": dtype}).add_elements([{"v": value} for value in right])
    name = type_name(stream.schema()["v"])
    assert stream.steps[0].elements["v"].null_count() == right.count(None)
    for value in wrong:
        told = f"TestStream, step 1: column 'v' is {name}, not {value!r}, in {{'v': {value!r}}}"
        with pytest.raises(TypeError, match=f"^{re.escape(told)}$"):
            stream.add_elements([{"v": value}])


@pytest.mark.parametrize(
    "follow",
    [
        lambda stream: stream.add_elements([]),
        lambda stream: stream.advance_watermark_to(50),
        lambda stream: stream.advance_processing_time(1),
        lambda stream: stream.advance_watermark_to_infinity(),
    ],
)
def test_nothing_follows_infinity(follow: Callable[[TestStream], object]) -> None:
    with pytest.raises(ValueError, match="step 1: nothing can follow"):
        follow(EMPTY.advance_watermark_to_infinity())


# Announced watermarks

times = st.integers(-50, 50)
summaries = st.just({}) | st.builds(announcement, times, st.dictionaries(st.sampled_from([50, 66]), times))
ANNOUNCED = AnnouncedWatermark(percentiles=(50, 66))


@given(summaries, summaries, summaries)
def test_merging_announcements_is_associative_commutative_and_idempotent(
    a: Summary, b: Summary, c: Summary
) -> None:
    merge = ANNOUNCED.merge
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, b) == merge(b, a)
    assert merge(a, a) == merge(a, {}) == a


@given(st.lists(summaries, max_size=5))
def test_no_percentile_goes_back_or_is_behind_the_watermark(said: list[Summary]) -> None:
    state, before = SourceState(), dict.fromkeys((50, 66), MIN_TIME)
    for summary in said:
        state = state.advance(ANNOUNCED, announced(summary), 0)
        assert all(state.percentiles[share] >= max(before[share], state.watermark) for share in (50, 66))
        before = dict(state.percentiles)
