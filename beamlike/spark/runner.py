"""The Spark runner: a plan as one streaming query with one checkpoint, whatever its graph looks like."""

from __future__ import annotations

import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Literal

import attrs
import polars as pl
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from beamlike.description import describe_run
from beamlike.errors import RunError
from beamlike.ingest import steps_of
from beamlike.io import JSONLines
from beamlike.io.base import Part, output_frame
from beamlike.io.paths import absolute, path_text, uri
from beamlike.manifest import describe
from beamlike.plan import Plan
from beamlike.progress import Progress
from beamlike.recording import RECORDS_FILE, RecordWriter
from beamlike.records import BatchRecord
from beamlike.spark.checkpoint import Checkpoint
from beamlike.spark.envelope import Topology
from beamlike.spark.ingest import control_envelopes, source_envelopes
from beamlike.spark.level import Level
from beamlike.spark.modules import modules_of
from beamlike.spark.operators import apply_level
from beamlike.spark.rows import digest_of_streams, with_rows_as_files
from beamlike.spark.session import open_session, ship, worker_environment
from beamlike.spark.sinks import BatchWriter, PartWriter, write_in_tasks
from beamlike.watermarks import require_alignable
from windowing.time import MIN_TIME
from windowing.triggers import PROCESSING_TIME

KEPT_BATCHES = 10_000
_INTERVAL = re.compile(r"\d+(\.\d+)?\s*\w+")


