"""What tasks write themselves: what is for sinks that they can write, where it is made or where it has come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import attrs
import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from beamlike.io.base import Part, Sink, WrittenInFrames, output_frame
from beamlike.io.sinks import TwoPhase, written_by_tasks
from beamlike.runtime.envelope import DDL, RECORDS, Envelope, note, to_arrow
from beamlike.runtime.messages import AgainMessage, SinkMessage
from beamlike.runtime.sinks import writing
from beamlike.spark.query.leftovers import is_again
from beamlike.spark.query.task_activity import TaskTrackers, batch_of
from beamlike.spark.session.workers import settled
from beamlike.system.activity import activity


@attrs.frozen
class PartWriter:
    """What tasks do at the end of the query: write what is for sinks that they can write, one part per task."""

    sinks: Mapping[str, WrittenInFrames]
    run: str

    @classmethod
    def of(cls, sinks: Mapping[str, Sink], run: str) -> PartWriter:
        """Of all that a run writes to."""
        by_tasks = {name: sink for name, sink in sinks.items() if written_by_tasks(sink)}
        return cls({name: _anywhere(sink) for name, sink in by_tasks.items()}, run)

    def at_sources(self, first: int, step: int) -> SourceParts:
        """For the tasks of a stream of sources, whose parts have every number from `first` that is a `step` away."""
        direct = {name for name, sink in self.sinks.items() if isinstance(sink, TwoPhase)}
        return SourceParts(self, frozenset(direct), first, step)

    def write(self, envelopes: Iterable[Envelope], task: int) -> Iterator[Envelope]:
        """Lets through what is for others. The number of the task is the same when the batch is replayed."""
        if is_again(TaskContext.get()):
            yield note(0, RECORDS, RECORDS, AgainMessage())
        held: dict[str, list[Envelope]] = {name: [] for name in self.sinks}
        for envelope in envelopes:
            if envelope.target in held:
                held[envelope.target].append(envelope)
            else:
                yield envelope
        for name, parts in held.items():
            if parts:
                parts.sort(key=lambda envelope: (envelope.origin, envelope.sequence))
                told = self.part(name, [part.frame() for part in parts], task)
                yield note(parts[0].shard, RECORDS, name, told)

    def part(self, name: str, frames: list[pl.DataFrame], task: int) -> SinkMessage:
        """Writes these rows as the part of the task. Files only the driver shows, when it knows which attempt counts:
        another may still be at it then.
        """
        sink, part = self.sinks[name], Part(self.run, _batch(), task, name)
        frame = output_frame(pl.concat(frames))
        files: Mapping[str, str] = {}
        with activity("sink", name), writing(sink, name, part.batch):
            if isinstance(sink, TwoPhase):
                files = sink.prepare(frame, part)
            else:
                sink.write(frame, part)
        return SinkMessage(len(frame), files)


@attrs.frozen
class SourceParts:
    """Rows that go from a source straight to files: the task that has them writes them, so nothing ships them.

    Which task has which rows may differ when a batch is done again, as with more cores; only sinks whose parts the
    driver shows take that.
    """

    writer: PartWriter
    sinks: frozenset[str]
    first: int
    step: int

    def begin(self) -> TaskParts:
        """Of the task that this is, with a number that no other of the batch has."""
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        return TaskParts(self, self.first + self.step * partition, is_again(context))


@attrs.define
class TaskParts:
    """What a task holds for the sinks that it writes; each frame with what puts it in order."""

    source: SourceParts
    task: int
    again: bool
    _held: dict[str, list[tuple[str, int, pl.DataFrame]]] = attrs.field(
        factory=partial(defaultdict[str, list[tuple[str, int, pl.DataFrame]]], list)
    )

    def takes(self, target: str, frame: pl.DataFrame, origin: str, sequence: int) -> bool:
        """Keeps the rows if it writes them."""
        if target not in self.source.sinks:
            return False
        if len(frame):
            self._held[target].append((origin, sequence, frame))
        return True

    def close(self, label: int) -> Iterator[pa.RecordBatch]:
        """Writes all of it; what the driver is told of that goes by the partition with this label."""
        for name, held in self._held.items():
            held.sort(key=lambda each: each[:2])
            told = self.source.writer.part(name, [frame for _, _, frame in held], self.task)
            yield to_arrow([note(label, RECORDS, name, told)])
        if self.again:
            yield to_arrow([note(label, RECORDS, RECORDS, AgainMessage())])


NO_PARTS: Final = PartWriter({}, "")
"""Where tasks write nothing."""


def _anywhere(sink: WrittenInFrames) -> WrittenInFrames:
    """The sink with its path as the driver means it: executors have working directories of their own."""
    return sink.from_anywhere() if isinstance(sink, TwoPhase) else sink


def _batch() -> int:
    """The number of the batch that this task is of."""
    number = batch_of(TaskContext.get())
    if number is None:
        raise RuntimeError("Spark does not tell its task which batch it is of")
    return number


def write_in_tasks(
    envelopes: DataFrame, writer: PartWriter, labels: tuple[int, ...], trackers: TaskTrackers
) -> DataFrame:
    """An operator that only writes: for a query without levels, whose last level would do it.

    Rows go to the partition of their label first, so that a batch that is replayed has the same parts, on however
    many machines.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrived: dict[int, list[Envelope]] = {}
        for rows in batches:
            for row in rows.to_pylist():
                arrived.setdefault(row["shard"], []).append(Envelope(*row.values()))
        for label, sent in arrived.items():
            yield to_arrow(list(writer.write(sent, labels.index(label))))

    return envelopes.repartition(len(labels), "shard").mapInArrow(settled(trackers.tracked(write, 1)), DDL)
