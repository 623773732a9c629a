"""What becomes of a batch: its tasks write files, the driver gets the rest, in the one job that runs it.

A batch that is replayed writes the same parts again, so nothing is doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs
import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from beamlike.ingest import DEAD_LETTERS
from beamlike.io.base import Part, Sink, output_frame
from beamlike.io.files import Files
from beamlike.io.paths import absolute
from beamlike.plan import Plan
from beamlike.records import BatchRecord, SourceRecord, StageRecord, merged
from beamlike.spark.envelope import DDL, RECORDS, Envelope, to_arrow
from windowing.time import MIN_TIME


@attrs.define
class BatchWriter:
    """The `foreachBatch` function of a run; `on_batch` gets the record of each batch."""

    plan: Plan
    run: str
    on_batch: Callable[[BatchRecord], None]
    latest: BatchRecord | None = attrs.field(default=None, init=False)

    def __call__(self, envelopes: DataFrame, batch: int) -> None:
        arrived = [Envelope(*row) for row in envelopes.collect()]
        arrived.sort(key=lambda envelope: (envelope.origin, envelope.sequence))
        for name, sink in self.plan.sinks.items():
            frames = [envelope.frame() for envelope in arrived if envelope.target == name]
            if frames:
                sink.sink.write(output_frame(pl.concat(frames)), Part(self.run, batch, sink=name))
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


@attrs.frozen
class PartWriter:
    """What tasks do at the end of the query: write what is for sinks that they can write, one part per task."""

    sinks: Mapping[str, Sink]
    run: str

    @classmethod
    def of(cls, plan: Plan, run: str, dead_letters: Sink) -> PartWriter:
        sinks = {name: sink.sink for name, sink in plan.sinks.items()} | {DEAD_LETTERS: dead_letters}
        return cls({name: _anywhere(sink) for name, sink in sinks.items() if sink.distributed}, run)

    def write(self, envelopes: Iterable[Envelope], task: int) -> Iterator[Envelope]:
        """Lets through what is for others. The number of the task is the same when the batch is replayed."""
        held: dict[str, list[Envelope]] = {name: [] for name in self.sinks}
        for envelope in envelopes:
            if envelope.target in held:
                held[envelope.target].append(envelope)
            else:
                yield envelope
        for name, parts in held.items():
            if parts:
                parts.sort(key=lambda envelope: (envelope.origin, envelope.sequence))
                frame = output_frame(pl.concat([part.frame() for part in parts]))
                self.sinks[name].write(frame, Part(self.run, _batch(), task, name))


def _anywhere(sink: Sink) -> Sink:
    """The sink with its path as the driver means it: executors have working directories of their own."""
    return attrs.evolve(sink, path=absolute(sink.path)) if isinstance(sink, Files) else sink


def _batch() -> int:
    """The number of the batch that this task is of."""
    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    if number is None:
        raise RuntimeError("Spark does not tell its task which batch it is of")
    return int(number)


def write_in_tasks(envelopes: DataFrame, writer: PartWriter, labels: tuple[int, ...]) -> DataFrame:
    """An operator that only writes: for a query without levels, whose last level would do it.

    Rows go to the partition of their label first, so that a batch that is replayed has the same parts, on however
    many machines.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrived: dict[int, list[Envelope]] = {}
        for rows in batches:
            for row in rows.to_pylist():
                arrived.setdefault(row["shard"], []).append(Envelope(**row))
        for label, sent in arrived.items():
            yield to_arrow(list(writer.write(sent, labels.index(label))))

    return envelopes.repartition(len(labels), "shard").mapInArrow(write, DDL)
