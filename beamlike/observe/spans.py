"""The sources, stages and sinks of a batch, with the times at which each began and ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from beamlike.observe.words import moment
from beamlike.plan.model import Plan
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord
from beamlike.runtime.run.telemetry import FinishedBatch

Facts = dict[str, Any]


@attrs.frozen
class PartOfBatch:
    """A source, stage or sink in a batch: its start and end (us), and facts about it by name."""

    kind: str
    name: str
    since: int
    until: int
    facts: Facts


def parts_of(plan: Plan, done: FinishedBatch) -> Iterator[PartOfBatch]:
    """Yields the sources, stages and sinks of a batch.

    Times are exact for activities of this process. On Spark, other processes run the stages: there, a stage begins when
    the stages before it are done. A sink that tasks write begins with the last of its inputs, and ends with the batch.
    """
    times = {(one.kind, one.name): one for one in done.activities}
    record = done.record
    for kind, names, facts in (
        ("source", plan.sources, _of_source),
        ("stage", plan.stages, _of_stage),
        ("sink", plan.sinks, _of_sink),
    ):
        for name in names:
            found = times.get((kind, name))
            if found is None and not _took_part(record, kind, name):
                continue
            span = _reported(plan, done, kind, name) if found is None else (found.since, found.until)
            since, until = (min(max(time, done.started), done.ended) for time in span)
            extra = {} if found is None else {"busy_seconds": found.busy / 1_000_000, "count": found.count}
            yield PartOfBatch(kind, name, since, max(since, until), {**facts(record, name), **extra})


def _took_part(record: BatchRecord, kind: str, name: str) -> bool:
    if kind == "stage":
        return name in record.stages and record.stages[name].finished is not None
    return kind == "sink" and name in record.sinks


def _reported(plan: Plan, done: FinishedBatch, kind: str, name: str) -> tuple[int, int]:
    """Returns the start and end of a stage or sink that other processes have run."""
    stages = done.record.stages
    inputs = plan.sinks[name].inputs if kind == "sink" else plan.stages[name].inputs
    before = [stages[one].finished or done.started for one in inputs if one in stages]
    finished = stages[name].finished if kind == "stage" else None
    return max(before, default=done.started), done.ended if finished is None else finished


def facts_of_batch(record: BatchRecord) -> Facts:
    """Returns the number of a batch, and the sums of its elements, dead letters and written rows."""
    return {
        "batch": record.batch,
        "batches": record.batches,
        "elements": sum(source.elements for source in record.sources.values()),
        "dead_letters": sum(record.set_aside.values()),
        "rows_written": sum(record.sinks.values()),
    }


def _of_source(record: BatchRecord, name: str) -> Facts:
    source = record.sources.get(name) or SourceRecord(0)
    return {
        "rows": source.read,
        "elements": source.elements,
        "dead_letters": source.dead_letters,
        "watermark": moment(source.watermark),
        "idle": source.idle,
    }


def _of_stage(record: BatchRecord, name: str) -> Facts:
    stage = record.stages.get(name) or StageRecord(0, 0, "")
    return {
        "elements": stage.elements,
        "pending": stage.pending,
        "live_windows": stage.live,
        "state_bytes": stage.bytes,
        "input_watermark": moment(stage.input),
        "output_watermark": moment(stage.output),
        **_each("panes", stage.panes),
        **_each("dropped", stage.dropped),
    }


def _each(what: str, counts: Mapping[str, int]) -> Facts:
    return {f"{what}.{name.replace(' ', '_')}": count for name, count in counts.items()}


def _of_sink(record: BatchRecord, name: str) -> Facts:
    return {"rows": record.sinks.get(name, 0)}
