"""From a source to envelopes: what an ingest task does with its files or batches, inside `mapInArrow`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import attrs
import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from beamlike.errors import PlanError
from beamlike.ingest import Chunk, Ingested, ingest
from beamlike.io import SparkSource
from beamlike.io.files import Files
from beamlike.io.paths import path_text, uri
from beamlike.plan import SourcePlan
from beamlike.spark.control import obey, tell
from beamlike.spark.envelope import DDL, Topology, to_arrow
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


def source_envelopes(session: SparkSession, plan: SourcePlan, topology: Topology) -> DataFrame:
    """The streaming DataFrame of envelopes of one source."""
    source = plan.source
    if isinstance(source, Files):
        # Spark lists the files and keeps the offsets; the tasks read them, so rows never pass the JVM.
        reader = session.readStream.format("binaryFile").schema(_LISTING)
        # Otherwise Spark passes over files that are a week older than the newest that it has seen.
        reader = reader.option("recursiveFileLookup", "true").option("maxFileAge", "36500d")
        if source.max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", source.max_files_per_trigger)
        listed = _parted(reader.load(uri(source.path)), source)
        return listed.mapInArrow(settled(_ingest_files(plan, source, topology)), DDL)
    if not isinstance(source, SparkSource):
        raise PlanError(f"Spark cannot read {source!r}", step=plan.name)
    rows: DataFrame = source.reader(session)
    if not rows.isStreaming:
        raise PlanError(
            "the reader gives a batch DataFrame; a stream is needed: spark.readStream", step=plan.name
        )
    return rows.select("*", _now()).mapInArrow(settled(_ingest_rows(plan, topology)), DDL)


_LISTING = "path string, modificationTime timestamp, length bigint, content binary"


def _parted(files: DataFrame, source: Files) -> DataFrame:
    """A row for each part of a file, spread over the cores: a file is one part, or as many as its size asks for.

    Columns: path, arrival (ms), now (us), part, parts. Spark would read a large file in one task, and small ones in
    a task for every 30 or so, however few the cores.
    """
    if not source.splits and source.max_files_per_trigger == 1:
        return files.select("path", _arrival(), _now(), F.lit(0).alias("part"), F.lit(1).alias("parts"))
    parts = F.ceil(F.col("length") / PART_BYTES) if source.splits else F.lit(1)
    files = files.select("path", _arrival(), _now(), F.greatest(parts, F.lit(1)).cast("int").alias("parts"))
    part = F.explode(F.sequence(F.lit(0), F.col("parts") - 1)).alias("part")
    # In turn from one partition: each task gets as many, and of a file that is alone each gets some.
    listed = files.coalesce(1).select("path", _ARRIVAL, NOW, part, "parts")
    return listed.repartition(files.sparkSession.sparkContext.defaultParallelism)


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


def _ingest_files(plan: SourcePlan, source: Files, topology: Topology) -> Ingest:
    def run(listings: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _Task(plan, topology)
        for listing in listings:
            for path, arrival, now, part, parts in zip(
                *(column.to_pylist() for column in listing.columns), strict=True
            ):
                task.now = now
                file = path_text(path)
                # Payloads are sorted by origin and sequence: files in order of arrival, parts in that of the file.
                origin = f"{plan.name}:{arrival:015d}:{file}"
                for number, chunk in enumerate(source.pieces(file, CHUNK_ROWS, part, parts)):
                    batch = task.send(chunk, origin, part * PART_NUMBERS + number * CHUNK_NUMBERS)
                    if batch is not None:
                        yield batch
        if task.now:
            yield task.close()

    return run


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
    session: SparkSession, directory: str, sources: tuple[SourcePlan, ...], topology: Topology
) -> DataFrame:
    """Control is a source too: orders as lines of JSON, one file a batch, recorded and replayed."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            for line, now in zip(rows["value"].to_pylist(), rows[NOW].to_pylist(), strict=True):
                yield to_arrow(list(obey(json.loads(line), sources, topology, now)))

    lines = session.readStream.format("text").option("maxFilesPerTrigger", 1).load(directory)
    return lines.select("value", _now()).mapInArrow(settled(run), DDL)


def schema_of(reader: Callable[[SparkSession], DataFrame], session: SparkSession) -> pl.Schema:
    """The schema of a Spark reader's rows, as polars has it."""
    empty = to_arrow_schema(reader(session).schema, timezone="UTC").empty_table()
    return pl.DataFrame(pl.from_arrow(empty)).schema
