"""Every watermark strategy in a pipeline: on the local runner, on shards in process and on Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import attrs
import pytest

import beamlike as bl
from beamlike.io import Part, output_frame
from beamlike.io.test_stream.times import instant
from beamlike.records.model import BatchRecord, SourceRecord
from tests.support.shards import Query
from tests.support.strategy_cases import CASES, Case, came, passed, stream, timed
from tests.support.watermark_strategies import figure_3_11
from windowing.time import MIN_TIME, Microseconds

SECOND, MINUTE = 1_000_000, 60_000_000
TEN, TWENTY = bl.FixedWindows("10s"), bl.FixedWindows("20s")


@attrs.define
class ByBatch:
    """A sink that keeps the batches apart."""

    batches: dict[int, list[dict[str, Any]]] = attrs.field(factory=dict)

    distributed = False

    def start(self, run: str) -> None:
        self.batches.clear()

    def write(self, frame: Any, part: Part) -> None:
        if len(frame):
            rows = [*self.batches.get(part.batch, []), *frame.rows(named=True)]
            self.batches[part.batch] = sorted(rows, key=repr)


@attrs.frozen
class Declared:
    """A pipeline and its sinks."""

    pipeline: bl.Pipeline
    sinks: dict[str, ByBatch] = attrs.field(factory=dict)

    def write(self, collection: bl.Collection) -> bl.Collection:
        """Writes the collection to a sink with its name."""
        sink = self.sinks[f"{collection.name} out"] = ByBatch()
        collection.write(f"{collection.name} out", sink)
        return collection


@attrs.frozen
class Played:
    """The rows of every batch by sink, its stages, and its sources where they are recorded."""

    rows: Mapping[str, Mapping[int, list[dict[str, Any]]]]
    stages: list[dict[str, Any]]
    sources: list[Mapping[str, SourceRecord]]


def known(stages: Mapping[str, Any]) -> dict[str, Any]:
    facts = ("input", "output", "elements", "panes", "dropped", "live", "percentiles", "upstream")
    return {name: {fact: getattr(stage, fact) for fact in facts} for name, stage in stages.items()}


def run_of(declared: Declared, runner: Any = None) -> Played:
    batches: Iterable[BatchRecord] = list(declared.pipeline.run(runner).batches)
    rows = {name: sink.batches for name, sink in declared.sinks.items()}
    return Played(rows, [known(batch.stages) for batch in batches], [batch.sources for batch in batches])


def on_shards(declared: Declared, shards: int) -> Played:
    batches = list(Query(declared.pipeline.plan(), shards, seed=shards).batches())
    for number, batch in enumerate(batches):
        for name, sink in declared.sinks.items():
            for task, frame in enumerate(batch.frames(name)):
                sink.write(output_frame(frame), Part("q", number, task))
    rows = {name: sink.batches for name, sink in declared.sinks.items()}
    return Played(rows, [known(batch.stages()) for batch in batches], [])


def us(seconds: float | None) -> int:
    return MIN_TIME if seconds is None else round(seconds * SECOND)


# Every strategy


def declare(declared: Declared, name: str, case: Case) -> None:
    """Declares a source and counts of it per user in ten seconds; for some cases, then of all in twenty seconds."""
    rows = case.read(declared.pipeline, name, case.stream, case.strategy)
    windowed = rows.window_into(TEN, trigger=case.trigger)
    counted = windowed.group_by("user", name=f"{name}, by user").aggregate(n=bl.count())
    declared.write(counted)
    if name in ("early panes", "percentiles", "with timestamps"):
        total = counted.window_into(TWENTY, trigger=case.trigger).aggregate(n=bl.sum("n"))
        declared.write(total.named(f"{name}, in all"))


def all_cases() -> Declared:
    """Declares all strategies in one pipeline, each in its own part, and some that meet in a stage."""
    declared = Declared(bl.Pipeline("strategies"))
    for name, case in CASES.items():
        declare(declared, name, case)
    quiet_and_fast(declared)
    clocks_of_their_own(declared)
    return declared


@pytest.fixture(scope="module")
def local() -> Played:
    return run_of(all_cases())


def starts(played: Played, name: str, timing: str) -> dict[int, int]:
    """Returns, for the start (s) of each window with such a pane, the first batch that had one."""
    found: dict[int, int] = {}
    for batch, rows in played.rows[f"{name}, by user out"].items():
        for row in rows:
            if row["pane_timing"] == timing:
                found.setdefault(round(row["window_start"].timestamp()), batch)
    return found


@pytest.mark.parametrize("name", CASES)
def test_its_watermark_is_where_the_table_says_after_every_step(local: Played, name: str) -> None:
    case, steps = CASES[name], range(len(CASES[name].steps))
    assert [local.sources[step][name].watermark for step in steps] == [us(mark) for _, mark in case.steps]
    assert {step for step in steps if local.sources[step][name].idle} == case.idle
    inputs = [local.stages[step][f"{name}, by user"]["input"] for step in steps]
    assert inputs == [MIN_TIME if mark is None else us(mark - case.skew) for _, mark in case.steps]


@pytest.mark.parametrize("name", CASES)
def test_windows_fire_and_elements_are_late_by_its_watermark(local: Played, name: str) -> None:
    case, steps = CASES[name], range(len(CASES[name].steps))
    fired = {start: step for start, step in starts(local, name, "on_time").items() if step in steps}
    assert fired == case.fired
    assert starts(local, name, "early") == case.early
    dropped = [local.stages[step][f"{name}, by user"]["dropped"] for step in steps]
    assert sum(reasons.get("late", 0) for reasons in dropped) == case.late


def quiet_and_fast(declared: Declared) -> None:
    """Declares two sources, a stage of each, and one of both."""
    quiet = [came(5), passed(10), passed(20), passed(10), came(50)]
    fast = [came(8), came(12), came(23), came(41), came(45)]
    parts = []
    for name, steps, idle_after in (("quiet", quiet, "30s"), ("fast", fast, None)):
        strategy = bl.MonotonousTimestamps(idle_after=idle_after)
        rows = timed(declared.pipeline, name, stream(steps), strategy).window_into(TEN)
        parts.append(rows.group_by("user", name=f"{name}, by user").aggregate(n=bl.count()))
    both = bl.flatten(*parts, name="quiet and fast").window_into(TWENTY)
    declared.write(both.aggregate(n=bl.sum("n")).named("both"))


def test_who_is_idle_is_left_out_at_the_second_stage_too(local: Played) -> None:
    marks = [stages["both"]["input"] for stages in local.stages[:5]]
    assert marks == [us(second) for second in (5, 5, 23, 41, 45)]
    assert [stages["both"]["upstream"]["quiet, by user"].idle for stages in local.stages[:5]] == [
        False,
        False,
        True,
        True,
        False,
    ]
    # Its first rows after the silence may be late.
    assert [stages["both"]["dropped"] for stages in local.stages[:5]] == [{}, {}, {}, {}, {"late": 1}]


def clocks_of_their_own(declared: Declared) -> None:
    """Declares two sources of one stage; processing time advances for one of them only."""
    still = timed(declared.pipeline, "still", stream([came(5), came(6)]), bl.ProcessingTimeLag("10s"))
    strategy = bl.MonotonousTimestamps(idle_after="30s")
    ticking = timed(declared.pipeline, "ticking", stream([came(7), passed(60)]), strategy)
    rows = bl.flatten(still, ticking, name="still and ticking").window_into(TEN)
    declared.write(rows.aggregate(n=bl.count()).named("of two clocks"))


def test_a_source_is_judged_by_its_own_clock(local: Played) -> None:
    for played in (local.sources, [stages["of two clocks"]["upstream"] for stages in local.stages]):
        for step, idle in enumerate([False, True]):
            assert (played[step]["still"].watermark, played[step]["still"].idle) == (us(-10), False)
            assert (played[step]["ticking"].watermark, played[step]["ticking"].idle) == (us(7), idle)


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_every_step_is_the_same_on_any_number_of_shards(local: Played, shards: int) -> None:
    got = on_shards(all_cases(), shards)
    assert got.stages == local.stages
    assert got.rows == local.rows


@pytest.mark.slow
@pytest.mark.spark
def test_every_step_is_the_same_on_spark(spark: Any, local: Played) -> None:
    got = run_of(all_cases(), bl.SparkRunner(session=spark, shards=2))
    assert got.sources == local.sources
    assert got.stages == local.stages
    assert got.rows == local.rows


# Percentile watermarks


def chapter(every: int) -> Declared:
    """Declares figure 3-11: windows of two minutes, closed early by the 33rd and the 66th percentile."""
    events = bl.TestStream({"at": int})
    step, now = every * SECOND, 0
    for number, arrived in groupby(figure_3_11(), key=lambda event: -(-event[0] // step)):
        events = events.advance_processing_time(Microseconds(number * step - now))
        events = events.add_elements([{"at": time} for _, time in arrived])
        now = number * step
    declared = Declared(bl.Pipeline("figure 3-11"))
    strategy = bl.BoundedOutOfOrderness("2m30s", percentiles=(33, 66))
    rows = declared.pipeline.read("events", events, timestamp="at", timestamp_unit="us", watermark=strategy)
    shares = (bl.AfterWatermark(percentile=share) for share in (33, 66))
    windowed = rows.window_into(
        bl.FixedWindows("2m"),
        trigger=bl.AfterEach(*shares, bl.DefaultTrigger()),
        accumulation="accumulating",
        allow_repeats=True,
    )
    declared.write(windowed.aggregate(n=bl.count()).named("counts"))
    return declared


def test_figure_3_11() -> None:
    """Ten events of a window: at 12:06 it is closed with four of them, at 12:07 with seven, at 12:08 with all."""
    declared, noon = chapter(every=20), instant("2026-01-01T12:00:00Z")
    batches = declared.pipeline.run().batches
    seen = [
        (round((batches[batch].processing_time - noon) / MINUTE), row["n"], row["pane_timing"])
        for batch, rows in declared.sinks["counts out"].batches.items()
        for row in rows
        if row["window_start"].timestamp() * SECOND == noon
    ]
    assert seen == [(6, 4, "early"), (7, 7, "early"), (8, 10, "on_time")]
    assert sum(batch.stages["counts"].dropped.get("late", 0) for batch in batches) == 0


def test_figure_3_11_on_shards() -> None:
    expected, got = run_of(chapter(every=30)), on_shards(chapter(every=30), 3)
    assert got.stages == expected.stages
    assert got.rows == expected.rows
