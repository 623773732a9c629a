"""Rows found by the hashes of their keys are those that a search through all rows finds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.aggregates.totals import Sum
from stages.joins.asof import AsOfJoin
from stages.joins.base import LEFT, RIGHT
from stages.joins.interval import IntervalJoin
from stages.operator import MAIN
from stages.process.cumulative import OfAggregate
from stages.process.dedup import Dedup
from stages.process.running import Running
from stages.stage import Stage
from stages.state.buckets import BUCKET
from stages.state.chunks import is_chunk
from stages.state.lookup import HashIndex, Requested, divided, find_each, hashes_by_bucket, lower_hashes
from stages.state.store import DictStore
from tests.support.counting_store import CountingStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS
from windowing.time import MAX_TIME
from windowing.windowing import Windowing

ROW = pl.Struct({"number": pl.Int64()})
ROWS = pl.Schema({"key": pl.String(), "number": pl.Int64()})
HASHES = [0, 1, 2, 3, 2**8, 2**16, 2**20, 2**30, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]
hashes = st.lists(st.sampled_from(HASHES), max_size=30)


@given(hashes, st.sets(st.sampled_from(HASHES)))
def test_every_search_finds_the_rows_with_one_of_the_hashes(rows: list[int], requested: set[int]) -> None:
    index, asked = HashIndex(np.array(rows, np.uint32)), np.array(sorted(requested), np.uint32)
    expected = [position for position, value in enumerate(rows) if value in requested]
    for _ in range(3):  # from the second search on, the hashes are sorted
        assert index.find(asked).tolist() == expected


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.data())
def test_numbers_of_rows_are_divided_by_chunk(lengths: list[int], data: st.DataObject) -> None:
    everything = [(chunk, position) for chunk, length in enumerate(lengths) for position in range(length)]
    chosen = sorted(data.draw(st.sets(st.sampled_from(range(len(everything))))) if everything else ())
    parts = divided(np.array(chosen, np.intp), lengths)
    found = [(chunk, position) for chunk, positions in parts for position in positions.tolist()]
    assert found == [everything[number] for number in chosen]


@given(st.lists(st.tuples(st.integers(128, 131), st.integers(0, 9)), max_size=20))
def test_hashes_are_divided_by_bucket(rows: list[tuple[int, int]]) -> None:
    placed = pl.DataFrame(rows, {BUCKET: pl.Int64(), "key": pl.Int64()}, orient="row")
    parts = hashes_by_bucket(placed, ["key"])
    assert parts.keys() == {bucket for bucket, _ in rows}
    for bucket, found in parts.items():
        expected = lower_hashes(placed.filter(pl.col(BUCKET) == bucket), ["key"])
        assert found.tolist() == sorted({*expected.tolist()})


def test_requested_hashes_are_those_of_a_part_of_all_hashes() -> None:
    requested = Requested.of(pl.DataFrame({"key": [*range(100), 5, 5]}))
    half = 1 << 63
    parts = [requested.between(0, half - 1), requested.between(half, 2 * half - 1)]
    assert 20 < len(parts[0]) < 80
    assert sorted(np.concatenate(parts).tolist()) == requested.all.tolist()
    assert len(requested.all) == 100


def dedup() -> Stage:
    operator = Dedup(("key",), ROWS, Windowing(), within=60, by="event", order="arrival", title="dedup")
    return Stage("stage", operator)


def distinct() -> Stage:
    operator = Dedup(("key",), ROWS, Windowing(), within=None, by="event", order="arrival", title="dedup")
    return Stage("stage", operator)


def interval() -> Stage:
    schema = pl.Schema({"key": pl.String(), LEFT: ROW, RIGHT: ROW})
    return Stage("stage", IntervalJoin(("key",), schema, how="inner", low=0, high=60))


def outer() -> Stage:
    schema = pl.Schema({"key": pl.String(), LEFT: ROW, RIGHT: ROW})
    return Stage("stage", IntervalJoin(("key",), schema, how="full", low=0, high=60))


def outputs(make: Callable[[], Stage], store: DictStore) -> list[list[object]]:
    """Returns the sorted panes of each batch of rows with random keys, some of which are null."""
    stage, random, panes = make(), np.random.default_rng(1), []
    for batch in range(20):
        keys = [f"key {key}" if key else None for key in random.integers(0, 40, 30)]
        times = 10 * batch + np.sort(random.integers(0, 10, 30))
        rows = pl.DataFrame({"key": keys, "number": range(30), EVENT_TIME: times})
        if LEFT in stage.operator.inputs[MAIN].schema:
            side = pl.struct("number")
            left = pl.col("number") % 2 == 0
            rows = rows.select(
                "key",
                pl.when(left).then(side).alias(LEFT),
                pl.when(~left).then(side).alias(RIGHT),
                EVENT_TIME,
            )
        step = stage.step(store, {MAIN: rows}, Times.of(10 * batch))
        panes.append(sorted(map(repr, step.panes.rows())))
    return panes


@pytest.mark.parametrize("make", [dedup, distinct, interval, outer])
@pytest.mark.parametrize("split", [300, 10**9])
def test_a_scan_by_hashes_gives_what_a_scan_of_all_rows_gives(
    make: Callable[[], Stage], split: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = outputs(make, DictStore())
    monkeypatch.setattr("stages.state.buckets.SPLIT_BYTES", split)
    monkeypatch.setattr("stages.state.storage.SEARCHED_BYTES", 1)
    monkeypatch.setattr("stages.state.storage.LARGE_BYTES", 1)
    monkeypatch.setattr("stages.state.working_set.CROWDED", 0)
    monkeypatch.setattr("stages.state.working_set.SMALL_BYTES", 1)
    monkeypatch.setattr("stages.state.lookup._OFTEN", 0)
    monkeypatch.setattr("stages.state.lookup._SETTLED", 1)
    monkeypatch.setattr("stages.state.lookup._MEMBERS", 2)
    assert outputs(make, DictStore()) == expected
    assert any(expected)


def running() -> Stage:
    aggregates = {"sum": OfAggregate(Sum("number"), "")}
    return Stage(
        "stage", Running(("key",), ROWS, Windowing(), aggregates=aggregates, order="arrival", title="running")
    )


def as_of() -> Stage:
    schema = pl.Schema({"key": pl.String(), LEFT: ROW, RIGHT: ROW})
    return Stage("stage", AsOfJoin(("key",), schema, "left", None))


@pytest.mark.parametrize("make", [dedup, distinct, interval, running, as_of])
def test_state_that_ends_silently_is_removed_at_the_end_of_input_without_being_read(
    make: Callable[[], Stage],
) -> None:
    store = CountingStore()
    outputs(make, store)
    stage = make()
    nothing = {
        MAIN: pl.DataFrame(schema=stage.operator.inputs[MAIN].schema).drop(WINDOW_COLUMNS, strict=False)
    }
    stage.step(store, nothing, Times.of(200))  # left rows that wait for versions are joined
    assert any(is_chunk(key) for _, key in store.values)
    store.read.clear()
    last = stage.step(store, nothing, Times.of(MAX_TIME))
    assert last.panes.is_empty()
    assert not any(is_chunk(key) for key in store.read)
    assert not any(is_chunk(key) for _, key in store.values)
    assert last.live == 0


indices = st.lists(st.lists(st.sampled_from(HASHES), min_size=1, max_size=8), min_size=1, max_size=12)


@given(
    indices, st.lists(st.sets(st.integers(0, 11)), max_size=12), st.sets(st.sampled_from(HASHES), min_size=1)
)
def test_indices_that_are_searched_together_find_what_each_of_them_finds(
    rows: list[list[int]], rewritten: list[set[int]], requested: set[int]
) -> None:
    found = [HashIndex(np.array(some, np.uint32)) for some in rows]
    asked = np.array(sorted(requested), np.uint32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stages.state.lookup._OFTEN", 0)
        patch.setattr("stages.state.lookup._SETTLED", 2)
        patch.setattr("stages.state.lookup._MEMBERS", 3)
        for some in [*rewritten, set[int](), set[int](), set[int]()]:
            found = [
                HashIndex(index.hashes[::-1].copy()) if number in some else index
                for number, index in enumerate(found)
            ]
            here = found[: 1 + len(some)] if some else found
            positions = find_each(here, [asked] * len(here), asked)
            for index, places in zip(here, positions, strict=True):
                assert places.tolist() == np.flatnonzero(np.isin(index.hashes, asked)).tolist()
    together = [index for index in found if index.block is not None]
    assert len(found) - len(together) < 3


def test_indices_are_searched_together_once_they_have_settled_until_half_of_them_are_gone() -> None:
    found = [HashIndex(np.arange(n, 10_000 * (n + 1), 8, np.uint32)) for n in range(8)]
    asked = np.arange(100, dtype=np.uint32)
    for _ in range(8):
        assert not any(index.block for index in found)
        find_each(found, [asked] * 8, asked)
    find_each(found, [asked] * 8, asked)
    (block,) = {index.block for index in found}
    assert block is not None
    assert block.length == sum(len(index.hashes) for index in found)
    del found[6:]  # fewer than half of the hashes
    find_each(found, [asked] * 6, asked)
    assert {index.block for index in found} == {block}
    del found[5:]
    assert block.worn
    find_each(found, [asked] * 5, asked)
    assert {index.block for index in found} == {None}
