"""A source's watermark: the least of its splits, with idle and new splits, and the splits that it waits for."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.facts import from_json, to_json
from stages.progress.logs import TimeOrderedLogs
from stages.progress.splits import MOST_SPLITS, BlockedOn, SourceState, announced, merge, summarize
from stages.strategies.base import BoundedOutOfOrderness, MonotonousTimestamps, WatermarkStrategy
from stages.strategies.punctuated import Punctuated
from tests.support.strategies import us
from tests.support.watermark_strategies import SCHEMA, Announced, Row, frame, play, strategies, streams
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

Stream = list[tuple[list[Row], int]]


def rows(**newest: int) -> list[Row]:
    """Returns an element of each of these splits."""
    return [(time, split, False) for split, time in newest.items()]


def watermarks(strategy: WatermarkStrategy, stream: Stream) -> list[int]:
    return [state.watermark for state in play(strategy, stream)[1:]]


# The least of the splits


def test_the_watermark_is_that_of_the_split_that_is_furthest_behind() -> None:
    """Flink's clock of four channels: 2, then 3 as the first moves, still 3, then 4."""
    strategy = MonotonousTimestamps(per_split="part")
    stream = [(rows(a=2, b=4, c=3, d=6), 1), (rows(a=4), 1), (rows(b=7), 1), (rows(c=6), 1)]
    assert watermarks(strategy, stream) == [2, 3, 3, 4]


def test_without_splits_the_newest_of_all_counts() -> None:
    assert watermarks(MonotonousTimestamps(), [(rows(a=2, b=4), 1), (rows(a=3), 1)]) == [4, 4]


def test_a_split_that_is_new_joins_at_the_watermark() -> None:
    """The new split neither moves the source back nor, where it is ahead, moves it forward."""
    strategy = MonotonousTimestamps(per_split="part")
    states = play(strategy, [(rows(a=10), 1), (rows(b=3), 1), (rows(a=20), 1), (rows(b=15), 1)])
    assert [state.watermark for state in states[1:]] == [10, 10, 10, 15]
    assert states[2].splits["b"].watermark == 10
    assert watermarks(strategy, [(rows(a=10), 1), (rows(b=99), 1)]) == [10, 10]


def test_rows_without_a_split_are_a_split() -> None:
    strategy = MonotonousTimestamps(per_split="part")
    states = play(strategy, [([(5, None, False), (9, "a", False)], 1)])
    assert states[-1].splits.keys() == {"null", "a"}
    assert states[-1].watermark == 5


def test_they_are_another_one_than_a_split_of_the_name_null() -> None:
    strategy = MonotonousTimestamps(per_split="part")
    states = play(strategy, [([(5, None, False), (9, "null", False), (7, "'null'", False)], 1)])
    assert {name: split.watermark for name, split in states[-1].splits.items()} == {
        "null": 5,
        "'null'": 9,
        "''null''": 7,
    }
    logs = TimeOrderedLogs("part", expected=["null"])
    assert play(logs, [([(5, None, False)], 1)])[-1].complete is False
    assert play(logs, [([(5, "null", False)], 1)])[-1].complete is True


@pytest.mark.parametrize("dtype", [pl.Int8, pl.Categorical, pl.Boolean, pl.Date])
def test_a_split_may_be_a_column_of_any_simple_type(dtype: type[pl.DataType]) -> None:
    split = pl.Series("part", ["0", "1"]) if dtype == pl.Categorical else pl.Series("part", [0, 1])
    table = pl.DataFrame({EVENT_TIME: [5, 9]}).with_columns(split.cast(dtype))
    state = SourceState().advance(
        MonotonousTimestamps(per_split="part"), summarize(MonotonousTimestamps(per_split="part"), table), 0
    )
    assert sorted(split.watermark for split in state.splits.values()) == [5, 9]


def test_a_column_of_keys_is_no_split() -> None:
    strategy = MonotonousTimestamps(per_split="part")
    many = pl.DataFrame({EVENT_TIME: 0, "part": [str(key) for key in range(MOST_SPLITS + 1)], "mark": False})
    message = (
        "MonotonousTimestamps: the column 'part' has 10001 different values, which is more than the 10000"
    )
    with pytest.raises(ValueError, match=message):
        summarize(strategy, many)
    half = MOST_SPLITS // 2
    parts = [summarize(strategy, part) for part in (many[: half + 1], many[half + 1 :])]
    with pytest.raises(ValueError, match=message):
        SourceState().advance(strategy, merge(strategy, *parts), 0)


# Expected splits


