"""Histograms of event times, and the lateness that is learned from them."""

from __future__ import annotations

import json
import random
from functools import reduce
from itertools import count

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.strategies.base import PercentileLateness
from stages.strategies.histogram import BUCKETS, Histogram, histogram, merge_histograms, percentile
from stages.strategies.lateness import HALF_LIFE, Lateness, learn, percentile_watermark, quantile
from windowing.time import MAX_TIME, MIN_TIME

SECOND = 1_000_000
limits = st.sampled_from([MIN_TIME, MAX_TIME])
times = st.integers(-300, 300) | st.integers(-(10**9), 10**9) | st.integers(MIN_TIME, MAX_TIME) | limits
few = st.lists(times, max_size=30)


@st.composite
def many(draw: st.DrawFn) -> list[int]:
    """Draws more distinct times than a histogram has buckets, dense or with gaps, perhaps with outliers."""
    chance = random.Random(draw(st.integers(0, 1000)))
    spread = 10 ** draw(st.integers(2, 15))
    size = draw(st.integers(BUCKETS // 2, 4 * BUCKETS))
    return [chance.randrange(-spread, spread) for _ in range(size)] + draw(st.lists(times, max_size=3))


def of(times: list[int]) -> Histogram:
    return histogram(pl.Series(times, dtype=pl.Int64))


def buckets_at(times: list[int], level: int) -> dict[int, int]:
    counts: dict[int, int] = {}
    for time in times:
        counts[time >> level] = counts.get(time >> level, 0) + 1
    return counts


def learned(batches: list[list[int]], half_life: int = HALF_LIFE) -> Lateness:
    return reduce(lambda known, batch: learn(known, of(batch), half_life), batches, {})


# Histograms


@given(few | many())
def test_a_histogram_has_the_finest_buckets_that_are_few_enough(times: list[int]) -> None:
    found = of(times)
    if not times:
        assert found == {}
        return
    level = next(level for level in range(64) if len(buckets_at(times, level)) <= BUCKETS)
    assert found["level"] == level
    assert dict(zip(found["buckets"], found["counts"], strict=True)) == buckets_at(times, level)
    assert found["buckets"] == sorted(found["buckets"])
    assert found["newest"] == max(times)


@given(st.lists(st.tuples(times, st.integers(1, 9)), max_size=30))
def test_times_may_count_several_times(counted: list[tuple[int, int]]) -> None:
    at = pl.Series([time for time, _ in counted], dtype=pl.Int64)
    counts = pl.Series([count for _, count in counted], dtype=pl.Int64)
    assert histogram(at, counts) == of([time for time, count in counted for _ in range(count)])


@given(few | many(), st.integers(0, 99))
def test_a_percentile_is_the_latest_time_that_no_more_than_so_many_are_before(
    times: list[int], percent: int
) -> None:
    known = of(times)
    found = percentile(known, percent)
    if not times:
        assert found is None
        return
    latest = max(
        time
        for time, before in zip(sorted(times), count(), strict=False)
        if 100 * before <= percent * len(times)
    )
    assert found is not None
    assert found <= latest < found + 2 ** known["level"]


@given(few | many(), few | many(), few | many())
def test_merging_histograms_is_associative_and_commutative_with_nothing_as_identity(
    one: list[int], two: list[int], three: list[int]
) -> None:
    a, b, c = of(one), of(two), of(three)
    merge = merge_histograms
    assert merge(merge(a, b), c) == merge(a, merge(b, c)) == merge(b, c, a) == of([*one, *two, *three])
    assert merge(a, b) == merge(b, a)
    assert merge(a, {}) == a == merge({}, a)


@given(many())
def test_a_histogram_travels_as_json(times: list[int]) -> None:
    assert json.loads(json.dumps(of(times))) == of(times)


# Lateness


def test_lateness_is_how_far_an_element_is_behind_the_newest_of_the_batches_before() -> None:
    """Elements of the same batch do not make each other late.

    batch 1:  10           newest 10
    batch 2:   8 14 12     2 behind; not; not      newest 14
    batch 3:   4  9        10 behind; 5 behind
    """
    known = learned([[10], [8, 14, 12], [4, 9]])
    assert known["newest"] == 14
    assert [quantile(known, share) for share in (0.4, 0.5, 0.6, 0.7, 0.8, 1)] == [0, 2, 2, 5, 5, 10]


def test_nothing_is_known_before_the_second_batch() -> None:
    assert quantile({}, 0.5) is None
    known = learned([[3, 5, 9]])
    assert quantile(known, 0.5) is None
    assert percentile_watermark(known, 0.5) is None
    assert percentile_watermark(learned([[3, 5, 9], [9]]), 0.5) == 9
    assert learn(known, {}, HALF_LIFE) == known


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=40), st.sampled_from([0.01, 0.33, 0.5, 0.99, 1]))
def test_a_quantile_is_not_less_than_the_true_one_and_little_more(behind: list[int], share: float) -> None:
    newest = 10**15
    known = learned([[newest], [newest - late for late in behind]])
    true = next(late for rank, late in enumerate(sorted(behind), 1) if rank >= share * len(behind))
    found = quantile(known, share)
    assert found is not None
    assert true <= found <= true * 33 / 32


