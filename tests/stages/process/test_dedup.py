"""Dedup: the same rows pass as row by row, however ids are sharded, and remembered ids are removed in time."""

from __future__ import annotations

import zlib
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.operator import MAIN
from stages.process import dedup
from stages.process.dedup import By, Dedup
from stages.stage import Stage
from stages.state.store import DictStore
from tests.support import model_joins
from windowing.clocks import Times
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME
from windowing.windowing import Windowing
from windowing.windows import FixedWindows

SCHEMA = pl.Schema({"id": pl.String(), "number": pl.Int64()})
SECOND = 1_000_000

Row = tuple[str | None, int]
"""Id and second."""

rows = st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 60))
bundles = st.lists(st.tuples(st.lists(rows, max_size=12), st.integers(0, 70)), max_size=6)


def stage(within: int | None, by: By = "event", windowing: Windowing | None = None) -> Stage:
    length = None if within is None else within * SECOND
    operator = Dedup(
        ("id",), SCHEMA, windowing or Windowing(), within=length, by=by, order="arrival", title="dedup"
    )
    return Stage("once", operator)


class Shards:
    """The stage on `count` shards; their state must be empty at the end."""

    def __init__(self, made: Stage, count: int = 1) -> None:
        self.stage, self.stores, self.number = made, [DictStore() for _ in range(count)], 0

    def step(self, bundle: list[Row], watermark: int, now: int = 0) -> list[bool]:
        """Runs a bundle and returns, for each row, whether it passes."""
        numbered = [(id, n, at * SECOND) for n, (id, at) in enumerate(bundle)]
        passed: set[int] = set()
        for shard, store in enumerate(self.stores):
            mine = [row for row in numbered if zlib.crc32(str(row[0]).encode()) % len(self.stores) == shard]
            arrivals = pl.DataFrame(mine, {**SCHEMA, EVENT_TIME: pl.Int64()}, orient="row")
            found = self.stage.step(store, {MAIN: arrivals}, Times.of(watermark * SECOND, now * SECOND))
            passed |= {*found.panes["number"].to_list()}
        return [n in passed for n in range(len(bundle))]

    def live(self) -> int:
        """Returns the number of remembered ids."""
        return sum(next(iter(self.stage.tables(store).indices.values())).rows for store in self.stores)

    def end(self) -> int:
        """Ends the input and returns the number of ids in state."""
        nothing = self.stage.operator.inputs[MAIN].no_arrivals()
        return sum(self.stage.step(store, {MAIN: nothing}, Times.of(MAX_TIME)).live for store in self.stores)


@given(bundles, st.integers(1, 30), st.sampled_from([0, 7]), st.sampled_from([1, 3]))
def test_the_same_rows_pass_as_row_by_row(
    stream: list[tuple[list[Row], int]], within: int, lateness: int, shards: int
) -> None:
    windowing = Windowing(allowed_lateness=f"{lateness}s")
    run, model, watermark = (
        Shards(stage(within, windowing=windowing), shards),
        model_joins.Dedup(within, lateness),
        0,
    )
    for bundle, ahead in stream:
        watermark = max(watermark, ahead)
        expected = [model.passes(id, time) for id, time in bundle]
        assert run.step(bundle, watermark) == expected
        model.forget(watermark)
        assert run.live() == len(model.kept)
    assert run.end() == 0


@given(bundles, st.integers(1, 30))
def test_by_processing_time_the_time_of_arrival_counts(
    stream: list[tuple[list[Row], int]], within: int
) -> None:
    run, model, now = Shards(stage(within, "processing")), model_joins.Dedup(within), 0
    for bundle, ahead in stream:
        now = max(now, ahead)
        expected = [model.passes(id, now) for id, _ in bundle]
        assert run.step(bundle, 0, now) == expected
        model.forget(now)
        assert run.live() == len(model.kept)
    assert run.end() == 0


@given(st.lists(rows, max_size=40), st.integers(1, 60), st.lists(st.integers(0, 40), max_size=4))
def test_bundles_do_not_show_while_the_watermark_stands(
    given_rows: list[Row], within: int, cuts: list[int]
) -> None:
    run, found, edges = Shards(stage(within)), [], [0, *sorted(cuts), len(given_rows)]
    for first, last in pairwise(edges):
        found += run.step(given_rows[first:last], 0)
    assert found == Shards(stage(within)).step(given_rows, 0)


@given(st.lists(rows, max_size=40), st.integers(1, 20))
def test_rows_that_come_again_and_again_are_looked_at_one_by_one(given_rows: list[Row], within: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dedup, "_ROUNDS", 1)
        found = Shards(stage(within)).step(given_rows, 0)
    model = model_joins.Dedup(within)
    assert found == [model.passes(id, time) for id, time in given_rows]


def test_an_id_with_many_rows_far_apart_in_one_batch() -> None:
    given_rows: list[Row] = [("a", second) for second in range(1000)]
    passed = Shards(stage(2)).step(given_rows, 0)
    assert passed == [second % 2 == 0 for second in range(1000)]


def test_a_row_covers_half_an_interval_and_nothing_before_it() -> None:
    run = Shards(stage(10))
    assert run.step([("a", 20), ("a", 29), ("a", 30), ("a", 19), ("a", 20)], 0) == [
        True,
        False,
        True,
        True,
        False,
    ]


def test_in_windows_each_window_has_ids_of_its_own() -> None:
    run = Shards(stage(100, windowing=Windowing(FixedWindows("10s"))))
    assert run.step([("a", 1), ("a", 9), ("a", 11)], 0) == [True, False, True]
    assert (run.step([("a", 12)], 10), run.live()) == ([False], 1)


def test_without_a_duration_an_id_is_remembered_until_its_window_is_over() -> None:
    run = Shards(stage(None, windowing=Windowing(FixedWindows("10s"), allowed_lateness="5s")))
    assert run.step([("a", 1), ("a", 9), (None, 3), (None, 4), ("a", 11)], 10) == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert (run.step([("a", 2), ("a", 12)], 14), run.live()) == ([False, False], 3)
    assert (run.step([], 15), run.live()) == ([], 1)


def test_times_at_the_edge_of_what_there_is() -> None:
    run = Shards(stage(10))
    ends = [MIN_TIME // SECOND + 1, MAX_TIME // SECOND - 1]
    assert run.step([("a", at) for at in ends * 2], MIN_TIME // SECOND) == [True, True, False, False]
    assert run.end() == 0