@pytest.mark.parametrize(
    ("expected", "awaited"), [(["a", "b"], "split 'b'"), (2, "1 more of 2 splits")], ids=["names", "count"]
)
def test_there_is_no_watermark_until_all_that_are_expected_have_spoken(
    expected: list[str] | int, awaited: str
) -> None:
    strategy = TimeOrderedLogs("part", expected)
    states = play(strategy, [(rows(a=10), 1), (rows(a=20), 99), (rows(b=12), 1)])
    assert [state.watermark for state in states[1:]] == [MIN_TIME, MIN_TIME, 12]
    assert states[2].blocked_on(strategy, 100) == BlockedOn(MIN_TIME, 99, awaited=awaited)
    assert states[3].blocked_on(strategy, 101) == BlockedOn(12, 0, "b")
    none = SourceState().advance(strategy, {}, 0)
    assert none.blocked_on(strategy, 7) == BlockedOn(
        MIN_TIME, 7, awaited="splits 'a', 'b'" if isinstance(expected, list) else "2 more of 2 splits"
    )


def test_a_dynamic_set_starts_with_whoever_speaks() -> None:
    assert watermarks(TimeOrderedLogs("part"), [(rows(a=10), 1), (rows(b=5), 1)]) == [10, 10]


def test_one_that_is_expected_but_never_speaks_is_left_out_when_idle() -> None:
    strategy = TimeOrderedLogs("part", ["a", "b"], idle_after=us(30))
    states = play(strategy, [(rows(a=10), 1), (rows(a=20), 29), (rows(a=21), 1)])
    assert [state.watermark for state in states[1:]] == [MIN_TIME, MIN_TIME, 21]


# Idleness


def test_a_silent_split_is_left_out_until_it_speaks_again() -> None:
    strategy = MonotonousTimestamps(per_split="part", idle_after=us(30))
    stream = [
        (rows(a=10, b=5), 1),
        (rows(a=20), 29),  # b silent for 29
        (rows(a=25), 1),  # for 30: idle
        (rows(b=7), 1),  # a row arrives, and the split holds again, but nothing moves back
        (rows(a=40), 1),
        (rows(b=30), 1),
    ]
    states = play(strategy, stream)
    assert [state.watermark for state in states[1:]] == [5, 5, 25, 25, 25, 30]
    assert states[2].blocked_on(strategy, 30) == BlockedOn(5, 29, "b")
    assert states[3].blocked_on(strategy, 31) == BlockedOn(25, 0, "a")
    assert not any(state.idle for state in states)


def test_when_all_are_idle_the_watermark_stays_and_the_source_is_idle() -> None:
    strategy = MonotonousTimestamps(per_split="part", idle_after=us(30))
    states = play(strategy, [(rows(a=10, b=5), 1), (rows(a=20), 10), ([], 25), ([], 5), (rows(b=6), 1)])
    assert [state.watermark for state in states[1:]] == [5, 5, 20, 20, 20]
    assert [state.idle for state in states[1:]] == [False, False, False, True, False]
    assert states[4].blocked_on(strategy, 41) is None


def test_a_source_without_splits_is_idle_when_it_is_silent_even_if_it_never_spoke() -> None:
    strategy = MonotonousTimestamps(idle_after=us(30))
    states = play(strategy, [([], 1), ([], 30), (rows(a=3), 1), ([], 29), ([], 1)])
    assert [state.idle for state in states[1:]] == [False, True, False, False, True]
    per_split = MonotonousTimestamps(per_split="part", idle_after=us(30))
    assert [state.idle for state in play(per_split, [([], 1), ([], 30), (rows(a=3), 1)])[1:]] == [
        False,
        True,
        False,
    ]


def test_rows_count_as_speaking_even_if_the_strategy_makes_nothing_of_them() -> None:
    strategy = Punctuated(pl.col("mark"), idle_after=us(30))
    states = play(strategy, [(rows(a=1), 1), (rows(a=1), 30), ([], 30)])
    assert [state.idle for state in states[1:]] == [False, False, True]


def test_a_time_in_which_nobody_looked_is_not_held_against_a_split() -> None:
    """Otherwise, after a night without a run, the first split to be read would go on without the others."""
    strategy = MonotonousTimestamps(per_split="part", idle_after=us(30))
    before = play(strategy, [(rows(a=10, b=5), 1)])[-1]
    batch = summarize(strategy, frame(rows(a=90)))
    assert before.advance(strategy, batch, 1000).watermark == 90
    resumed = before.resumed(1000)
    assert resumed.advance(strategy, batch, 1000).watermark == 5
    assert resumed.advance(strategy, batch, 1000).advance(strategy, {}, 1029).blocked_on(
        strategy, 1029
    ) == BlockedOn(5, 29, "b")
    assert resumed.advance(strategy, batch, 1000).advance(strategy, batch, 1030).watermark == 90


