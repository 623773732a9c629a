"""The bucket of a state row does not affect results, and a step reads and writes only the buckets that it must."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_series_equal

from stages.aggregates.builtin import Collect, Count, First, Last
from stages.aggregates.combine_fn import Combine
from stages.aggregates.totals import Sum
from stages.operator import MAIN
from stages.snapshot import restore, save
from stages.state.buckets import BUCKET, TIMES, Buckets
from stages.state.due_soon import BUFFER
from stages.state.index import Index
from stages.state.store import ENCODING
from stages.state_tables import Spread
from stages.strategies.histogram import Histogram
from tests.support.bucket_sizes import PATIENT, SIZES, sizes
from tests.support.counting_store import CountingStore
from tests.support.examples import share
from tests.support.model import MAX_TIME, Step
from tests.support.plain import plain_bytes
from tests.support.runs import InOrder, StageRun, arrivals, in_order, play
from tests.support.strategies import (
    Bundle,
    Stream,
    scattered_streams,
    sessions,
    streams,
    us,
    values,
    windowings,
)
from windowing import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    FixedWindows,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    Windowing,
)
from windowing.clocks import WATERMARK, Times
from windowing.columns import WINDOW_END
from windowing.triggers.base import Trigger

law = share(5)
STAGE = "grouping"
CLOCKS = (WATERMARK,)


LATE_TRIGGERS = [
    AfterWatermark(late=late) for late in (AfterCount(1), AfterCount(2), AfterProcessingTime(us(3)))
]

# Rows that wait for the end of their window: only these are deferred.
patient = st.builds(
    Windowing,
    sessions | st.builds(lambda size: FixedWindows(us(size)), st.integers(1, 30)),
    st.sampled_from([*LATE_TRIGGERS, Windowing().trigger]),
    st.sampled_from(["discarding", "accumulating", "retracting"]),
    st.sampled_from(list(TimestampCombiner)),
    st.integers(0, 30).map(us),
)


def shown(steps: Sequence[Step]) -> list[Step]:
    """Returns the steps as a user sees them: without the row count and the hold, which depend on what has merged."""
    return [attrs.evolve(in_order(step), live=0, hold=None) for step in steps]


@law
@given(windowings(), streams() | scattered_streams(), SIZES)
def test_the_sizes_of_buckets_do_not_show(
    windowing: Windowing, stream: Stream, given_sizes: dict[str, int]
) -> None:
    expected = play(StageRun(windowing), stream)
    with sizes(**given_sizes):
        assert shown(play(StageRun(windowing), stream)) == shown(expected)


@st.composite
def long_streams(draw: st.DrawFn) -> Stream:
    """Draws many small bundles of few keys around a watermark that advances, some late; drained at the end."""
    watermark = 0
    stream = []
    ahead, keys = st.integers(-15, draw(st.sampled_from([40, 150]))), draw(st.sampled_from(["a", "abcd"]))
    for _ in range(draw(st.integers(5, 25))):
        elements = draw(st.lists(st.tuples(st.sampled_from(keys), values, ahead), max_size=4))
        stream.append(
            Bundle(tuple((key, value, watermark + time) for key, value, time in elements), watermark)
        )
        watermark += draw(st.sampled_from([0, 0, 1, 2, 3, 7, 25]))
    return (*stream, Bundle((), MAX_TIME))


@share(2)
@given(patient, long_streams(), SIZES)
def test_putting_off_arrivals_does_not_show(
    windowing: Windowing, stream: Stream, given_sizes: dict[str, int]
) -> None:
    expected = play(StageRun(windowing), stream)
    with sizes(**given_sizes):
        assert shown(play(StageRun(windowing), stream)) == shown(expected)


@pytest.mark.parametrize("trigger", [Windowing().trigger, *LATE_TRIGGERS])
@pytest.mark.parametrize("lateness", [0, 1, 30])
def test_a_session_that_is_due_soon_and_grows_into_one_that_is_not_is_looked_at_whole(
    trigger: Trigger, lateness: int
) -> None:
    windowing = Windowing(Sessions(us(11)), trigger, allowed_lateness=us(lateness))
    stream = (
        Bundle(
            (("z", 0, -9), ("a", 1, 0), ("a", 2, 14), ("a", 3, 20), ("a", 4, 28), ("b", 5, 50), ("c", 5, 60)),
            -9,
        ),
        Bundle((), 3),  # z is over, and so its bucket is looked at: the first session of a is near
        Bundle((("a", 6, 8),), 4),  # which now is [0, 19), and so overlaps with the other, [14, 39)
        Bundle((), 19),
        Bundle((), 39),
    )
    expected = play(StageRun(windowing), stream)
    assert [len(step.panes) for step in expected] == [0, 1, 0, 0, 1]
    with sizes(**PATIENT):
        run = StageRun(windowing)
        steps = [run.step(bundle.elements, bundle.watermark) for bundle in stream[:3]]
        near = Index.load(run.store, STAGE, CLOCKS).buckets.filter(pl.col(BUCKET) == BUFFER)
        assert near["deadline.watermark"].to_list() == [19]
        steps += [run.step(bundle.elements, bundle.watermark) for bundle in stream[3:]]
    assert shown(steps) == shown(expected)


def last_of_a(stream: Stream) -> list[tuple[Any, ...]]:
    run = StageRun(Windowing(Sessions(us(10))), {"last": Last("value"), "n": Count()})
    for bundle in stream:
        step = run.stage.step(run.store, {MAIN: arrivals(bundle.elements)}, Times.of(bundle.watermark))
    return step.panes.filter(pl.col("key") == "a").select("last", "n").rows()


def test_arrivals_that_reach_a_session_do_not_overtake_those_that_wait() -> None:
    others = tuple(("b", 5, time) for time in range(100, 220, 20))
    stream = (
        Bundle((("z", 0, -9), ("a", 1, 0), *others), -9),
        Bundle((), 3),  # the session of a, [0, 10), is near
        Bundle((("a", 2, 15),), 4),  # waits
        Bundle((("a", 7, 8), ("a", 3, 15)), 5),  # meets both
        Bundle((), 60),
    )
    assert last_of_a(stream) == [(3, 4)]
    with sizes(**PATIENT):
        assert last_of_a(stream) == [(3, 4)]


def test_sessions_that_an_element_joins_are_put_together_in_order_of_time() -> None:
    aggregates = {"values": Combine(InOrder(), "value", pl.List(pl.Int64()))}
    run = StageRun(Windowing(Sessions(us(12))), aggregates)
    for number, time in ((1, 0), (4, 40), (2, 20), (3, 10), (5, 30)):
        run.stage.step(run.store, {MAIN: arrivals([("a", number, time)])}, Times.of(-1))
    step = run.stage.step(run.store, {MAIN: arrivals([])}, Times.of(MAX_TIME))
    assert step.panes["values"].to_list() == [[1, 2, 3, 4, 5]]


@law
@given(windowings(), streams(drained=True))
def test_nothing_but_the_index_is_kept_when_all_windows_are_collected(
    windowing: Windowing, stream: Stream
) -> None:
    run = StageRun(windowing)
    steps = play(run, stream)
    assert steps[-1].live == 0
    assert set(run.store.values) == {(STAGE, "index")}
    assert Index.load(run.store, STAGE, CLOCKS).sizes() == {}


@settings(max_examples=2 * settings().max_examples)
@given(st.lists(st.integers(0, 6), max_size=6), st.integers(1, 400))
def test_buckets_that_are_split_again_and_again_share_the_keys_out(splits: list[int], count: int) -> None:
    rows = pl.DataFrame({"key": np.arange(count).astype(str), WINDOW_END: np.arange(count) % 3})
    buckets = Buckets(("key",), Spread(WINDOW_END, 1, 1), ())
    before = buckets.place(rows)
    assert set(before[BUCKET]) <= {TIMES, TIMES + 1, TIMES + 2}
    for split in splits:
        numbers = before[BUCKET].unique().sort()
        bucket = numbers[split % len(numbers)]
        buckets = attrs.evolve(buckets, existing=tuple(numbers)).split(bucket, 40_000_000)
        after = buckets.place(rows)
        moved = before[BUCKET] != after[BUCKET]
        assert moved.to_list() == (before[BUCKET] == bucket).to_list()
        assert set(after.filter(moved)[BUCKET] % TIMES) == {bucket % TIMES}
        before = after


# Reads and writes of a step


def counting(windowing: Windowing) -> tuple[StageRun, CountingStore]:
    run = StageRun(windowing)
    run.store = CountingStore()
    return run, run.store


@law
@given(sessions, st.integers(0, 50))
def test_a_clock_that_is_behind_reads_and_changes_nothing(windows: Any, behind: int) -> None:
    run, store = counting(Windowing(windows))
    run.step([("a", 1, 100), ("b", 2, 90)], 60)
    values = dict(store.values)
    store.reset()
    step = run.step([], 60 - behind)
    assert (step.panes, store.read, store.values) == ([], ["index"], values)


def test_windows_of_one_time_share_a_bucket_whatever_their_keys() -> None:
    run, store = counting(Windowing(SlidingWindows(us(10), us(5))))
    run.step([(f"key {number}", 1, 3) for number in range(100)], 0)
    assert len({key.rpartition("/")[0] for key in store.written} - {""}) == 2


def many(windowing: Windowing, rows: int) -> tuple[StageRun, CountingStore]:
    """Returns a stage with a row for each of `rows` keys, whose windows end one after another."""
    run, store = counting(windowing)
    with sizes(**{**PATIENT, "split": 200_000, "chunk": 100_000, "share": 16}):
        run.step([(f"key {number}", 1, 1_000_000 + number) for number in range(rows)], 0)
        run.step([], 1_000_005)
    return run, store


@pytest.mark.parametrize("windows", [Sessions(us(1_000_000)), FixedWindows(us(10_000_000))])
def test_arrivals_that_can_wait_are_put_beside_the_rows_without_reading_them(windows: Any) -> None:
    run, store = many(Windowing(windows), 5_000)
    store.reset()
    with sizes(**PATIENT):
        step = run.step([(f"key {number}", 1, 1_900_000) for number in range(0, 5_000, 1_000)], 1_000_010)
    assert step.panes == []
    assert step.live == 5_005
    assert not [key for key in store.read if not key.startswith(("index", f"rows/{BUFFER}/"))]


def test_sessions_that_are_due_one_after_another_are_read_in_small_parts() -> None:
    run, store = many(Windowing(Sessions(us(1_000_000))), 5_000)
    whole = sum(map(plain_bytes, store.values.values()))
    read, panes = [], 0
    with sizes(**{**PATIENT, "split": 200_000, "chunk": 100_000, "share": 16}):
        for number in range(50):
            store.reset()
            panes += len(run.step([], 2_000_000 + 20 * number).panes)
            read.append(
                sum(
                    plain_bytes(store.values[STAGE, key])
                    for key in store.read
                    if (STAGE, key) in store.values
                )
            )
    assert panes == 981
    assert sum(read) / len(read) < whole / 7  # values that small need a little more than their share


def test_a_batch_writes_about_the_due_soon_sessions_that_it_reaches() -> None:
    run, store = counting(Windowing(Sessions(us(1_000_000))))
    with sizes(**{**PATIENT, "split": 10**9, "chunk": 10**6, "share": 4, "large": 1}):
        run.step([(f"key {number}", 1, 1_000_000 + number) for number in range(20_000)], 0)
        run.step([], 2_000_000)
        whole = sum(
            plain_bytes(value) for (_, key), value in store.values.items() if f"rows/{BUFFER}/" in key
        )
        assert store.values[STAGE, "index"][0] == ENCODING
        store.reset()
        step = run.step([("key 2000", 1, 2_000_001), ("key 19000", 1, 2_000_001)], 2_000_010)
    written = sum(
        plain_bytes(value)
        for (_, key), value in store.values.items()
        if key in store.written and f"/{BUFFER}/" in key
    )
    assert len(step.panes) == 10
    assert step.live == 19_990
    assert 0 < written < whole / 50


def test_a_due_soon_buffer_that_an_earlier_version_wrote_is_read() -> None:
    steps = []
    for earlier in (False, True):
        run, store = counting(Windowing(Sessions(us(1_000))))
        with sizes(**{**PATIENT, "large": 1}):
            run.step([(f"key {number}", 1, 1_000 + number) for number in range(200)], 0)
            run.step([], 2_000)
            if earlier:
                directory = [key for key in store.values if key[1].startswith(f"keys/{BUFFER}/")]
                assert directory
                for stage, key in directory:
                    store.delete(stage, key)
            steps.append([run.step([(f"key {now % 200}", 1, now)], now) for now in range(2_010, 2_030, 2)])
    assert shown(steps[0]) == shown(steps[1])


def test_an_arrival_does_not_overtake_one_that_waits() -> None:
    windowing = Windowing(Sessions(us(11)))
    others = (("b", 5, 50), ("c", 5, 60), ("d", 5, 61), ("e", 5, 62))
    stream = (
        Bundle((("z", 0, -9), ("a", 1, 0), *others), -9),
        Bundle((), 3),  # [0, 11) of a is due soon
        Bundle((("a", 11, 14),), 4),  # and this waits in its bucket
        Bundle((("a", 2, 8),), 4),  # until both meet
        Bundle((("a", 22, 14),), 4),
        Bundle((), 30),
    )
    with sizes(**PATIENT):
        run = StageRun(
            windowing, {"values": Collect("value"), "first": First("value"), "last": Last("value")}
        )
        play(run, stream)
    assert run.frame.select("first", "last").rows() == [(1, 22)]


def test_percentiles_that_are_asked_for_later_find_sessions_as_if_nothing_had_waited() -> None:
    def run() -> Histogram:
        run = StageRun(Windowing(Sessions(us(10))))
        run.step([("a", 1, 10), ("b", 1, 60)], 0)
        run.step([("a", 2, 5)], 1)
        clock = Times.of(2, 0, {66: 17})
        return run.stage.step(run.store, {MAIN: run.stage.operator.concat_arrivals([])}, clock).holds

    assert run()["buckets"] == [19, 69]
    with sizes(**PATIENT):
        assert run()["buckets"] == [19, 69]


def test_state_that_lacks_a_chunk_is_refused() -> None:
    run, store = counting(Windowing(Sessions(us(10))))
    run.step([("a", 1, 10)], 0)
    (lost,) = [key for stage, key in store.values if key != "index"]
    store.delete(STAGE, lost)
    with pytest.raises(KeyError, match=f"the state of stage 'grouping' lacks '{lost}', which its index has"):
        run.step([], 50)


# All state as data


@law
@given(windowings(), streams() | scattered_streams(), st.data(), SIZES)
def test_a_stage_that_is_saved_and_restored_goes_on_as_it_was(
    windowing: Windowing, stream: Stream, data: st.DataObject, given_sizes: dict[str, Any]
) -> None:
    expected = play(StageRun(windowing), stream)
    at = data.draw(st.integers(0, len(stream)))
    with sizes(**given_sizes):
        first, second = StageRun(windowing), StageRun(windowing)
        steps = play(first, stream[:at])
        restore(second.stage, second.store, save(first.stage, first.store))
        assert shown([*steps, *play(second, stream[at:])]) == shown(expected)


def test_an_aggregate_that_is_added_has_seen_nothing_of_the_windows_that_are_there() -> None:
    windowing = Windowing(FixedWindows(us(10)))
    first = StageRun(windowing, {"n": Count()})
    first.step([("a", 1, 3), ("a", 2, 4)], 0)
    second = StageRun(windowing, {"n": Count(), "total": Sum("value"), "values": Collect("value")})
    second.store = first.store
    second.step([("a", 7, 5)], 10)
    assert second.frame.select("n", "total", "values").rows() == [(3, 7, [7])]


@given(st.lists(st.integers(-(2**60), 2**60)), st.integers(1, 2**50))
def test_rows_of_buckets_that_were_not_split_are_placed_as_the_expression_says(
    times: list[int], live: int
) -> None:
    rows = pl.DataFrame({"time": times}, {"time": pl.Int64()})
    buckets = Buckets((), Spread("time", 1, live), (128, 129))
    assert_series_equal(buckets.place(rows)[BUCKET], rows.select(buckets.number().alias(BUCKET)).to_series())