def _trigger(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if value != "available_now" and not (isinstance(value, str) and _INTERVAL.fullmatch(value.strip())):
        raise ValueError(
            f"SparkRunner: trigger must be 'available_now' or an interval such as '10 seconds', not {value!r}"
        )


def _at_least_one(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"SparkRunner: shards must be a whole number of at least 1, not {value!r}")


@attrs.frozen
class SparkRunner:
    """Runs a pipeline on Spark Structured Streaming.

    `checkpoint`: a folder that every executor reaches; a run with the same checkpoint goes on where the last one
    was. Without one, a temporary folder is made and the run cannot be continued. With a new checkpoint, file sinks
    add to what is in their folders.
    `trigger`: "available_now" processes what is there and stops; an interval ("10 seconds") goes on until `stop`.
    Triggers of processing time are looked at in every batch; an interval has batches also when nothing comes, but
    "available_now" has none then: what waits for processing time waits for the next run.
    `drain`: when no new input is left, closes all windows; the checkpoint is finished with that.
    Test streams are played a step a batch, whatever the trigger, and drained; processing time is theirs.
    `shards`: how many parts each keyed stage is cut into; by default those of the checkpoint, or for a new one
    the cores of the cluster, at most 200.
    `session`: a session to work in (in a new one beside it: nothing in it changes); otherwise one is made, on
    `master` (default "local[*]") and with `config`.
    `on_batch` is called with the record of each batch.
    """

    checkpoint: str | None = attrs.field(default=None, converter=attrs.converters.optional(path_text))
    trigger: str = attrs.field(default="available_now", validator=_trigger)
    drain: bool = False
    shards: int | None = attrs.field(default=None, validator=_at_least_one)
    session: SparkSession | None = None
    master: str | None = None
    config: Mapping[str, str] = attrs.field(factory=dict)
    on_batch: Callable[[BatchRecord], None] | None = None

    def __attrs_post_init__(self) -> None:
        if self.drain and self.trigger != "available_now":
            raise ValueError("SparkRunner: drain=True needs trigger='available_now': an interval has no end")

    def run(self, plan: Plan) -> SparkRun:
        """Runs the plan and waits for its end; with an interval, until it is stopped or interrupted."""
        run = self.start(plan)
        try:
            run.wait()
        except KeyboardInterrupt:
            pass
        finally:
            # Whatever ended the wait, no query goes on behind the caller's back.
            run.stop()
        return run

    def start(self, plan: Plan) -> SparkRun:
        """Starts the plan and returns at once. Raises `CheckpointError` if the checkpoint is of another plan."""
        require_alignable(plan)
        session = self._session(plan)
        if self.checkpoint is None and not session.sparkContext._jsc.isLocal():
            raise ValueError(
                "SparkRunner: on a cluster, give a checkpoint: a folder that every executor reaches"
            )
        path = absolute(self.checkpoint or tempfile.mkdtemp(prefix="beamlike-"))
        run = SparkRun(plan, self, session, Checkpoint(session, path))
        run.begin()
        return run

    def _session(self, plan: Plan) -> SparkSession:
        session = open_session(
            self.session, master=self.master, shards=self.shards, name=plan.name, config=self.config
        )
        ship(session, modules_of(plan))
        return session


@attrs.define
class SparkRun:
    """A run on Spark: its records, and the means to wait for it and to stop it."""

    plan: Plan
    runner: SparkRunner
    session: SparkSession
    checkpoint: Checkpoint
    batches: deque[BatchRecord] = attrs.field(factory=lambda: deque(maxlen=KEPT_BATCHES))
    _query: StreamingQuery | None = None
    _manifest: dict[str, Any] = attrs.field(factory=dict)
    _progress: Progress | None = None
    _records: RecordWriter | None = None
    _stopped: bool = False

    def begin(self) -> None:
        """Holds the plan against the checkpoint, and starts the query."""
        saved = self.checkpoint.manifest()
        if saved is not None and self.runner.shards is None:
            self.session.conf.set("spark.sql.shuffle.partitions", str(saved["shards"]))
        shards = int(self.session.conf.get("spark.sql.shuffle.partitions") or 0)
        self._manifest = self.checkpoint.open(describe(self.plan, shards), draining=self.runner.drain)
        if saved is None:
            self._start_sinks()
        self.plan = with_rows_as_files(self.plan, self.checkpoint)
        if self.checkpoint.is_local:
            self._records = RecordWriter.open(self.checkpoint.at(RECORDS_FILE), describe_run(self.plan))
        steps = steps_of(self.plan)
        if steps is not None:
            self.checkpoint.play(steps, tuple(self.plan.sources), digest_of_streams(self.plan))
        self._query = self._start()
        self._progress = Progress(self.plan.name)

    def _start_sinks(self) -> None:
        run = self._manifest["run"]
        for name, plan in self.plan.sinks.items():
            plan.sink.start(run)
            # So that a sink knows its columns even if no row ever comes.
            plan.sink.write(output_frame(pl.DataFrame(schema=plan.schema)), Part(run, 0, sink=name))

    @property
    def dead_letters(self) -> str:
        """The folder of the dead letters that no collection of the pipeline takes."""
        return self.checkpoint.at("dead-letters")

    def wait(self) -> None:
        """Waits for the end of the available input, and drains it if the runner says so; raises what failed."""
        try:
            self._take_all()
            if self._goes_on and not self._stopped:
                self._end()
            if (self.runner.drain or self._plays) and not self._stopped:
                self._halt()
                self._manifest["drained"] = True
                self.checkpoint.save(self._manifest)
            self._close_records("stopped" if self._stopped and not self._manifest["drained"] else "ended")
        except KeyboardInterrupt:
            self._close_records("stopped")
            raise
        except StreamingQueryException as error:
            if reason := python_reason(str(error)):
                raise RunError(reason) from None
            raise
        finally:
            self._close_records("failed")
            if self._progress is not None:
                self._progress.close()

    @property
    def _plays(self) -> bool:
        """Whether it plays test streams, which have an end of their own."""
        return steps_of(self.plan) is not None

    @property
    def _goes_on(self) -> bool:
        """Whether the query goes on when it has taken all input, so that its end can follow without another one."""
        return self.runner.drain and not self._plays

    def _take_all(self) -> None:
        """Waits until the query has taken all input that is there."""
        assert self._query is not None
        if self._goes_on:
            self._query.processAllAvailable()
        else:
            self._query.awaitTermination()

    def _end(self) -> None:
        """Closes all windows."""
        self._manifest["draining"] = True
        self.checkpoint.save(self._manifest)
        self.checkpoint.end(tuple(self.plan.sources))
        self._take_all()

    def stop(self) -> None:
        """Stops the query; a batch in hand is given up and is done again by the next run on the checkpoint."""
        self._halt()
        self._close_records("stopped")

    def _halt(self) -> None:
        self._stopped = True
        if self._query is not None:
            self._query.stop()

    def _record(self, record: BatchRecord) -> None:
        self.batches.append(record)
        if self._progress is not None:
            self._progress.update(record)
        if self._records is not None:
            self._records.write(record)
        if self.runner.on_batch is not None:
            self.runner.on_batch(record)

    def _close_records(self, outcome: Literal["ended", "stopped", "failed"]) -> None:
        """How the run came to its end; the first call counts."""
        if self._records is not None:
            self._records.close(outcome)

    def _start(self) -> StreamingQuery:
        topology = Topology.of(self.plan, labels(self.session, self._manifest["shards"]))
        letters = JSONLines(self.dead_letters)
        run = self._manifest["run"]
        last = None if self._records is None else self._records.last
        writer = BatchWriter(self.plan, run, self._record, last, None if self._plays else _wall_clock)
        if self.runner.trigger == "available_now":
            # Where processing time passes, there would always be a next batch, and no end.
            self.session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        with worker_environment(self.session):
            parts = PartWriter.of(self.plan, run, letters)
            started = MIN_TIME if self._plays else _wall_clock()
            stream = envelopes(self.session, self.plan, topology, self.checkpoint.control(), parts, started)
            query = stream.writeStream.foreachBatch(writer).queryName(self._name())
            query = query.option("checkpointLocation", uri(self.checkpoint.path))
            if self._goes_on:
                return query.start()
            if self._plays or self.runner.trigger == "available_now":
                return query.trigger(availableNow=True).start()
            return query.trigger(processingTime=self.runner.trigger).start()

    def _name(self) -> str:
        return f"{self.plan.name}-{self._manifest['run']}"


def envelopes(
    session: SparkSession, plan: Plan, topology: Topology, control: str, writer: PartWriter, started: int
) -> DataFrame:
    """All sources as envelopes, through one operator per level: what comes out at the end is for the driver."""
    sources = tuple(plan.sources.values())
    streams = [control_envelopes(session, control, sources, topology)]
    if steps_of(plan) is None:  # test streams are played by control alone
        streams = [source_envelopes(session, source, topology) for source in sources] + streams
    stream = reduce(DataFrame.unionAll, streams)
    for number, names in enumerate(plan.levels, start=1):
        level = Level.of(plan, names, topology, started)
        last = number == len(plan.levels)
        # Reports carry the time on to later levels.
        ticks = number == 1 and needs_ticks(plan)
        stream = apply_level(stream, level, writer if last else None, ticks=ticks)
    return stream if plan.levels else write_in_tasks(stream, writer, topology.labels)


def needs_ticks(plan: Plan) -> bool:
    """Whether a trigger or a source waits for processing time, which must then pass also when nothing comes."""
    triggers = [stage.stage.grouping.windowing.trigger for stage in plan.stages.values()]
    waits = any(PROCESSING_TIME in trigger.clocks() for trigger in triggers)
    waits = waits or any(source.watermark.needs_time for source in plan.sources.values())
    return waits and steps_of(plan) is None


def _wall_clock() -> int:
    return time.time_ns() // 1000


def python_reason(message: str) -> str | None:
    """The innermost Python traceback in the message of a query that failed; None if Python was not at fault."""
    before_plan = message.partition("=== Streaming Query ===")[0].partition(" SQLSTATE:")[0]
    _, found, traceback = before_plan.rpartition("Traceback (most recent call last):\n")
    return f"the run failed in a Python function:\n{traceback.strip()}" if found else None


def labels(session: SparkSession, shards: int) -> tuple[int, ...]:
    """For each of `shards` partitions the least integer that Spark's hash puts on it."""
    jvm: Any = session._jvm
    # The static method of that name is found or not, as the JVM happens to list the two.
    murmur = jvm.org.apache.spark.unsafe.hash.Murmur3_x86_32(42)
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < shards:
        found.setdefault(murmur.hashInt(candidate) % shards, candidate)
        candidate += 1
    return tuple(found[partition] for partition in range(shards))
