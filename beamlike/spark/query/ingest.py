"""Ingests sources in tasks of `mapInArrow`. Their input is files or planned batches, their output is envelopes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import groupby, islice
from typing import cast

import attrs
import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from beamlike.errors import PlanError, naming_source
from beamlike.expressions.describe import describe
from beamlike.io.base import FromFile
from beamlike.io.complete import OVER, is_over
from beamlike.io.in_process import CHUNK_ROWS
from beamlike.io.planned import pieces_of, read_planned
from beamlike.io.refreshed import Refreshed
from beamlike.io.sources import (
    HasDecode,
    HasSparkOffsets,
    Planned,
    ReadBySpark,
    ReadFromMemory,
    ReadInFiles,
    ReadInParts,
    ReadInSteps,
)
from beamlike.plan.model import Plan, SourcePlan
from beamlike.runtime.batch.envelope import RECORDS, Topology, message_envelope, to_arrow
from beamlike.runtime.batch.ingest import ingest
from beamlike.runtime.batch.ingested import Chunk, Ingested
from beamlike.runtime.batch.messages import ReadMessage
from beamlike.spark.checkpoint.commands import read_command
from beamlike.spark.query.applied import applied
from beamlike.spark.query.control import apply_command, messages
from beamlike.spark.query.listing import FilePart, KnownFiles, Listing, read_entry
from beamlike.spark.query.opened import opened
from beamlike.spark.query.parts import NO_PARTS, PartWriter, SourceParts, TaskParts
from beamlike.spark.query.planner import LoggedPart, LoggedPlan, Planner
from beamlike.spark.query.task_activity import NO_TRACKERS, TaskTrackers
from beamlike.spark.session.kinds import functions_of, parallelism
from beamlike.spark.versions import arrow_schema
from stages.progress.splits import SourceSummary, known, read_to_end
from stages.strategies.validators import SourceFile

# The numbers leave room for 100,000 envelopes of a chunk, and for a million chunks of a part.
CHUNK_NUMBERS = 100_000
PART_NUMBERS = 1_000_000 * CHUNK_NUMBERS
NOW = "__now"
_NOW = f"unix_micros(current_timestamp()) AS {NOW}"
"""The processing time of the batch in microseconds. It is the same in a replay."""
_VALUE = "CAST(value AS BINARY) AS value"
"""The lines of a text file as bytes, because a line of a damaged file may be no text."""

Ingest = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def require_readable(plan: Plan) -> None:
    """Raises `PlanError` for a source that only a run in process can read."""
    for name, source in plan.sources.items():
        if not isinstance(
            source.source,
            ReadBySpark | ReadInFiles | Planned | ReadFromMemory | ReadInSteps | Refreshed,
        ):
            raise PlanError(
                f"Spark cannot read {describe(source.source)}, which has chunks(rows) only; give it "
                "read_by_spark(spark), or run with bl.LocalRunner()",
                step=name,
            )
        told = isinstance(source.source, ReadInFiles | Planned | ReadFromMemory | HasSparkOffsets)
        if source.complete and not told:
            raise PlanError(
                f"{describe(source.source)} is complete, and Spark, which reads it itself, does not tell when all is "
                "read; leave out complete, or give it plan(position, rows)",
                step=name,
            )


def source_envelopes(
    session: SparkSession,
    sources: Iterable[SourcePlan],
    topology: Topology,
    listings: Mapping[str, Listing | Planner],
    *,
    trackers: TaskTrackers = NO_TRACKERS,
    writer: PartWriter = NO_PARTS,
    small: bool = False,
) -> list[DataFrame]:
    """Returns streams of envelopes, in the order of the sources. Consecutive file sources share a stream.

    `listings` has the sources whose input the driver logs. If it is `small`, one task reads their files. Rows that no
    stage needs are written by the tasks themselves, if `writer` has their sink.
    """
    streams = list(_streams(sources, listings))
    made = []
    for number, plans in enumerate(streams):
        parts = writer.at_sources(len(topology.labels) + number, len(streams))
        if len(plans) > 1 or set(plans) <= set(listings):
            made.append(_file_envelopes(plans, topology, listings, trackers, parts, small=small))
        else:
            made += [_row_envelopes(session, plan, topology, trackers, parts) for plan in plans.values()]
    return made


def _streams(
    sources: Iterable[SourcePlan], listings: Mapping[str, Listing | Planner]
) -> Iterator[Mapping[str, SourcePlan]]:
    """Yields the sources of each stream: several consecutive file sources, or a single source of another kind."""
    for in_files, plans in groupby(sources, lambda plan: plan.name in listings):
        if in_files:
            yield {plan.name: plan for plan in plans}
        else:
            yield from ({plan.name: plan} for plan in plans)


def _file_envelopes(
    plans: Mapping[str, SourcePlan],
    topology: Topology,
    listings: Mapping[str, Listing | Planner],
    trackers: TaskTrackers,
    parts: SourceParts,
    *,
    small: bool,
) -> DataFrame:
    """Returns the stream of file sources. Spark reads lists of files, and tasks read the files, so rows never pass the
    JVM.

    A row of the stream is a part of a file: the whole file or, if it is large, one of several. Rows are distributed
    over the cores, unless all of them are `small`.
    """
    files = reduce(lambda one, other: one.unionAll(other), [_listed(listings[name]) for name in plans])
    # Distributed from a single partition, so that tasks get equal numbers of parts, even of a single file.
    spread = files.coalesce(1)
    if not small:
        spread = spread.repartition(parallelism(files.sparkSession))
    return applied(spread, trackers.tracked(_ingest_files(plans, topology, parts)))


def _listed(listing: Listing | Planner) -> DataFrame:
    """Returns the columns source, entry (a part of a file or a planned batch, as JSON) and processing time (us)."""
    lines = listing.read()
    name = functions_of(lines.sparkSession).lit(listing.name)
    return lines.selectExpr(_VALUE, _NOW).withColumn("source", name).select("source", "value", NOW)


def _row_envelopes(
    session: SparkSession, plan: SourcePlan, topology: Topology, trackers: TaskTrackers, parts: SourceParts
) -> DataFrame:
    with naming_source(plan.name):
        rows = opened(cast(ReadBySpark, plan.source).read_by_spark, session)
    if not rows.isStreaming:
        raise PlanError(
            "the reader gives a batch DataFrame; a stream is needed: spark.readStream", step=plan.name
        )
    ingest_rows = _ingest_rows(plan, topology, parts)
    return applied(rows.selectExpr("*", _NOW), trackers.tracked(ingest_rows))


@attrs.define
class _Task:
    """The state of an ingestion task. `now` is the processing time (us) of its batch. `over`: the source ends here."""

    plan: SourcePlan
    topology: Topology
    parts: TaskParts
    total: Ingested = attrs.field(factory=lambda: Ingested({}, {}))
    now: int = 0
    over: bool = False

    def send(self, chunk: Chunk, origin: str, sequence: int) -> pa.RecordBatch | None:
        ingested = ingest(self.plan, chunk, self.now)
        self.total = self.total.merged_without_rows(ingested, self.plan)
        sent = {name: self.topology.lift(name, frame) for name, frame in ingested.frames.items()}
        envelopes = [
            envelope
            for consumer, frame in sent.items()
            if not self.parts.takes(consumer, frame, origin, sequence)
            for envelope in self.topology.data(consumer, frame, origin, sequence)
        ]
        return to_arrow(envelopes) if envelopes else None

    def add(self, summary: SourceSummary) -> None:
        """Adds a summary without rows."""
        self.total = self.total.merged_without_rows(Ingested({}, summary), self.plan)

    def close(self) -> pa.RecordBatch:
        """Returns the messages about all rows that the task has sent."""
        return to_arrow(list(messages(self.plan, self.topology, self.total, self.now, ended=self.over)))


def _ingest_files(plans: Mapping[str, SourcePlan], topology: Topology, parts: SourceParts) -> Ingest:
    def run(listings: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine = parts.begin()
        tasks = {name: _Task(plan, topology, mine) for name, plan in plans.items()}
        read = dict[str, tuple[int, int]]()
        for listing in listings:
            for name, entry, now in zip(*(column.to_pylist() for column in listing.columns), strict=True):
                tasks[name].now = now
                with naming_source(name):
                    listed, place, lines = read_entry(entry)
                    read[place] = read.get(place, (0, 0))[0] + 1, lines
                    yield from _ingest_listed(tasks[name], listed)
        for task in tasks.values():
            if task.now:
                yield task.close()
        yield from mine.close(topology.labels[0])
        if read:
            yield _has_read(read, topology)

    return run


def _has_read(files: Mapping[str, tuple[int, int]], topology: Topology) -> pa.RecordBatch:
    """Returns the message that a task has read these files of the checkpoint, from which the driver gave it input."""
    return to_arrow([message_envelope(topology.labels[0], RECORDS, RECORDS, ReadMessage(files))])


def _ingest_listed(task: _Task, listed: object) -> Iterator[pa.RecordBatch]:
    """Ingests the input that a log entry describes."""
    if isinstance(listed, KnownFiles):
        task.add(known(listed.known))
    elif isinstance(listed, LoggedPlan):
        task.over = task.over or is_over(listed.position)
        yield from _ingest_planned(task, listed)
    elif isinstance(listed, LoggedPart):
        yield from _ingest_planned_part(task, listed)
    elif isinstance(listed, FilePart) and listed.file == OVER:
        task.over = True
    elif isinstance(listed, FilePart):
        yield from _ingest_part(task, listed)


def _ingest_part(task: _Task, listed: FilePart) -> Iterator[pa.RecordBatch]:
    """Ingests a part of a file."""
    # Payloads are sorted by origin and sequence: by the numbers of files, then by the place in the file.
    file, part = listed.file, listed.part
    origin = f"{task.plan.name}:{listed.number:012d}"
    source = cast(ReadInFiles, task.plan.source)
    pieces = enumerate(source.pieces(file, listed.rows or CHUNK_ROWS, part, listed.parts))
    for index, chunk in islice(pieces, listed.pieces, None):
        batch = task.send(FromFile(chunk, file), origin, part * PART_NUMBERS + index * CHUNK_NUMBERS)
        if batch is not None:
            yield batch
    if isinstance(task.plan.watermark.per_split, SourceFile):
        # All parts of a file are in the same batch.
        task.add(read_to_end(file))


def _ingest_planned(task: _Task, noted: LoggedPlan) -> Iterator[pa.RecordBatch]:
    """Ingests a planned batch that is not divided into parts."""
    if noted.input is None and noted.watermark is None:
        return
    read = read_planned(cast(Planned, task.plan.source), noted.taken, CHUNK_ROWS)
    batch = task.send(read, f"{task.plan.name}:{noted.planned:012d}", 0)
    if batch is not None:
        yield batch


def _ingest_planned_part(task: _Task, listed: LoggedPart) -> Iterator[pa.RecordBatch]:
    """Ingests a part of a planned batch."""
    origin = f"{task.plan.name}:{listed.noted:012d}"
    pieces = pieces_of(cast(ReadInParts, task.plan.source), listed.what, CHUNK_ROWS)
    for index, piece in enumerate(pieces):
        batch = task.send(piece, origin, listed.place * PART_NUMBERS + index * CHUNK_NUMBERS)
        if batch is not None:
            yield batch


def _ingest_rows(plan: SourcePlan, topology: Topology, parts: SourceParts) -> Ingest:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine = parts.begin()
        task = _Task(plan, topology, mine)
        context = TaskContext.get()
        origin = f"{plan.name}:{context.partitionId() if context else 0}"
        for number, rows in enumerate(batches):
            if rows.num_rows == 0:
                continue
            task.now = rows[NOW][0].as_py()
            batch = task.send(
                _rows_of(plan, pl.DataFrame(pl.from_arrow(rows))), origin, number * CHUNK_NUMBERS
            )
            if batch is not None:
                yield batch
        if task.now:
            yield task.close()
        yield from mine.close(topology.labels[0])

    return run


def _rows_of(plan: SourcePlan, frame: pl.DataFrame) -> Chunk:
    """Converts Spark's rows to rows of the source. A declared type may be wider than Spark's."""
    if isinstance(plan.source, HasDecode):
        return plan.source.decode(frame.drop(NOW))
    return frame.lazy().select(pl.col(name).cast(dtype) for name, dtype in plan.raw.items())


def control_envelopes(
    session: SparkSession,
    directory: str,
    sources: tuple[SourcePlan, ...],
    topology: Topology,
    trackers: TaskTrackers,
) -> DataFrame:
    """Returns the stream of control commands: lines of JSON, one file per batch, which Spark logs and replays."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            for line, now in zip(rows["value"].to_pylist(), rows[NOW].to_pylist(), strict=True):
                command, place = read_command(line)
                yield _has_read({place: (1, 1)}, topology)
                if sent := list(apply_command(command, sources, topology, now)):
                    yield to_arrow(sent)

    lines = session.readStream.format("text").option("maxFilesPerTrigger", 1).load(directory)
    return applied(lines.selectExpr(_VALUE, _NOW), trackers.tracked(run))


def schema_of(reader: Callable[[SparkSession], DataFrame], session: SparkSession) -> pl.Schema:
    """Returns the schema of a Spark reader's rows as a polars schema."""
    empty = arrow_schema(opened(reader, session).schema).empty_table()
    return pl.DataFrame(pl.from_arrow(empty)).schema
