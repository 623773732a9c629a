"""The rows of a chunk in order of a time: the same rows as a search of all, from few sorted ones."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.aggregates.builtin import Count
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.directory import NEVER
from stages.state.store import DictStore
from stages.state.time_order import FEW, SHARE, TimeOrder
from tests.support.counting_store import CountingStore
from tests.support.examples import share
from tests.support.patched import patched, require_exact
from windowing import AfterCount, AfterWatermark, FixedWindows, Repeatedly, Sessions, Windowing
from windowing.clocks import Times
from windowing.columns import EVENT_TIME

law = share(2)

TIMES = st.lists(st.tuples(st.integers(0, 50) | st.just(NEVER), st.booleans()), min_size=1, max_size=60)


@law
@given(TIMES, st.integers(0, 50), st.integers(0, 50), st.sampled_from([1, 4, 16]))
def test_sorted_rows_are_those_that_a_search_of_all_finds(
    rows: list[tuple[int, bool]], first: int, until: int, share: int
) -> None:
    times, live = np.array([time for time, _ in rows]), np.array([flag for _, flag in rows])
    order = TimeOrder.of(times, first, until, share)
    due = np.flatnonzero(live & (times >= first) & (times <= until))
    assert sorted(order.until(first, until, live)) == due.tolist()
    remaining = times[live & (times >= first) & (times <= order.last) & (times != NEVER)]
    found = order.least(first, live)
    assert (None if found is None else found[0]) == (min(remaining) if len(remaining) else None)
    assert found is None or (live[found[1]] and times[found[1]] == found[0])


def test_only_the_first_rows_are_sorted() -> None:
    times = np.random.default_rng(1).permutation(10 * SHARE * FEW)
    order = TimeOrder.of(times, 1_000, 2_000, SHARE)
    assert order.times.tolist() == list(range(1_000, order.last + 1))
    assert len(order.times) <= len(times) / SHARE + 1
    assert not order.complete


def test_a_batch_with_due_rows_reads_each_chunk_of_a_large_bucket_once() -> None:
    often = Windowing(Sessions("100s"), AfterWatermark(early=AfterCount(10)))
    stage = Stage("stage", Grouping(("key",), often, {"n": Count()}, pl.Schema({"key": pl.Int64()})))
    store, random, second = CountingStore(), np.random.default_rng(1), 1_000_000
    keys, times = np.arange(50_000), random.integers(0, 100 * second, 50_000)
    rows = pl.DataFrame({"key": keys, EVENT_TIME: times})
    with patched(large=1, most=16, changed=0.5, split=10**9, chunk=500_000):
        stage.step(store, {MAIN: rows}, Times.of(0))
        for now in range(100, 104):
            store.read.clear()
            some = {"key": random.choice(keys, 100), EVENT_TIME: np.full(100, now * second)}
            step = stage.step(store, {MAIN: pl.DataFrame(some, rows.schema)}, Times.of(now * second))
            assert now == 100 or len(step.panes) > 100
            chunks = [key for key in store.read if key.startswith("rows/")]
            assert len(chunks) > 5
            assert len(chunks) == len(set(chunks))


def test_stages_with_equal_rows_and_different_deadlines_have_orders_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second, rows = 1_000_000, pl.DataFrame({"key": range(500), EVENT_TIME: 1_000_000})
    runs = []
    for lateness in ("1m", "1h"):
        often = Windowing(FixedWindows("10s"), Repeatedly(AfterCount(10)), allowed_lateness=lateness)
        runs.append((Stage("stage", Grouping(("key",), often, {"n": Count()}, rows.schema)), DictStore()))
    live = []
    with patched(large=1, most=16, changed=1_000, split=10**9, chunk=10**9):
        monkeypatch.setattr("stages.state.time_order.FEW", FEW)
        for now in (0, 2, 4, 80, 3_700):  # a process remembers small chunks by value, also for other stages
            for stage, store in runs:
                live.append(stage.step(store, {MAIN: rows[: 3 if now else 500]}, Times.of(now * second)).live)
                require_exact(stage, store)
    assert live == [500, 500] * 3 + [0, 500, 0, 0]
