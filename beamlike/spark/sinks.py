"""What becomes of a batch: tasks write files, the driver gets the rest, in one Spark job.

A batch that is replayed writes the same parts again, so nothing is doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from beamlike.ingest import DEAD_LETTERS
from beamlike.io.base import Part, Sink, output_frame
from beamlike.plan import Plan
from beamlike.records import BatchRecord, SourceRecord, StageRecord, merged
from beamlike.spark.envelope import ARROW, DDL, RECORDS, Envelope, Kind
from windowing.time import MIN_TIME


@attrs.define
class BatchWriter:
    """The `foreachBatch` function of a run; `on_batch` gets the record of each batch."""

    plan: Plan
    run: str
    dead_letters: Sink
    on_batch: Callable[[BatchRecord], None]
    latest: BatchRecord | None = None

    def __call__(self, envelopes: DataFrame, batch: int) -> None:
        sinks = {name: sink.sink for name, sink in self.plan.sinks.items()} | {DEAD_LETTERS: self.dead_letters}
        by_tasks = {name: sink for name, sink in sinks.items() if sink.distributed}
        rest = envelopes.mapInArrow(_write_in_task(by_tasks, self.run, batch), DDL)
        arrived = [Envelope(*row) for row in rest.collect()]
        arrived.sort(key=lambda envelope: (envelope.origin, envelope.sequence))
        for name, sink in sinks.items():
            frames = [envelope.frame() for envelope in arrived if envelope.target == name]
            if frames:
                sink.write(output_frame(pl.concat(frames)), Part(self.run, batch, sink=name))
        self.latest = self._record(batch, [envelope for envelope in arrived if envelope.target == RECORDS])
        self.on_batch(self.latest)

    def _record(self, batch: int, notes: list[Envelope]) -> BatchRecord:
        facts = [(note.origin, note.facts()) for note in notes]
        now = max((fact["now"] for _, fact in facts), default=0)
        before = self.latest or BatchRecord(batch, now, {}, {})
        sources = merged((name, SourceRecord(**fact["source"])) for name, fact in facts if "source" in fact)
        stages = merged((name, StageRecord(**fact["stage"])) for name, fact in facts if "stage" in fact)
        return BatchRecord(
            batch,
            now,
            {name: _source(sources.get(name), before.sources.get(name)) for name in self.plan.sources},
            {name: stages.get(name) or _quiet(before.stages.get(name)) for name in self.plan.stages},
        )


def _source(now: SourceRecord | None, before: SourceRecord | None) -> SourceRecord:
    """The watermark of a source never goes back; a source that gave nothing stays where it was."""
    watermark = before.watermark if before else MIN_TIME
    return SourceRecord(watermark).plus(now) if now else SourceRecord(watermark)


def _quiet(before: StageRecord | None) -> StageRecord:
    return before.quiet() if before else StageRecord(MIN_TIME, MIN_TIME, "nothing has come yet")


def _write_in_task(
    sinks: Mapping[str, Sink], run: str, batch: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Writes what is for these sinks, one part per task, and lets the rest through."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        held: dict[str, list[dict[str, Any]]] = {}
        for rows in batches:
            passing = []
            for row in rows.to_pylist():
                if row["target"] in sinks and row["kind"] == Kind.DATA:
                    held.setdefault(row["target"], []).append(row)
                else:
                    passing.append(row)
            yield pa.RecordBatch.from_pylist(passing, schema=ARROW)
        for name, parts in held.items():
            parts.sort(key=lambda row: (row["origin"], row["sequence"]))
            frames = [Envelope(**row).frame() for row in parts]
            sinks[name].write(output_frame(pl.concat(frames)), Part(run, batch, task, name))

    return write