# The clock


def test_it_is_known_when_the_watermark_last_rose() -> None:
    states = play(MonotonousTimestamps(), [([], 5), (rows(a=3), 5), (rows(a=2), 5), (rows(a=4), 5)])
    assert [state.moved for state in states] == [None, None, 10, 10, 20]


@given(strategies(), streams)
def test_at_its_end_a_source_is_at_the_end_of_time_and_stays_there(
    strategy: WatermarkStrategy, stream: Stream
) -> None:
    ended = play(strategy, [*stream, ([], 0)])[-1].ended()
    after = ended.advance(strategy, summarize(strategy, frame(rows(a=5))), 10**6).advance(strategy, {}, 10**9)
    for state in (ended, after):
        assert state.watermark == MAX_TIME
        assert state.percentiles == dict.fromkeys(strategy.percentiles, MAX_TIME)
        assert not state.idle
        assert state.blocked_on(strategy, 10**9) is None


@given(strategies(), streams)
def test_a_state_is_kept_as_json(strategy: WatermarkStrategy, stream: Stream) -> None:
    for state in play(strategy, stream):
        kept = from_json(SourceState, to_json(state, ordered=True))
        assert kept == state
        batch = summarize(strategy, frame(rows(a=5, b=7)))
        assert kept.advance(strategy, batch, 10**6) == state.advance(strategy, batch, 10**6)


@given(strategies(), streams)
def test_a_batch_in_which_nothing_comes_and_no_time_passes_changes_nothing(
    strategy: WatermarkStrategy, stream: Stream
) -> None:
    now = sum(passed for _, passed in stream)
    state = play(strategy, [*stream, ([], 0)])[-1]
    assert state.advance(strategy, {}, now) == state


@given(st.integers(0, 9), st.none() | st.integers(1, 30), streams)
def test_the_watermark_is_the_least_of_those_that_have_spoken_lately(
    bound: int, idle_after: int | None, stream: Stream
) -> None:
    strategy = BoundedOutOfOrderness(
        us(bound), per_split="part", idle_after=None if idle_after is None else us(idle_after)
    )
    states = play(strategy, stream)
    newest: dict[str | None, int] = {}
    spoke: dict[str | None, int] = {}
    now = 0
    for (batch, passed), (before, after) in zip(stream, pairwise(states), strict=True):
        now += passed
        for time, split, _ in batch:
            newest[split] = max(newest.get(split, MIN_TIME + bound), time)
            spoke[split] = now
        lately = [split for split in newest if idle_after is None or now - spoke[split] < idle_after]
        least = min((newest[split] - bound for split in lately), default=MIN_TIME)
        assert after.watermark == max(before.watermark, least)


@given(strategies(), streams)
def test_what_holds_it_is_a_split_that_stands_where_the_watermark_is_or_behind(
    strategy: WatermarkStrategy, stream: Stream
) -> None:
    now = sum(passed for _, passed in stream)
    state = play(strategy, [*stream, ([], 0)])[-1]
    holder = state.blocked_on(strategy, now)
    if holder is not None and not holder.awaited and (state.splits or strategy.per_split is None):
        assert holder.watermark <= state.watermark
        assert 0 <= holder.silent <= now
        assert (holder.split is None) == (strategy.per_split is None)


# A source that announces its watermark


def test_a_source_may_announce_its_watermarks() -> None:
    strategy = Announced(percentiles=(33, 66))
    state = SourceState()
    reached = []
    for facts in ({"watermark": 5, "percentiles": {"33": 9}}, {"watermark": 7}, {"watermark": 6}):
        state = state.advance(strategy, announced(facts), 0)
        reached.append((state.watermark, dict(state.percentiles)))
    assert reached == [(5, {33: 9, 66: 5}), (7, {33: 9, 66: 7}), (7, {33: 9, 66: 7})]


def test_no_rows_have_no_summary() -> None:
    assert summarize(MonotonousTimestamps(), pl.DataFrame(schema=SCHEMA)) == {}


@pytest.mark.parametrize(("oldest", "late"), [(1_000_001, False), (1_000_000, True)])
def test_a_row_is_late_only_if_it_is_behind_the_watermark_to_the_microsecond(oldest: int, late: bool) -> None:
    """Also where the times of a batch are so many that their histogram is coarse."""
    strategy, state = MonotonousTimestamps(), SourceState()
    times = range(oldest, oldest + 7 * 3_000, 7)
    for batch in ([1_000_001], times):
        parts = [
            summarize(strategy, frame([(time, None, False) for time in part]), observed=True)
            for part in (batch[::2], batch[1::2])
        ]
        state = state.advance(strategy, merge(strategy, *parts), 0)
    assert state.late == late
