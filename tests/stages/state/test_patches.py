"""Large buckets of tables looked up by key: the same results wherever rows are, an exact index, small writes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.aggregates.builtin import Count
from stages.aggregates.totals import Sum
from stages.grouping.grouping import Grouping
from stages.joins.asof import AsOfJoin
from stages.joins.base import LEFT, RIGHT, TimeJoin
from stages.joins.interval import IntervalJoin
from stages.operator import MAIN
from stages.process.cumulative import OfAggregate, Previous
from stages.process.into_batches import IntoBatches, Limits
from stages.process.running import Running
from stages.stage import Stage
from stages.state.store import DictStore
from tests.cases.on_model import outcome
from tests.stages.process.test_random import OF_ANY_FIRING, OF_ANY_ROW
from tests.support import model
from tests.support.examples import share
from tests.support.model_process import Model
from tests.support.patched import ALWAYS, SIZES, moved, patched, require_exact
from tests.support.plain import plain_bytes
from tests.support.process_runs import Shards, unordered
from tests.support.process_script import Script
from tests.support.process_strategies import Bundle, scripts, streams
from tests.support.runs import StageRun, play
from tests.support.small_batches import Counter
from tests.support.strategies import Stream, bridged_streams, crowded_streams, windowings
from tests.support.strategies import streams as streams_of_elements
from windowing import Accumulation, AfterCount, FixedWindows, Repeatedly, Windowing
from windowing.clocks import Times
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME

law = share(4)


@law
@given(scripts(OF_ANY_ROW, OF_ANY_FIRING), streams(), st.integers(1, 2), st.integers(0, 8), SIZES)
def test_a_process_gives_what_the_model_gives_however_its_cells_lie(
    script: Script, stream: list[Bundle], shards: int, cut: int, sizes: dict[str, Any]
) -> None:
    model, run = Model(script), Shards(script, shards)
    with patched(**sizes):
        for number, bundle in enumerate(stream):
            if number == cut:
                for one in run.runs:
                    one.store.values = moved(one.stage, one.store).values
            expected = outcome(model.step(bundle.rows, bundle.watermark, bundle.processing_time))
            assert unordered(run.step(bundle)) == unordered(expected)
            for one in run.runs:
                require_exact(one.stage, one.store)


@law
@given(windowings(), streams_of_elements() | crowded_streams() | bridged_streams(), st.integers(0, 8), SIZES)
def test_a_grouping_gives_what_the_model_gives_however_its_windows_lie(
    windowing: Windowing, stream: Stream, cut: int, sizes: dict[str, Any]
) -> None:
    expected, run = model.Model(windowing), StageRun(windowing)
    with patched(**sizes):
        for number, bundle in enumerate(stream):
            if number == cut:
                run.store = moved(run.stage, run.store)
            assert play(run, [bundle]) == play(expected, [bundle])
            require_exact(run.stage, run.store)


# Other operators: with patches they give what they give without, which is tested by hand elsewhere

ROW: Final = pl.Struct({"number": pl.Int64()})
SCHEMA: Final = pl.Schema({"key": pl.String(), "number": pl.Int64()})
SIDES: Final = pl.Schema({"key": pl.String(), LEFT: ROW, RIGHT: ROW})

Row = tuple[str | None, int]
"""Key and time (us); the number tells it from others."""


def as_of() -> Stage:
    return Stage("stage", AsOfJoin(("key",), SIDES, "left", 15))


def early() -> Stage:
    """Returns a stage that emits a pane for every few rows, and retracts the one before."""
    often = Windowing(
        FixedWindows(20 / 1_000_000),
        Repeatedly(AfterCount(2)),
        accumulation=Accumulation.RETRACTING,
        allowed_lateness=9 / 1_000_000,
    )
    return Stage("stage", Grouping(("key",), often, {"n": Count(), "sum": Sum("number")}, SCHEMA))


def outer() -> Stage:
    return Stage("stage", IntervalJoin(("key",), SIDES, how="full", time_of="left", low=-5, high=15))


def outer_of_lengths() -> Stage:
    return Stage("stage", IntervalJoin(("key",), SIDES, how="left", low=-5, high=Lengths()))


class Lengths:
    """An expression: a length that depends on the left row."""

    columns = ("number",)

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        return (frame["number"] % 7 * 3).cast(pl.Duration("us"))


def running() -> Stage:
    aggregates = {
        "n": OfAggregate(Count(), ""),
        "sum": OfAggregate(Sum("number"), ""),
        "before": Previous("number"),
    }
    windowing = Windowing(FixedWindows(20 / 1_000_000))
    return Stage("stage", Running(("key",), SCHEMA, windowing, aggregates, order="time", title="running"))


def batches() -> Stage:
    operator = IntoBatches(
        ("key",), SCHEMA, Windowing(), Limits(3, None, 4), order="arrival", title="batches"
    )
    return Stage("stage", operator)


def arrivals(stage: Stage, rows: Sequence[Row], first: int) -> pl.DataFrame:
    """Returns rows, every other one a version."""
    numbered = [(key, first + number, at) for number, (key, at) in enumerate(rows)]
    frame = pl.DataFrame(numbered, {**SCHEMA, EVENT_TIME: pl.Int64()}, orient="row")
    if not isinstance(stage.operator, TimeJoin):
        return frame
    version, row = pl.col("number") % 2 == 1, pl.struct("number")
    return frame.select(
        "key", pl.when(~version).then(row).alias(LEFT), pl.when(version).then(row).alias(RIGHT), EVENT_TIME
    )


def played(
    make: Callable[[], Stage], bundles: list[tuple[list[Row], int, int]], cut: int, asked: int, exact: bool
) -> list[Any]:
    """Returns the result of each step; from step `asked` on, there is a percentile watermark."""
    stage, store, found, number, watermark, now = make(), DictStore(), [], 0, 0, 0
    for step, (rows, ahead, later) in enumerate([*bundles, ([], MAX_TIME, 0)]):
        if step == cut:
            store = moved(stage, store)
        watermark, now = min(watermark + ahead, MAX_TIME), now + later
        percentiles = {90: watermark} if step >= asked else {}
        clock = Times.of(watermark, now, percentiles)
        given = stage.step(store, {MAIN: arrivals(stage, rows, number)}, clock)
        number += len(rows)
        panes = sorted(given.panes.rows(), key=str)
        found.append(
            (
                panes,
                given.watermarks,
                given.live,
                given.keys,
                given.pending,
                given.holder and given.holder.hold,
                given.percentiles,
                stage.tables(store)._first.pending_holds,
            )
        )
        if exact:
            require_exact(stage, store)
    assert {key.rpartition("/")[2] for _, key in store.values} == {"index"}
    return found


OPERATORS: Final = (as_of, batches, early, outer, outer_of_lengths, running)
rows = st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.integers(0, 60))
bundles = st.lists(st.tuples(st.lists(rows, max_size=9), st.integers(0, 20), st.integers(0, 3)), max_size=7)


@law
@given(st.sampled_from(OPERATORS), bundles, st.integers(0, 7), st.integers(0, 7), SIZES)
def test_an_operator_gives_the_same_however_its_rows_lie(
    make: Callable[[], Stage],
    stream: list[tuple[list[Row], int, int]],
    cut: int,
    asked: int,
    sizes: dict[str, Any],
) -> None:
    expected = played(make, stream, cut, asked, exact=False)
    with patched(**sizes):
        assert played(make, stream, cut, asked, exact=True) == expected


# Writes of a step

MANY: Final = 20_000
USUAL: Final = {"large": 1, "most": 16, "changed": 0.5, "split": 10**7, "chunk": 10**6}


def filled(make: Callable[[], Stage]) -> tuple[Stage, Noting]:
    """Returns a stage that has a row of each of many keys."""
    stage, store = make(), Noting()
    rows: list[Row] = [(f"key {number // 2}", 5) for number in range(2 * MANY)]
    stage.step(store, {MAIN: arrivals(stage, rows, 0)}, Times.of(6, 0))
    store.written.clear()
    return stage, store


class Noting(DictStore):
    """A store that records its reads and the uncompressed size of each write, by key."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.written: list[tuple[str, int]] = []

    def get(self, stage: str, key: str) -> bytes | None:
        self.read.append(key)
        return super().get(stage, key)

    def put(self, stage: str, key: str, value: bytes) -> None:
        self.written.append((key, plain_bytes(value)))
        super().put(stage, key, value)


