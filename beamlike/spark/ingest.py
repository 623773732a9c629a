"""From a source to envelopes: what an ingest task does with its files or batches, inside `mapInArrow`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import groupby
from typing import cast

import attrs
import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from beamlike.errors import MissingFiles, PlanError
from beamlike.ingest import Chunk, Ingested, ingest
from beamlike.io import SparkSource
from beamlike.io.files import Files
from beamlike.io.paths import glob_uri, is_pattern, nothing_at, path_text
from beamlike.plan import SourcePlan
from beamlike.spark.control import obey, tell
from beamlike.spark.desks import NOWHERE, TaskDesks
from beamlike.spark.envelope import DDL, Topology, to_arrow
from beamlike.spark.hadoop import HadoopFiles
from beamlike.spark.workers import settled

CHUNK_ROWS = 250_000
PART_BYTES = 32 << 20
"""How much of a file a task reads at once, where its format can be split."""

# Room for a hundred thousand envelopes of a chunk, and a million chunks of a part.
CHUNK_NUMBERS = 100_000
PART_NUMBERS = 1_000_000 * CHUNK_NUMBERS
NOW = "__now"
_ARRIVAL = "__arrival"

Ingest = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def source_envelopes(
    session: SparkSession, sources: Iterable[SourcePlan], topology: Topology, desks: TaskDesks = NOWHERE
) -> list[DataFrame]:
    """Streams of envelopes, in the order of the sources: one for all file sources that follow each other."""
    streams = []
    for in_files, plans in groupby(sources, lambda plan: isinstance(plan.source, Files)):
        if in_files:
            streams.append(_file_envelopes(session, {plan.name: plan for plan in plans}, topology, desks))
        else:
            streams += [_row_envelopes(session, plan, topology, desks) for plan in plans]
    return streams


def require_files(session: SparkSession, sources: Iterable[SourcePlan], *, globs: bool) -> None:
    """Raises `MissingFiles` for a path that does not exist, and with `globs` for one that nothing matches.

    Hadoop looks, as it has credentials and globs of its own.
    """
    files = HadoopFiles(session)
    paths = {plan.name: plan.source.path for plan in sources if isinstance(plan.source, Files)}
    for name, path in paths.items():
        if (globs or not is_pattern(path)) and not files.has(path):
            raise MissingFiles(nothing_at(path), step=name)


def _file_envelopes(
    session: SparkSession, plans: Mapping[str, SourcePlan], topology: Topology, desks: TaskDesks
) -> DataFrame:
    """Spark lists the files and keeps the offsets; the tasks read them, so rows never pass the JVM.

    A row for each part of a file, spread over the cores: a file is one part, or as many as its size asks for. Spark
    would read a large file in one task, and small ones in a task for every 30 or so, however few the cores.
    """
    files = reduce(DataFrame.unionAll, [_listed(session, plan) for plan in plans.values()])
    part = F.explode(F.sequence(F.lit(0), F.col("parts") - 1)).alias("part")
    # In turn from one partition: each task gets as many parts, and of a file that is alone each gets some.
    parts = files.coalesce(1).select("source", "path", _ARRIVAL, NOW, part, "parts")
    parts = parts.repartition(session.sparkContext.defaultParallelism)
    return parts.mapInArrow(settled(desks.noted(_ingest_files(plans, topology))), DDL)


_LISTING = "path string, modificationTime timestamp, length bigint, content binary"


def _listed(session: SparkSession, plan: SourcePlan) -> DataFrame:
    """Columns: source, path, arrival (ms), now (us), parts (int)."""
    source = cast(Files, plan.source)
    reader = session.readStream.format("binaryFile").schema(_LISTING)
    # Otherwise Spark passes over files that are a week older than the newest that it has seen.
    reader = reader.option("recursiveFileLookup", "true").option("maxFileAge", "36500d")
    if source.max_files_per_trigger is not None:
        reader = reader.option("maxFilesPerTrigger", source.max_files_per_trigger)
    parts = F.greatest(F.ceil(F.col("length") / PART_BYTES), F.lit(1)) if source.splits else F.lit(1)
    files = reader.load(glob_uri(source.path))
    return files.select(
        F.lit(plan.name).alias("source"), "path", _arrival(), _now(), parts.cast("int").alias("parts")
    )


def _row_envelopes(
    session: SparkSession, plan: SourcePlan, topology: Topology, desks: TaskDesks
) -> DataFrame:
    source = plan.source
    if not isinstance(source, SparkSource):
        raise PlanError(f"Spark cannot read {source!r}", step=plan.name)
    rows: DataFrame = source.reader(session)
    if not rows.isStreaming:
        raise PlanError(
            "the reader gives a batch DataFrame; a stream is needed: spark.readStream", step=plan.name
        )
    return rows.select("*", _now()).mapInArrow(settled(desks.noted(_ingest_rows(plan, topology))), DDL)


def _arrival() -> Column:
    """When the file came, in milliseconds."""
    return F.unix_millis("modificationTime").alias(_ARRIVAL)


def _now() -> Column:
    """Processing time in microseconds: that of the batch, the same when it is replayed."""
    return F.unix_micros(F.current_timestamp()).alias(NOW)


@attrs.define
class _Task:
    """What one ingest task has seen and sent; `now` is the processing time (us) of its batch."""

    plan: SourcePlan
    topology: Topology
    total: Ingested = attrs.field(factory=lambda: Ingested({}, {}))
    now: int = 0

    def send(self, chunk: Chunk, origin: str, sequence: int) -> pa.RecordBatch | None:
        ingested = ingest(self.plan, chunk, self.now)
        self.total = self.total.told_with(ingested, self.plan)
        sent = {name: self.topology.lift(name, frame) for name, frame in ingested.frames.items()}
        envelopes = [
            envelope
            for consumer, frame in sent.items()
            for envelope in self.topology.data(consumer, frame, origin, sequence)
        ]
        return to_arrow(envelopes) if envelopes else None

    def close(self) -> pa.RecordBatch:
        """What the task has to tell of all that it has sent."""
        return to_arrow(list(tell(self.plan, self.topology, self.total, self.now)))


def _ingest_files(plans: Mapping[str, SourcePlan], topology: Topology) -> Ingest:
    def run(listings: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tasks = {name: _Task(plan, topology) for name, plan in plans.items()}
        for listing in listings:
            for name, path, arrival, now, part, parts in zip(
                *(column.to_pylist() for column in listing.columns), strict=True
            ):
                tasks[name].now = now
                yield from _ingest_part(tasks[name], path_text(path), arrival, part, parts)
        for task in tasks.values():
            if task.now:
                yield task.close()

    return run


def _ingest_part(task: _Task, file: str, arrival: int, part: int, parts: int) -> Iterator[pa.RecordBatch]:
    """What a task sends of one of so many parts of a file."""
    # Payloads are sorted by origin and sequence: files in order of arrival, parts in that of the file.
    origin = f"{task.plan.name}:{arrival:015d}:{file}"
    source = cast(Files, task.plan.source)
    for number, chunk in enumerate(source.pieces(file, CHUNK_ROWS, part, parts)):
        batch = task.send(chunk, origin, part * PART_NUMBERS + number * CHUNK_NUMBERS)
        if batch is not None:
            yield batch


def _ingest_rows(plan: SourcePlan, topology: Topology) -> Ingest:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _Task(plan, topology)
        context = TaskContext.get()
        origin = f"{plan.name}:{context.partitionId() if context else 0}"
        for number, rows in enumerate(batches):
            if rows.num_rows == 0:
                continue
            task.now = rows[NOW][0].as_py()
            # A schema that was declared may be wider than Spark's.
            frame = pl.DataFrame(pl.from_arrow(rows)).select(
                pl.col(name).cast(dtype) for name, dtype in plan.raw.items()
            )
            batch = task.send(frame.lazy(), origin, number * CHUNK_NUMBERS)
            if batch is not None:
                yield batch
        if task.now:
            yield task.close()

    return run


def control_envelopes(
    session: SparkSession,
    directory: str,
    sources: tuple[SourcePlan, ...],
    topology: Topology,
    desks: TaskDesks,
) -> DataFrame:
    """Control is a source too: orders as lines of JSON, one file a batch, recorded and replayed."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            for line, now in zip(rows["value"].to_pylist(), rows[NOW].to_pylist(), strict=True):
                yield to_arrow(list(obey(json.loads(line), sources, topology, now)))

    lines = session.readStream.format("text").option("maxFilesPerTrigger", 1).load(directory)
    return lines.select("value", _now()).mapInArrow(settled(desks.noted(run)), DDL)


def schema_of(reader: Callable[[SparkSession], DataFrame], session: SparkSession) -> pl.Schema:
    """The schema of a Spark reader's rows, as polars has it."""
    empty = to_arrow_schema(reader(session).schema, timezone="UTC").empty_table()
    return pl.DataFrame(pl.from_arrow(empty)).schema
