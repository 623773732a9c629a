"""Writes sinks in Spark's tasks: a task of a source writes its rows itself, or the last operator of the query writes
all rows that are sent to it.

Spark may repeat a task. `is_again` is False for its first attempt, and True for all others.
"""

from __future__ import annotations

import logging
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
from beamlike.runtime.batch.envelope import RECORDS, Envelope, message_envelope, to_arrow
from beamlike.runtime.batch.messages import AgainMessage, RetriesMessage, SinkMessage
from beamlike.runtime.batch.writing import write_part, written
from beamlike.spark.query.applied import applied
from beamlike.spark.query.task_activity import TaskTrackers, batch_of
from beamlike.system.activity import activity, taken_retries


@attrs.frozen
class PartWriter:
    """The writer of the last operator of the query. For each sink that tasks can write, a task writes one part of a
    batch.
    """

    sinks: Mapping[str, WrittenInFrames]
    run: str
    own_names: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, sinks: Mapping[str, Sink], run: str, own_names: Mapping[str, str]) -> PartWriter:
        """Creates the writer for the sinks of a run. `own_names` are those of `Plan.own_names`."""
        by_tasks = {name: sink for name, sink in sinks.items() if written_by_tasks(sink)}
        return cls({name: _anywhere(sink) for name, sink in by_tasks.items()}, run, own_names)

    def at_sources(self, first: int, step: int) -> SourceParts:
        """Returns the writer for the source tasks of one stream. Parts of several streams must have different numbers:
        task n of this stream writes part `first + n * step`.
        """
        direct = {name for name, sink in self.sinks.items() if isinstance(sink, TwoPhase)}
        return SourceParts(self, frozenset(direct), first, step)

    def write(self, envelopes: Iterable[Envelope], task: int) -> Iterator[Envelope]:
        """Writes the rows of envelopes that are addressed to a sink, and yields all other envelopes and the reports for
        the driver.

        `task` is the number of the part. A replay of the batch gives the same rows the same number.
        """
        if is_again(TaskContext.get()):
            yield message_envelope(0, RECORDS, RECORDS, AgainMessage())
        held: dict[str, list[Envelope]] = {name: [] for name in self.sinks}
        for envelope in envelopes:
            if envelope.target in held:
                held[envelope.target].append(envelope)
            else:
                yield envelope
        for name, parts in held.items():
            if parts:
                # Sorted, so that a replayed batch writes the same bytes.
                parts.sort(key=lambda envelope: (envelope.origin, envelope.sequence))
                message = self.part(name, [part.frame() for part in parts], task)
                yield message_envelope(parts[0].shard, RECORDS, name, message)
        if count := taken_retries():
            yield message_envelope(0, RECORDS, RECORDS, RetriesMessage(count))

    def part(self, name: str, frames: list[pl.DataFrame], task: int) -> SinkMessage:
        """Writes frames as one part of a sink, and returns the report for the driver.

        Files are not published here: only the driver knows which attempt counts, and another attempt may still be
        writing.
        """
        sink, part = self.sinks[name], Part(self.run, _batch(), task, self.own_names.get(name, name))
        frame = output_frame(pl.concat(frames))
        files: Mapping[str, str] = {}
        with activity("sink", name):
            if isinstance(sink, TwoPhase):
                files = written(sink, name, part.batch, lambda repeated: sink.prepare(frame, part))
            else:
                write_part(sink, frame, part)
        return SinkMessage(len(frame), files)


@attrs.frozen
class SourceParts:
    """The writer of source tasks, for rows that need no stage between source and sink. The task writes them itself, so
    they are not sent to another one.

    In a replay, tasks may have other rows, for example with another number of cores. So this is only for sinks whose
    parts the driver publishes.
    """

    writer: PartWriter
    sinks: frozenset[str]
    first: int
    step: int

    def begin(self) -> TaskParts:
        """Returns the collector of rows for the current task. No other task of the batch has the same part number."""
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        return TaskParts(self, self.first + self.step * partition, is_again(context))


@attrs.define
class TaskParts:
    """The rows that a source task has collected for sinks, until it writes them. `_held` has frames with their sort
    keys, by sink.
    """

    source: SourceParts
    task: int
    again: bool
    _held: dict[str, list[tuple[str, int, pl.DataFrame]]] = attrs.field(
        factory=partial(defaultdict[str, list[tuple[str, int, pl.DataFrame]]], list)
    )

    def takes(self, target: str, frame: pl.DataFrame, origin: str, sequence: int) -> bool:
        """Collects rows for the sink `target`, and returns True. Returns False for a target that this task does not
        write.
        """
        if target not in self.source.sinks:
            return False
        if len(frame):
            self._held[target].append((origin, sequence, frame))
        return True

    def close(self, label: int) -> Iterator[pa.RecordBatch]:
        """Writes the collected rows, and yields the reports for the driver, addressed to the partition with the label
        `label`.
        """
        for name, held in self._held.items():
            held.sort(key=lambda each: each[:2])
            message = self.source.writer.part(name, [frame for _, _, frame in held], self.task)
            yield to_arrow([message_envelope(label, RECORDS, name, message)])
        if self.again:
            yield to_arrow([message_envelope(label, RECORDS, RECORDS, AgainMessage())])
        if count := taken_retries():
            yield to_arrow([message_envelope(label, RECORDS, RECORDS, RetriesMessage(count))])


NO_PARTS: Final = PartWriter({}, "")
"""A writer without sinks."""


def _anywhere(sink: WrittenInFrames) -> WrittenInFrames:
    """Returns the sink with an absolute path of the driver, because executors have other working directories."""
    return sink.from_anywhere() if isinstance(sink, TwoPhase) else sink


def _batch() -> int:
    """Returns the number of the current task's batch."""
    number = batch_of(TaskContext.get())
    if number is None:
        raise RuntimeError("Spark has not passed the number of the batch to its task")
    return number


def write_in_tasks(
    envelopes: DataFrame, writer: PartWriter, labels: tuple[int, ...], trackers: TaskTrackers
) -> DataFrame:
    """Returns the stream of envelopes after an operator that writes the sinks, for a query without stages. In other
    queries, the operator of the last level writes them.

    Rows are first sent to the partition of their label, so that a replayed batch has the same parts on any number of
    machines.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrived: dict[int, list[Envelope]] = {}
        for rows in batches:
            for row in rows.to_pylist():
                arrived.setdefault(row["shard"], []).append(Envelope(*row.values()))
        for label, sent in arrived.items():
            yield to_arrow(list(writer.write(sent, labels.index(label))))

    return applied(envelopes.repartition(len(labels), "shard"), trackers.tracked(write, 1))


_LOG = logging.getLogger("beamlike")


def is_again(context: TaskContext | None) -> bool:
    """True if there was an earlier attempt at this task."""
    return context is not None and context.attemptNumber() > 0


def warn_of_copies(sinks: Iterable[Sink], speculation: str | None) -> None:
    """Warns that object stores may show files of an attempt that does not count, if Spark copies slow tasks
    (speculation).
    """
    places = {sink.shown_early() for sink in sinks if isinstance(sink, TwoPhase)}
    remote = sorted(place for place in places if place is not None)
    if speculation == "true" and remote:
        text = (
            "spark.speculation is on, and an object store shows files at once: those in %s may be replaced by an "
            "attempt at a task that does not count; functions should give the same rows each time, or set it to false"
        )
        _LOG.warning(text, ", ".join(map(repr, remote)))