@pytest.fixture
def usual() -> Iterator[None]:
    """Makes buckets of few rows count as large."""
    with patched(**USUAL):
        yield


@pytest.mark.parametrize("make", [as_of, outer, running])
@pytest.mark.usefixtures("usual")
def test_a_batch_that_reaches_few_keys_writes_about_what_it_reaches(make: Callable[[], Stage]) -> None:
    stage, store = filled(make)
    whole = sum(map(plain_bytes, store.values.values()))
    random = np.random.default_rng(1)
    rows: list[Row] = [(f"key {number}", 7) for number in random.integers(0, MANY, 200)]
    step = stage.step(store, {MAIN: arrivals(stage, rows, 2 * MANY)}, Times.of(8, 0))
    assert len(step.panes) >= 100
    assert sum(size for _, size in store.written) < whole / 20


def of_side(side: str, keys: Iterable[int], first: int) -> pl.DataFrame:
    """Returns a row at 7 us for each of these keys."""
    rows = [(f"key {key}", {"number": first + number}) for number, key in enumerate(keys)]
    frame = pl.DataFrame(rows, {"key": pl.String(), side: ROW}, orient="row")
    return frame.with_columns(
        pl.lit(None, ROW).alias(RIGHT if side == LEFT else LEFT), pl.lit(7, pl.Int64).alias(EVENT_TIME)
    ).select("key", LEFT, RIGHT, EVENT_TIME)


