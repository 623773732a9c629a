"""The share of a window that is expected to have arrived: as in a naive model, and less than one unless proved."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.completeness import PROVED, Completeness, Expected
from stages.facts import from_json, to_json
from stages.progress.logs import TimeOrderedLogs
from stages.progress.observed import expected
from stages.progress.splits import SourceState, merge, summarize
from stages.strategies.base import (
    BoundedOutOfOrderness,
    IngressTimestamps,
    MonotonousTimestamps,
    WatermarkStrategy,
)
from stages.strategies.lateness import HALF_LIFE
from tests.support.strategies import us
from tests.support.watermark_strategies import frame
from windowing.time import GLOBAL_WINDOW_END, MAX_TIME, MIN_TIME

Batches = list[list[int]]

# Lateness up to 63 us is learned exactly.
batches = st.lists(st.lists(st.integers(0, 60), max_size=6), max_size=6)
windows = st.tuples(st.integers(0, 60), st.integers(1, 30)).map(lambda one: (one[0], one[0] + one[1]))
shares = st.sampled_from([0.1, 0.5, 0.66, 0.8, 0.9])


class Naive:
    """Learned lateness, an element at a time: the lateness of each, and the newest time with its batch."""

    def __init__(self, stream: Batches) -> None:
        self.newest: int | None = None
        self.learned: list[tuple[int, int]] = []
        for batch in filter(None, stream):
            before = self.newest
            self.newest = max(batch) if before is None else max(before, *batch)
            if before is not None:
                self.learned += [(max(0, before - time), self.newest) for time in batch]

    def weights(self) -> list[tuple[int, float]]:
        assert self.newest is not None
        return [(late, 0.5 ** ((self.newest - then) / HALF_LIFE)) for late, then in self.learned]

    def share(self, start: int, end: int) -> float | None:
        if not self.learned:
            return None
        assert self.newest is not None
        arrived = 0.0
        for late, weight in self.weights():
            until = min(end, max(start, self.newest - late))  # rows of this lateness have arrived up to here
            arrived += weight * (until - start) / (end - start)
        return arrived / (sum(weight for _, weight in self.weights()) + 1)

    def complete_until(self, share: float) -> int:
        """Returns the latest time such that this share of the rows of any earlier time has arrived."""
        assert self.newest is not None
        weights = self.weights()
        total = sum(weight for _, weight in weights) + 1
        for time in range(self.newest, self.newest - 62, -1):
            if sum(weight for late, weight in weights if late <= self.newest - time) >= share * total:
                return time
        return MIN_TIME


def state_of(stream: Batches, strategy: WatermarkStrategy | None = None, tasks: int = 1) -> SourceState:
    """Returns the state after these batches, each summarized by several tasks and merged in any order."""
    strategy, state, chance = strategy or MonotonousTimestamps(), SourceState(), random.Random(tasks)
    for batch in stream:
        parts: Batches = [[] for _ in range(tasks)]
        for time in batch:
            chance.choice(parts).append(time)
        summary: dict[str, dict[str, object]] = {}
        for part in parts:
            rows = frame([(time, "a", False) for time in part])
            summary = merge(strategy, summary, summarize(strategy, rows, observed=True))
        state = state.advance(strategy, summary, 0)
    return state


def known(state: SourceState, **options: bool) -> Completeness:
    return Completeness((expected(MonotonousTimestamps(), state, **options),))


def share_of(completeness: Completeness, start: int, end: int, watermark: int = MIN_TIME) -> float | None:
    share: float | None = completeness.shares(pl.Series([start]), pl.Series([end]), watermark).item()
    return share


@given(batches, windows)
def test_the_share_is_that_of_the_naive_model_and_less_than_one(
    stream: Batches, window: tuple[int, int]
) -> None:
    found = share_of(known(state_of(stream)), *window)
    assert found == (
        None if (want := Naive(stream).share(*window)) is None else pytest.approx(want, abs=1e-9)
    )
    assert found is None or 0 <= found < PROVED


@given(batches, st.integers(2, 5))
def test_tasks_and_a_checkpoint_make_no_difference(stream: Batches, tasks: int) -> None:
    state = state_of(stream)
    assert state_of(stream, tasks=tasks) == state
    assert from_json(SourceState, to_json(state)) == state


@given(batches, shares, st.integers(0, 30))
def test_the_gate_opens_when_a_share_has_arrived_or_the_time_is_over(
    stream: Batches, share: float, within: int
) -> None:
    found = known(state_of(stream)).gate(MAX_TIME - 1, share, within)
    naive = Naive(stream)
    if naive.newest is None:
        assert found == MAX_TIME - 1  # no row has arrived: no window waits
    else:
        assert found == max(naive.complete_until(share), naive.newest - within)


@given(batches, shares, windows)
def test_a_window_before_the_gate_has_at_least_its_share(
    stream: Batches, share: float, window: tuple[int, int]
) -> None:
    completeness = known(state_of(stream))
    if completeness.newest is not None and window[1] <= completeness.sources[0].complete_until(share):
        found = share_of(completeness, *window)
        assert found is not None
        assert found >= share - 1e-12


@given(batches)
def test_the_end_proves_windows_only_if_no_row_was_late(stream: Batches) -> None:
    state = state_of(stream).ended()
    late = any(
        time < max(max(batch) for batch in filter(None, stream[:number]))
        for number, batch in enumerate(stream)
        if any(stream[:number])
        for time in batch
    )
    assert (share_of(known(state), 0, 30, MAX_TIME) == PROVED) == (not late)
    assert share_of(known(state, drains=True), 0, 30, MAX_TIME) != PROVED


def test_a_perfect_watermark_proves_windows_that_are_over() -> None:
    logs = TimeOrderedLogs("part", ["a"])
    state = state_of([[0], [10, 20]], logs)
    completeness = Completeness((expected(logs, state),))
    assert [share_of(completeness, 0, end, 20) == PROVED for end in (20, 21)] == [True, False]
    both = Completeness((*completeness.sources, expected(BoundedOutOfOrderness(us(1)), state)))
    assert share_of(both, 0, 20, 20) != PROVED
    assert IngressTimestamps().perfect
    assert not TimeOrderedLogs("part").perfect
    assert not TimeOrderedLogs("part", ["a"], idle_after="1s").perfect


def test_a_row_behind_the_watermark_ends_all_proofs() -> None:
    logs = TimeOrderedLogs("part", ["a"])
    state = state_of([[20], [10], [60]], logs)  # the log is not in order after all
    assert share_of(Completeness((expected(logs, state),)), 0, 30, 60) != PROVED


def test_rows_before_lateness_was_learned_may_have_been_late() -> None:
    strategy, rows = MonotonousTimestamps(), frame([(50, "a", False)])
    before = SourceState().advance(strategy, summarize(strategy, rows), 0)
    after = before.advance(strategy, summarize(strategy, frame([(60, "a", False)]), observed=True), 0)
    assert after.late
    assert share_of(known(after.ended()), 0, 30, MAX_TIME) != PROVED


def test_the_slowest_source_counts_unless_it_is_idle_or_has_no_rows() -> None:
    fast = Expected(100, [0], [99.0], 100)
    slow, idle = Expected(60, [0], [99.0], 60), Expected(60, [0], [99.0], 60, idle=True)
    silent = Expected(None, [], [], MIN_TIME)
    assert share_of(Completeness((fast,)), 50, 70) == pytest.approx(0.99)
    assert share_of(Completeness((fast, slow)), 50, 70) == pytest.approx(0.99 / 2)
    assert share_of(Completeness((fast, idle, silent)), 50, 70) == pytest.approx(0.99)
    assert share_of(Completeness((idle,)), 50, 70) == pytest.approx(0.99 / 2)
    assert share_of(Completeness((silent,)), 50, 70) is None
    assert Completeness((fast, slow)).newest == 60


def test_the_global_window_has_no_share_until_it_is_proved() -> None:
    state = state_of([[0], [10, 20]])
    assert share_of(known(state), MIN_TIME, GLOBAL_WINDOW_END) is None
    assert share_of(known(state.ended()), MIN_TIME, GLOBAL_WINDOW_END, MAX_TIME) == PROVED
