"""Causes and completeness of panes, and promises that hold panes back: on the local runner and on shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io import output_frame
from beamlike.spark.checkpoint.commands import PlayStep
from tests.stages.test_completeness import Naive
from tests.support.examples import share as share_of
from tests.support.shards import Query, reshard
from tests.support.strategies import us
from windowing.time import MIN_TIME

TEN = bl.FixedWindows(us(10))
SCHEMA = {"k": str, "at": int}
OFTEN = bl.AfterWatermark(early=bl.AfterCount(2), late=bl.AfterCount(1))
ASKED = ("cause", "complete", "watermark")

Stream = list[list[tuple[str, int]]]

streams: st.SearchStrategy[Stream] = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), min_size=1, max_size=4), max_size=5
)


def rows_of(batch: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"k": key, "at": at} for key, at in batch]


def read(p: bl.Pipeline, source: Any, strategy: Any = None) -> bl.Collection:
    return p.read("plays", source, timestamp="at", timestamp_unit="us", watermark=strategy)


def asked(panes: bl.Collection) -> bl.Collection:
    return panes.with_columns(
        cause=bl.pane_cause(), complete=bl.pane_complete(), watermark=bl.pane_watermark()
    )


def played(stream: Stream) -> bl.TestStream:
    events = bl.TestStream(SCHEMA)
    for batch in stream:
        events = events.add_elements(rows_of(batch))
    return events


def rows(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return sorted(frame.rows(), key=repr)


# Columns


def test_each_cause() -> None:
    p = bl.Pipeline("p")
    stream = (
        bl.TestStream(SCHEMA)
        .add_elements(rows_of([("a", 1), ("a", 2)]))
        .advance_watermark_to(us_text(10))
        .add_elements(rows_of([("a", 3), ("a", 4)]))
        .add_elements(rows_of([("a", 5)]))
        .advance_watermark_to(us_text(30))
        .add_elements(rows_of([("a", 31)]))
    )
    trigger = bl.AfterWatermark(early=bl.AfterCount(2), late=bl.AfterCount(2))
    panes = read(p, stream).window_into(TEN, trigger=trigger, allowed_lateness=us(20))
    asked(panes.aggregate(n=bl.count())).write("out", out := bl.Memory())
    p.run()
    found = out.frame().sort("window_start", "pane_index")
    assert found.select("n", "cause", "pane_timing").rows() == [
        (2, "early", "early"),
        (0, "over", "on_time"),
        (2, "late", "late"),
        (1, "closing", "late"),
        (1, "drained", "on_time"),
    ]
    micros = found["watermark"].to_physical().to_list()
    assert micros == [None, 10, 10, 30, None]


def us_text(count: int) -> int:
    """Converts a time in microseconds to seconds, as test streams read them."""
    return count / 1_000_000  # type: ignore[return-value]


def test_a_retraction_has_the_columns_of_the_pane_that_it_takes_back() -> None:
    p = bl.Pipeline("p")
    stream = played([[("a", 1), ("a", 2)], [("a", 12), ("a", 3)], [("a", 30)]])
    windowed = read(p, stream, bl.BoundedOutOfOrderness(us(5))).window_into(
        TEN, trigger=OFTEN, accumulation=bl.RETRACTING
    )
    panes = asked(windowed.aggregate(n=bl.count()))
    panes.write("out", out := bl.Memory())
    # A later grouping subtracts a retracted row only if it has exactly the values of the row before.
    left = panes.window_into(TEN).group_by("cause", "n").aggregate(panes=bl.count(), most=bl.max("complete"))
    left.write("left", rest := bl.Memory())
    p.run()
    names = ["n", *ASKED]
    taken = out.frame().filter(pl.col("pane_retracted")).select(names).rows()
    assert taken
    assert not Counter(taken) - Counter(out.frame().filter(~pl.col("pane_retracted")).select(names).rows())
    assert all(row["panes"] == 1 for row in rest.frame().rows(named=True) if row["pane_timing"] != "early")


@share_of(4)
@given(streams)
def test_rows_that_are_said_to_be_all_are_all(stream: Stream) -> None:
    """A pane that is proved to be complete has all rows of its window in the input."""
    p = bl.Pipeline("p")
    given_rows = [row for batch in stream for row in rows_of(batch)]
    source = bl.Rows(given_rows, SCHEMA, rows_per_batch=2)
    windowed = read(p, source, bl.BoundedOutOfOrderness(us(20)))
    windowed = windowed.window_into(TEN, trigger=OFTEN, accumulation=bl.ACCUMULATING, allowed_lateness=us(9))
    asked(windowed.aggregate(n=bl.count())).write("out", out := bl.Memory())
    p.run()
    every = Counter(row["at"] // 10 * 10 for row in given_rows)
    newest, late = MIN_TIME, False
    for start in range(0, len(given_rows), 2):
        times = [row["at"] for row in given_rows[start : start + 2]]
        late |= any(time < newest - 20 for time in times)
        newest = max(newest, *times)
    proved = [row for row in out.rows() if row["complete"] == 1.0]
    for row in proved:
        assert row["n"] == every[row["window_start"].microsecond]
    assert all(row["complete"] is None or row["complete"] <= 1 for row in out.rows())
    if given_rows:
        assert bool(proved) == (not late)


@share_of(8)
@given(streams, st.integers(1, 3))
def test_shards_make_no_difference(stream: Stream, shards: int) -> None:
    """Also tests a stage behind another stage, which learns from the summaries of the source."""

    def made() -> tuple[bl.Pipeline, dict[str, bl.Memory]]:
        p, sinks = bl.Pipeline("p"), {"one": bl.Memory(), "two": bl.Memory()}
        windowed = read(p, played(stream), bl.BoundedOutOfOrderness(us(5))).window_into(TEN, trigger=OFTEN)
        counts = windowed.group_by("k").aggregate(n=bl.count()).named("counts")
        counts.promise(complete=0.6, within=us(20), hold=True)
        total = counts.window_into(bl.FixedWindows(us(30))).group_by("k").aggregate(n=bl.sum("n"))
        asked(counts).write("one", sinks["one"])
        asked(total.named("total").promise(complete=0.5, within=us(9))).write("two", sinks["two"])
        return p, sinks

    p, sinks = made()
    records = list(p.run().batches)
    query = Query(made()[0].plan(), shards, seed=shards)
    query.levels = [attrs.evolve(level, drains=True) for level in query.levels]  # as a test stream may go on
    batches = list(query.batches())
    for name, sink in sinks.items():
        on_shards = [output_frame(frame) for batch in batches for frame in batch.frames(name) if len(frame)]
        assert rows(pl.concat(on_shards) if on_shards else pl.DataFrame()) == rows(sink.frame())
    for stage in ("counts", "total"):
        ours = [record.stages[stage] for record in records]
        theirs = [batch.stages()[stage] for batch in batches]
        assert sum_of(ours) == sum_of(theirs)
        assert [one.shares for one in ours if one.shares] == [one.shares for one in theirs if one.shares]


def test_other_shards_go_on_with_the_lateness_that_was_learned() -> None:
    """Also tests a stage that does not read the source itself."""
    stream = [[("a", 1), ("b", 2)], [("a", 14), ("b", 9)], [("a", 25), ("b", 13)], [("b", 48)], [("a", 80)]]

    def declared() -> bl.Pipeline:
        p = bl.Pipeline("p")
        windowed = read(p, played(stream), bl.BoundedOutOfOrderness(us(5))).window_into(TEN)
        counts = windowed.group_by("k").aggregate(n=bl.count()).named("counts")
        total = counts.window_into(bl.FixedWindows(us(20))).group_by("k").aggregate(n=bl.sum("n"))
        asked(total.named("total")).write("out", bl.Memory())
        return p

    def run(*shards: int) -> list[Any]:
        plan = declared().plan()
        query, found = Query(plan, shards[0]), list[pl.DataFrame]()
        for step in range(len(stream)):
            if step == 3 and len(shards) > 1:
                query = reshard(query, plan, shards[1])
            found += [output_frame(one) for one in query.ordered(PlayStep(step)).frames("out") if len(one)]
        return rows(pl.concat(found))

    assert len(run(1)) > 2
    assert run(1) == run(3) == run(2, 3) == run(3, 1)


def sum_of(records: Iterable[Any]) -> Counter[str]:
    total: Counter[str] = Counter()
    for record in records:
        total.update(record.promised)
    return total


# Promises


@share_of(4)
@given(streams, st.sampled_from([0.3, 0.5, 0.7, 0.8]), st.integers(0, 30), st.sampled_from([0, 9]))
def test_a_run_that_holds_is_one_with_the_watermark_of_the_naive_model(
    stream: Stream, share: float, within: int, lateness: int
) -> None:
    held, told = bl.Pipeline("held"), bl.Pipeline("told")
    outs, events = [bl.Memory(), bl.Memory()], bl.TestStream(SCHEMA)
    watermark = MIN_TIME
    for number, batch in enumerate(stream):
        naive = Naive([[at for _, at in one] for one in stream[: number + 1]])
        assert naive.newest is not None
        open_until = max(naive.complete_until(share), naive.newest - within)
        events, before = events.add_elements(rows_of(batch)), watermark
        watermark = max(watermark, min(naive.newest - 5, open_until))
        if watermark > before:
            events = events.advance_watermark_to(us_text(watermark))
    for p, source, strategy, out in (
        (held, played(stream), bl.BoundedOutOfOrderness(us(5)), outs[0]),
        (told, events, None, outs[1]),
    ):
        windowed = read(p, source, strategy).window_into(TEN, trigger=OFTEN, allowed_lateness=us(lateness))
        counts = windowed.group_by("k").aggregate(n=bl.count()).named("counts")
        if p is held:
            counts.promise(complete=share, within=us(within), hold=True)
        counts.with_columns(cause=bl.pane_cause()).write("out", out)
    late = [
        sum(sum(batch.stages["counts"].dropped.values()) for batch in p.run().batches) for p in (held, told)
    ]
    assert rows(outs[0].frame()) == rows(outs[1].frame())
    assert late[0] == late[1]


@share_of(4)
@given(streams, st.sampled_from([0.3, 0.5, 0.7]), st.integers(0, 12), st.booleans())
def test_outcomes_are_those_of_the_on_time_panes(
    stream: Stream, share: float, within: int, hold: bool
) -> None:
    p = bl.Pipeline("p")
    windowed = read(p, played(stream), bl.BoundedOutOfOrderness(us(5))).window_into(TEN, trigger=OFTEN)
    counts = windowed.aggregate(n=bl.count()).named("counts")
    asked(counts.promise(complete=share, within=us(within), hold=hold)).write("out", out := bl.Memory())
    records = list(p.run().batches)
    want: Counter[str] = Counter({"kept": 0, "incomplete": 0, "delayed": 0})
    newest = MIN_TIME
    for number, record in enumerate(records):
        newest = max([newest, *(at for _, at in stream[number])]) if number < len(stream) else newest
        for one in record.stages["counts"].shares:
            if one.timing == "on_time":
                complete = one.share is not None and one.share >= share
                outcome = "kept" if complete else "incomplete"
                want["delayed" if newest - one.end > within else outcome] += one.panes
    assert sum_of(record.stages["counts"] for record in records) == want
    assert want.total() == sum(row["pane_timing"] == "on_time" for row in out.rows())


def test_a_checkpoint_goes_on_with_the_lateness_that_it_has_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    batches = [[0, 1], [10, 6], [20, 13], [30, 31], [40, 33], [60, 55]]

    def run(files: int, checkpoint: str, out: str) -> list[dict[str, Any]]:
        p = bl.Pipeline("p")
        source = bl.Parquet("in", schema={"k": str, "at": int}, order="path", max_files_per_trigger=1)
        windowed = read(p, source, bl.BoundedOutOfOrderness(us(5))).window_into(TEN)
        windowed.aggregate(n=bl.count()).with_columns(c=bl.pane_complete()).write("out", bl.Parquet(out))
        Path("in").mkdir(exist_ok=True)
        for number, batch in enumerate(batches[:files]):
            frame = pl.DataFrame({"k": ["a"] * len(batch), "at": batch})
            if not Path(f"in/{number}.parquet").exists():
                frame.write_parquet(f"in/{number}.parquet")
        p.run(bl.LocalRunner(checkpoint=checkpoint))
        return pl.read_parquet(f"{out}/*.parquet").sort("window_start").rows(named=True)

    run(3, "first", "parts")
    in_two = run(6, "first", "parts")
    assert in_two == run(6, "second", "whole")
    assert [row["n"] for row in in_two] == [3, 2, 1, 3, 1]
    assert all(0 < row["c"] < 1 for row in in_two)


@pytest.mark.slow
@pytest.mark.spark
def test_spark_states_what_the_local_runner_states(spark: Any) -> None:
    stream = played([[("a", 1), ("b", 2)], [("a", 14), ("b", 9)], [("a", 25), ("b", 3)], [("b", 48)]])

    def run(runner: Any) -> list[Any]:
        p = bl.Pipeline("p")
        windowed = read(p, stream, bl.BoundedOutOfOrderness(us(5))).window_into(TEN, trigger=OFTEN)
        counts = windowed.group_by("k").aggregate(n=bl.count()).named("counts")
        counts.promise(complete=0.6, within=us(20), hold=True)
        total = counts.window_into(bl.FixedWindows(us(30))).aggregate(n=bl.sum("n"))
        outs = [bl.Memory(), bl.Memory()]
        asked(counts).write("counts out", outs[0])
        asked(total.named("total")).write("total out", outs[1])
        done = p.run(runner)
        return [*(rows(out.frame()) for out in outs), sum_of(one.stages["counts"] for one in done.batches)]

    assert run(bl.SparkRunner(session=spark, shards=2)) == run(None)
