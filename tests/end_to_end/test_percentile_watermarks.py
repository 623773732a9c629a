"""Percentile watermarks: ahead of the watermark by the learned lateness, in order, and as in figure 3-11."""

from __future__ import annotations

from itertools import groupby, pairwise

import polars as pl
import pytest
from hypothesis import given

import beamlike as bl
from beamlike.io.test_stream.times import instant
from stages.progress.splits import SourceState, summarize
from stages.strategies.base import BoundedOutOfOrderness, MonotonousTimestamps, WatermarkStrategy
from tests.support.strategies import us
from tests.support.watermark_strategies import Row, figure_3_11, frame, play, strategies, streams
from windowing.time import MAX_TIME, MIN_TIME

MINUTE = 60_000_000


@given(strategies(with_percentiles=True), streams)
def test_percentile_watermarks_are_in_order_and_never_behind_the_watermark(
    strategy: WatermarkStrategy, stream: list[tuple[list[Row], int]]
) -> None:
    for state in play(strategy, stream)[1:]:
        assert state.percentiles[33] >= state.percentiles[66] >= state.watermark


@given(strategies(with_percentiles=True), streams)
def test_percentile_watermarks_never_go_back(
    strategy: WatermarkStrategy, stream: list[tuple[list[Row], int]]
) -> None:
    for before, after in pairwise(play(strategy, stream)[1:]):
        assert all(after.percentiles[share] >= before.percentiles[share] for share in (33, 66))


@given(streams)
def test_who_declares_none_pays_for_none(stream: list[tuple[list[Row], int]]) -> None:
    for state in play(MonotonousTimestamps(per_split="part"), stream):
        assert state.percentiles == {}
        assert all(split.lateness == {} for split in state.splits.values())


def test_a_percentile_watermark_is_the_newest_less_that_quantile_of_lateness() -> None:
    """Two of the four elements are late, by 10 and by 20."""
    strategy = BoundedOutOfOrderness(us(100), percentiles=(25, 50, 75, 99))
    batches = [[1000], [1000, 990, 980, 1010]]
    state = play(strategy, [([(time, "a", False) for time in batch], 1) for batch in batches])[-1]
    assert state.watermark == 910
    assert state.percentiles == {25: 1010, 50: 1010, 75: 1000, 99: 990}


def test_the_slowest_split_counts_for_percentiles_too() -> None:
    strategy = BoundedOutOfOrderness(us(100), per_split="part", percentiles=(50,), idle_after=us(30))
    both = [(1000, "a", False), (500, "b", False)]
    states = play(strategy, [(both, 1), (both, 1), ([(1000, "a", False)], 30)])
    assert [state.percentiles[50] for state in states[1:]] == [400, 500, 1000]
    assert [state.watermark for state in states[1:]] == [400, 400, 900]


def test_before_anything_has_come_they_are_at_the_beginning_of_time() -> None:
    strategy = MonotonousTimestamps(per_split="part", percentiles=(33,))
    state = SourceState().advance(strategy, {}, 5)
    assert state.percentiles == {33: MIN_TIME}
    assert state.ended().percentiles == {33: MAX_TIME}


@pytest.mark.parametrize("every", [1, 10, 20, 30])
def test_figure_3_11(every: int) -> None:
    """The 33rd percentile passes a window of ten events after four of them, the 66th after seven.

    Processing time is then 12:06, 12:07 and 12:08, however often (seconds) the source is polled.
    """
    strategy = BoundedOutOfOrderness("2m30s", percentiles=(33, 66))
    noon = instant("2026-01-01T12:00:00Z")
    state, come, passed = SourceState(), 0, {}
    step = every * 1_000_000
    for number, arrived in groupby(figure_3_11(), key=lambda event: -(-event[0] // step)):
        times = [time for _, time in arrived]
        come += sum(noon <= time < noon + 2 * MINUTE for time in times)
        rows: list[Row] = [(time, "a", False) for time in times]
        state = state.advance(strategy, summarize(strategy, frame(rows)), number * step)
        for share, time in {**state.percentiles, 100: state.watermark}.items():
            if time >= noon + 2 * MINUTE:
                passed.setdefault(share, (come, round((number * step - noon) / MINUTE)))
    assert passed == {33: (4, 6), 66: (7, 7), 100: (10, 8)}


@pytest.mark.parametrize("share", [33, 66, 90])
def test_about_such_a_share_of_elements_comes_before_its_percentile_has_passed_them(share: int) -> None:
    strategy = BoundedOutOfOrderness("2m30s", percentiles=(share,))
    events = figure_3_11()
    state, passed = SourceState(), 0
    for arrival, time in events:
        passed += state.percentiles.get(share, MIN_TIME) > time
        state = state.advance(strategy, summarize(strategy, frame([(time, "a", False)])), arrival)
    assert passed / len(events) == pytest.approx(1 - share / 100, abs=0.1)


def long_session_among_others(minutes: int) -> bl.TestStream:
    """Returns a stream of one long session, a play a minute, and eight short sessions in each minute."""
    stream = bl.TestStream({"user": str, "at": int})
    for minute in range(minutes):
        users = ["old", *(f"{minute} {number}" for number in range(8))]
        stream = stream.add_elements([{"user": user, "at": 60 * minute} for user in users])
        known = 60 * (minute + 1)
        stream = stream.advance_watermark_to(known, percentiles={66: known})
    return stream


def test_one_old_open_session_does_not_hold_the_percentiles() -> None:
    """Up to the fourth minute, less than a third of the pending plays belong to the old session."""
    stream = long_session_among_others(4)
    plays = bl.Pipeline("p").read("plays", stream, timestamp="at", timestamp_unit="s")
    sessions = (
        plays.window_into(bl.Sessions("90s"), timestamp_combiner=bl.EARLIEST)
        .group_by("user")
        .aggregate(n=bl.count())
        .named("sessions")
    )
    early = bl.AfterWatermark(early=bl.AfterWatermark(percentile=66))
    out = bl.Memory()
    sessions.window_into(bl.FixedWindows("1m"), trigger=early).aggregate(n=bl.count()).write("out", out)
    batches = sessions.pipeline.run().batches
    moved = [batch.stages["sessions"] for batch in batches[1:-1:2]]
    assert [stage.output // MINUTE for stage in moved] == [0, 0, 0, 0]
    assert [stage.percentiles[66] // MINUTE for stage in moved] == [0, 1, 2, 3]
    early_panes = out.frame().filter(pl.col("pane_timing") == "early")
    assert early_panes["n"].to_list() == [8, 8, 8, 1]  # the last is the old one: the input has ended