@pytest.mark.usefixtures("usual")
def test_what_is_only_looked_up_is_not_written() -> None:
    stage, store = filled(as_of)
    step = stage.step(store, {MAIN: of_side(LEFT, range(0, MANY, 3), 2 * MANY)}, Times.of(8, 0))
    assert (len(step.panes), step.panes[RIGHT].null_count()) == (-(-MANY // 3), 0)
    assert {key for key, _ in store.written} == {"index", "waiting/index"}
    require_exact(stage, store)


@pytest.mark.parametrize(
    ("side", "other", "marks"), [(LEFT, RIGHT, "left_matched/rows"), (RIGHT, LEFT, "right/rows")]
)
@pytest.mark.usefixtures("usual")
def test_the_first_partner_of_a_row_of_an_outer_join_is_written_once_and_further_ones_are_not(
    side: str, other: str, marks: str
) -> None:
    stage, store, sizes = outer(), Noting(), []
    stage.step(store, {MAIN: of_side(side, range(MANY), 0)}, Times.of(6, 0))
    whole = sum(map(plain_bytes, store.values.values()))
    for number in range(2):
        store.written.clear()
        stage.step(store, {MAIN: of_side(other, range(200), MANY + 200 * number)}, Times.of(6, 0))
        sizes.append(sum(size for key, size in store.written if key.startswith(marks)))
        require_exact(stage, store)
    assert 0 < sizes[0] < whole / 20
    assert sizes[1] == 0


@pytest.mark.usefixtures("usual")
def test_the_first_partner_of_a_row_is_written_apart_from_the_row_if_the_row_holds_nothing_until_then() -> (
    None
):
    stage, store = outer(), Noting()
    stage.step(store, {MAIN: of_side(LEFT, range(MANY), 0)}, Times.of(6, 0))
    store.written.clear()
    stage.step(store, {MAIN: of_side(RIGHT, range(200), MANY)}, Times.of(6, 0))
    assert not any(key.startswith("rows/") for key, _ in store.written)


@pytest.mark.usefixtures("usual")
def test_patches_are_merged_before_they_are_many() -> None:
    stage, store = filled(as_of)
    rows: list[Row] = [("key 1", 7), ("key 2", 7)]
    chunks = []
    for number in range(40):
        stage.step(store, {MAIN: arrivals(stage, rows, 2 * (MANY + number))}, Times.of(8, 0))
        chunks.append(sum(key.startswith("rows/") for _, key in store.values))
    assert max(chunks) - min(chunks) == 6  # three of each of the sizes 1, 4, 16
    require_exact(stage, store)
    entries = sum(key.startswith("keys/") for _, key in store.values)
    assert entries <= chunks[-1]
    anew = [key for key, _ in store.written if key.startswith("rows") and key.endswith("/0")]
    assert not anew


@pytest.mark.usefixtures("usual")
def test_what_is_written_anew_for_all_that_has_come_is_read_once() -> None:
    stage, store = filled(running)
    before = {key for _, key in store.values if key.startswith("rows/")}
    store.read.clear()
    rows: list[Row] = [(f"key {number}", 7) for number in range(MANY // 4, 2 * MANY)]
    stage.step(store, {MAIN: arrivals(stage, rows, 2 * MANY)}, Times.of(8, 0))
    assert before <= {key for key, _ in store.written}
    assert sorted(key for key in store.read if key.startswith("rows/")) == sorted(before)
    require_exact(stage, store)


def test_without_patches_a_store_is_as_it_was_before_there_were_any() -> None:
    with patched(**ALWAYS):
        stage, store = batches(), DictStore()
        stage.step(store, {MAIN: arrivals(stage, [("a", 1), ("b", 2)], 0)}, Times.of(0, 0))
    assert sorted(key for _, key in store.values if not key.startswith("keys/")) == ["index", "rows/128/0"]


def queries_in(step: Callable[[], object]) -> int:
    """Returns the number of queries of polars that a call makes."""
    counter = Counter()
    sys.setprofile(counter.count)
    try:
        step()
    finally:
        sys.setprofile(None)
    return counter.queries


@pytest.mark.parametrize("make", [as_of, running])
def test_a_batch_makes_few_queries_however_many_buckets_it_reaches(make: Callable[[], Stage]) -> None:
    queries, buckets = [], []
    for split in (10**8, 50_000):
        with patched(**{**USUAL, "split": split}):
            stage, store = filled(make)
            rows: list[Row] = [(f"key {key}", 7) for key in range(0, MANY, 50)]
            given = {MAIN: arrivals(stage, rows, 2 * MANY)}
            queries.append(queries_in(partial(stage.step, store, given, Times.of(8, 0))))
            buckets.append(len(stage.tables(store)._first.buckets))
    assert buckets[1] > 8 * buckets[0]
    assert queries[1] <= queries[0] + 6 * buckets[1]