@given(st.lists(few.filter(bool), min_size=2, max_size=5))
def test_a_larger_share_has_a_larger_lateness(batches: list[list[int]]) -> None:
    known = learned(batches)
    found = [quantile(known, share / 10) for share in range(1, 11)]
    assert all(value is not None for value in found) or found == [None] * 10
    assert found == sorted(found, key=lambda value: value or 0)


def test_what_was_learned_counts_half_after_so_much_event_time() -> None:
    hour = 3_600 * SECOND
    known = learned([[0], [-SECOND] * 8, [2 * hour], [2 * hour] * 2], half_life=hour)
    # The eight that were late by a second weigh two by now; one that was in time brought the hours, two followed.
    assert dict(known["weights"])[0] == 3
    assert sum(weight for _, weight in known["weights"]) == 5
    assert quantile(known, 0.6) == 0
    assert quantile(known, 0.61) == pytest.approx(SECOND, rel=1 / 32)


def test_what_has_been_forgotten_takes_no_room() -> None:
    known = learned([[0], [-SECOND], [10**15], [10**15]])
    assert known["weights"] == [[0, 2.0]]


@given(st.lists(few, max_size=6))
def test_what_is_known_is_small_and_travels_as_json(batches: list[list[int]]) -> None:
    known = learned(batches)
    assert json.loads(json.dumps(known)) == known
    assert len(known.get("weights", [])) <= 32 * 64


# The strategy that learns its bound


@pytest.mark.parametrize("size", [pytest.param(5, marks=pytest.mark.slow), 40, 400])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_of_steady_delays_about_the_rest_comes_late_and_no_more_in_larger_batches(
    share: float, size: int
) -> None:
    """There are a thousand events a minute; their delays are exponentially distributed, ten seconds on average."""
    chance = random.Random(7)
    events = [number * 60_000 for number in range(20_000)]
    arrivals = sorted((event + chance.expovariate(1 / (10 * SECOND)), event) for event in events)
    strategy = PercentileLateness(share)
    state: Lateness = {}
    watermark, late, judged = MIN_TIME, 0, 0
    for start in range(0, len(arrivals), size):
        batch = [event for _, event in arrivals[start : start + size]]
        if start >= 4_000:  # by then it has learned
            late += sum(event < watermark for event in batch)
            judged += len(batch)
        state = strategy.fold(state, of(batch))
        watermark = max(watermark, strategy.watermark(state, 0))
    assert late / judged <= (1 - share) * 1.2
    if size == 5:
        # Nor is the bound far too large.
        assert late / judged >= (1 - share) * 0.6
