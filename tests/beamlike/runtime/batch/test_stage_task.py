"""The step of a stage on every runner: rows and watermarks in; panes, a report and a record out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.plan.model import StagePlan
from beamlike.records.seen_keys import might_contain, write_seen
from beamlike.runtime.batch.ingest import ingest
from beamlike.runtime.batch.ingested import Ingested
from beamlike.runtime.batch.stage_task import StageTask, StageTurn
from stages.grouping.pre_aggregation import pre_aggregate
from stages.operator import MAIN
from stages.progress.inputs import Arrived, Inputs
from stages.progress.reports import Report
from stages.state.store import DictStore

SECOND = 1_000_000


def plan() -> tuple[StageTask, Any]:
    """Plans a pipeline that counts plays by user and minute; returns the task of its only stage, and its source."""
    p = bl.Pipeline("p")
    source = bl.Rows([{"user": "a", "at": 0}])
    plays = p.read(
        "plays", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("5s")
    )
    counts = plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count())
    counts.map(lambda row: {"n": 10 // (row["n"] - 3)}, schema={"n": int}).write("out", bl.Memory())
    made = p.plan()
    (stage,) = made.stages.values()
    return StageTask(stage, {"plays": made.sources["plays"].watermark}, {}), made.sources["plays"]


def given(source: Any, *plays: tuple[str, int]) -> Ingested:
    rows = pl.DataFrame(plays, schema={"user": pl.String, "at": pl.Int64}, orient="row")
    return ingest(source, rows.lazy(), 0)


def turn(task: StageTask, known: Inputs, got: Ingested, store: DictStore) -> StageTurn:
    """Runs a batch with this input from the source."""
    inputs = task.receive(known, Arrived({"plays": got.summary}))
    return task.step(inputs, {MAIN: [("plays", got.frames[task.plan.name])]}, store)


def test_a_step_sends_panes_and_tells_where_the_stage_stands() -> None:
    task, source = plan()
    store = DictStore()
    first = turn(task, Inputs(), given(source, ("a", 3), ("a", 4), ("b", 70)), store)
    assert first.report.watermark == first.step.watermarks.output
    assert first.upstream["plays"].watermark == 65 * SECOND
    assert first.routed["main"].frames["out"]["n"].to_list() == [-10]
    second = turn(task, first.inputs, given(source, ("c", 200)), store)
    assert second.routed["main"].frames["out"]["n"].to_list() == [-5]
    assert task.source_records(second.inputs)["plays"].watermark == 195 * SECOND


def test_the_record_has_what_came_and_when_the_stage_was_done_with_it() -> None:
    task, source = plan()
    record = turn(task, Inputs(), given(source, ("a", 3), ("a", 4), ("b", 70)), DictStore()).record(17)
    assert (record.elements, record.panes, record.finished) == (3, {"on_time": 1}, 17)
    assert record.upstream["plays"].watermark == record.input == 65 * SECOND


def test_a_step_returns_the_keys_that_it_received_and_writes_none(tmp_path: Path) -> None:
    task, source = plan()
    done = turn(task, Inputs(), given(source, ("a", 3), ("b", 70)), DictStore())
    assert done.keys is not None
    assert done.without_keys().keys is None
    write_seen(None, done.keys)
    assert might_contain(str(tmp_path), task.plan.name, pl.DataFrame({"user": ["a"]})) is False
    write_seen(str(tmp_path), done.keys)
    seen = [might_contain(str(tmp_path), task.plan.name, pl.DataFrame({"user": [user]})) for user in "abc"]
    assert seen == [True, True, False]


def test_dead_letters_of_steps_after_the_stage_are_told_with_it() -> None:
    task, source = plan()
    got = given(source, ("a", 3), ("a", 4), ("a", 5), ("b", 70))
    letters = turn(task, Inputs(), got, DictStore()).dead_letters
    ((step, count),) = letters.counts.items()
    assert (step, count) == (task.plan.routes[0].steps[-1].name, 1)
    assert letters.used == (task.plan.name,)


def test_where_some_chunks_are_lifted_the_others_are_lifted_too() -> None:
    task, source = plan()
    layout = task.plan.stage.operator.layout
    one, other = given(source, ("a", 3), ("b", 4)), given(source, ("a", 5), ("b", 200))
    name = task.plan.name
    inputs = task.receive(Inputs(), Arrived({"plays": other.summary}))
    frames = [one.frames[name], other.frames[name]]
    plain = task.step(inputs, {MAIN: [("plays", frame) for frame in frames]}, DictStore())
    both = [("plays", frames[0]), ("plays", pre_aggregate(frames[1], layout))]
    mixed = task.step(inputs, {MAIN: both}, DictStore())
    assert mixed.routed["main"].frames["out"].sort("n").equals(plain.routed["main"].frames["out"].sort("n"))
    assert mixed.step.elements == plain.step.elements == 4


@pytest.mark.parametrize("reported", [["a", "b"], ["a"]])
def test_a_stage_waits_for_every_shard_upstream(reported: list[str]) -> None:
    task, _ = plan()
    below: StagePlan = attrs.evolve(task.plan, inputs=("above",), skews={})
    lower = StageTask(below, {}, {"above": ["a", "b"]}, shard=1, shards=2)
    inputs = lower.receive(Inputs(), Arrived(reports={name: Report(7 * SECOND) for name in reported}))
    step = lower.step(inputs, {}, DictStore())
    assert (step.upstream["above"].watermark == 7 * SECOND) == (reported == ["a", "b"])
