"""Test streams in pipelines: each step is the same on every runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

import beamlike as bl
from beamlike.io import Part, output_frame
from beamlike.records.model import BatchRecord
from beamlike.testing import TestStream
from tests.beamlike.io.test_stream.test_stream import EMPTY, SECOND, play
from tests.support.shards import Query
from windowing.time import MAX_TIME, MIN_TIME
from windowing.triggers.base import Repeatedly
from windowing.triggers.processing_time import AfterProcessingTime

# In a pipeline


@attrs.frozen
class Played:
    """The rows of each sink in each batch, and the stage records after it."""

    rows: Mapping[str, Mapping[int, list[tuple[Any, ...]]]]
    stages: list[dict[str, Any]]


@attrs.define
class ByBatch:
    """A sink that keeps the batches apart."""

    batches: dict[int, list[tuple[Any, ...]]] = attrs.field(factory=dict)

    distributed = False

    def start(self, run: str) -> None:
        self.batches.clear()

    def write(self, frame: Any, part: Part) -> None:
        if len(frame):
            self.batches[part.batch] = sorted([*self.batches.get(part.batch, []), *frame.rows()], key=repr)


Declared = tuple[bl.Pipeline, dict[str, ByBatch]]


def known(stages: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: (stage.input, stage.output, stage.elements, dict(stage.panes), dict(stage.dropped), stage.live)
        for name, stage in stages.items()
    }


def run_of(declare: Callable[[], Declared], runner: Any = None) -> tuple[Played, list[BatchRecord]]:
    p, sinks = declare()
    run = p.run(runner)
    rows = {name: sink.batches for name, sink in sinks.items()}
    return Played(rows, [known(batch.stages) for batch in run.batches]), list(run.batches)


def on_shards(declare: Callable[[], Declared], shards: int) -> Played:
    p, sinks = declare()
    batches = list(Query(p.plan(), shards, seed=shards).batches())
    for number, batch in enumerate(batches):
        for name, sink in sinks.items():
            for task, frame in enumerate(batch.frames(name)):
                sink.write(output_frame(frame), Part("q", number, task))
    return Played(
        {name: sink.batches for name, sink in sinks.items()}, [known(batch.stages()) for batch in batches]
    )


def read(p: bl.Pipeline, name: str, stream: TestStream) -> bl.Collection:
    return p.read(name, stream, timestamp="at", timestamp_unit="s")


def totals(plays: bl.Collection, trigger: Any = None, **choices: Any) -> bl.Collection:
    windowed = plays.window_into(
        bl.FixedWindows(10), trigger=trigger or bl.AfterWatermark(early=bl.AfterCount(2)), **choices
    )
    return windowed.group_by("user").aggregate(total=bl.sum("score"))


ADA = (
    EMPTY.add_elements([play("ada", 1), play("ada", 2, 2), play("bob", 3), play("eve", None)])
    .add_elements([])
    .advance_watermark_to(9)
    .advance_watermark_to(12)
    .add_elements([play("ada", 4, 4), play("cyd", 13)])
    .advance_watermark_to(17)
    .add_elements([play("ada", 5, 8), play("bob", 16)])
)
BOB = (
    EMPTY.advance_watermark_to(4)
    .advance_processing_time(30)
    .add_elements([play("bob", 6, 5)])
    .advance_watermark_to_infinity()
)


def two_streams() -> Declared:
    """Declares two streams, each grouped alone, then together; late rows and dead letters have their own sinks."""
    p = bl.Pipeline("two")
    sinks = {name: ByBatch() for name in ("of ada", "of bob", "of all", "late", "lost")}
    ada, bob = read(p, "ada", ADA), read(p, "bob", BOB)
    ada.dead_letters().write("lost", sinks["lost"])
    trigger = bl.AfterWatermark(early=bl.AfterCount(2), late=bl.AfterCount(1))
    first = totals(ada, trigger, allowed_lateness=5).write("of ada", sinks["of ada"])
    first.late().write("late", sinks["late"])
    second = totals(bob, trigger, allowed_lateness=5).write("of bob", sinks["of bob"])
    everyone = bl.flatten(first, second).window_into(bl.FixedWindows(20))
    everyone.aggregate(total=bl.sum("total")).write("of all", sinks["of all"])
    return p, sinks


def test_step_n_is_batch_n_and_one_more_ends_all() -> None:
    played, batches = run_of(two_streams)
    assert [batch.batch for batch in batches] == list(range(8))
    marks = [(batch.sources["ada"].watermark, batch.sources["bob"].watermark) for batch in batches]
    low, end = MIN_TIME, MAX_TIME
    seconds = [(low, 4), (low, 4), (9, 4), (12, end), (12, end), (17, end), (17, end), (end, end)]
    assert marks == [tuple(at if at in (low, end) else at * SECOND for at in pair) for pair in seconds]
    assert [len(played.rows["of ada"].get(number, [])) for number in range(8)] == [1, 0, 0, 2, 1, 0, 0, 2]
    assert [(user, score) for user, _, score, *_ in (row[2:] for row in played.rows["late"][6])] == [
        ("ada", 8)
    ]
    assert list(played.rows["lost"]) == [0]
    assert list(played.rows["of bob"]) == [3]


def test_a_stream_knows_only_its_own_processing_time() -> None:
    _, batches = run_of(two_streams)
    assert [batch.processing_time for batch in batches] == [0, *[30 * SECOND] * 7]
    p, ada = bl.Pipeline("own"), ByBatch()
    ticking = Repeatedly(AfterProcessingTime(10))
    still = read(p, "still", EMPTY.add_elements([play("a", 1)]).add_elements([play("a", 2)]))
    totals(still, ticking).write("out", ada)
    fast = EMPTY.advance_processing_time("1h").advance_processing_time("1h")
    totals(read(p, "fast", fast)).write("fast out", bl.Memory())
    p.run()
    assert list(ada.batches) == [2]


def early_by_processing_time() -> Declared:
    """Declares early panes by processing time; the second grouping receives the time in the same batch."""
    p, sinks = bl.Pipeline("early"), {"out": ByBatch(), "again": ByBatch()}
    stream = (
        EMPTY.add_elements([play("a", 1), play("b", 2)])
        .advance_processing_time(5)
        .add_elements([play("a", 3)])
        .advance_processing_time(6)
        .advance_processing_time(20)
        .add_elements([play("b", 4)])
        .advance_processing_time(11)
    )
    early = totals(read(p, "plays", stream), bl.AfterWatermark(early=AfterProcessingTime(10)))
    early.write("out", sinks["out"])
    early.group_by("user").aggregate(total=bl.sum("total")).write("again", sinks["again"])
    return p, sinks


def test_triggers_see_the_processing_time_of_the_stream() -> None:
    played, _ = run_of(early_by_processing_time)
    assert list(played.rows["out"]) == [3, 6, 7]
    assert [row[2:4] for row in played.rows["out"][3]] == [("a", 2), ("b", 1)]


def by_percentile() -> Declared:
    p, sinks = bl.Pipeline("percentile"), {"out": ByBatch()}
    stream = (
        EMPTY.advance_watermark_to(1, percentiles={66: 5})
        .add_elements([play("a", 2)])
        .advance_watermark_to(2, percentiles={66: 10})
        .advance_watermark_to(11)
    )
    other = EMPTY.advance_watermark_to(3, percentiles={66: 50})
    plays = bl.flatten(read(p, "plays", stream), read(p, "others", other))
    totals(plays, bl.AfterWatermark(early=bl.AfterWatermark(percentile=66))).write("out", sinks["out"])
    return p, sinks


def test_a_percentile_watermark_makes_an_early_pane() -> None:
    played, _ = run_of(by_percentile)
    assert [(batch, row[5]) for batch, rows in played.rows["out"].items() for row in rows] == [
        (2, "early"),
        (4, "on_time"),
    ]


DECLARED = {"two": two_streams, "early": early_by_processing_time, "percentile": by_percentile}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("name", DECLARED)
def test_every_step_is_the_same_on_any_number_of_shards(name: str, shards: int) -> None:
    expected, _ = run_of(DECLARED[name])
    got = on_shards(DECLARED[name], shards)
    assert got.rows == expected.rows
    assert got.stages == expected.stages


def test_an_unbounded_stream_cannot_be_grouped_as_a_whole() -> None:
    p = bl.Pipeline("whole")
    whole = read(p, "end", EMPTY.add_elements([play("a", 1)]).advance_watermark_to_infinity())
    out = bl.Memory()
    whole.group_by("user").aggregate(n=bl.count()).write("out", out)
    p.run()
    assert [row["n"] for row in out.rows()] == [1]
    with pytest.raises(bl.PlanError):
        read(p, "no end", EMPTY).group_by("user").aggregate(n=bl.count())


# On Spark


@pytest.mark.slow
@pytest.mark.spark
def test_every_step_is_the_same_on_spark(spark: Any) -> None:
    for declare in DECLARED.values():
        expected, records = run_of(declare)
        got, batches = run_of(declare, bl.SparkRunner(session=spark, shards=2))
        assert got.rows == expected.rows
        assert got.stages == expected.stages
        assert [batch.batch for batch in batches] == [batch.batch for batch in records]
        assert [batch.sources for batch in batches] == [batch.sources for batch in records]
        assert [batch.processing_time for batch in batches] == [batch.processing_time for batch in records]


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_that_was_stopped_goes_on_with_the_next_step_and_with_no_other_stream(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = run_of(two_streams)
    p, _ = two_streams()

    def stop(record: BatchRecord) -> None:
        if record.batch == 3:
            raise RuntimeError("enough")

    with pytest.raises(bl.RunError, match="enough"):
        p.run(bl.SparkRunner(tmp_path, session=spark, shards=2, on_batch=stop))
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "BOB", EMPTY.advance_watermark_to(4))
        with pytest.raises(bl.CheckpointError, match="test streams are not those of the checkpoint"):
            run_of(two_streams, bl.SparkRunner(tmp_path, session=spark, shards=2))
    got, batches = run_of(two_streams, bl.SparkRunner(tmp_path, session=spark, shards=2))
    assert [batch.batch for batch in batches] == [3, 4, 5, 6, 7]
    assert got.stages == expected.stages[3:]
    with pytest.raises(bl.CheckpointError, match="was drained"):
        run_of(two_streams, bl.SparkRunner(tmp_path, session=spark, shards=2))
