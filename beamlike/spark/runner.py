"""The Spark runner: a plan as one streaming query with one checkpoint, whatever its graph looks like."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import attrs
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from beamlike.io import JSONLines
from beamlike.io.files.paths import absolute, path_text, uri
from beamlike.logical.watermark import require_alignable
from beamlike.plan.manifest import describe
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.records.lines import Ending
from beamlike.records.model import BatchRecord
from beamlike.records.writer import RECORDS_FILE
from beamlike.runtime.dead_letter_limit import DeadLetterLimit
from beamlike.runtime.observers import Observers
from beamlike.runtime.outcome import Outcome
from beamlike.runtime.progress import Progress
from beamlike.runtime.run_sinks import RunSinks
from beamlike.runtime.sinks import check_sinks, hold_sinks
from beamlike.runtime.summary import Shown
from beamlike.spark.checkpoint.checkpoint import Checkpoint, refuse_early
from beamlike.spark.checkpoint.hadoop import stored
from beamlike.spark.checkpoint.memory_rows import digest_of_streams, with_rows_as_files
from beamlike.spark.checkpoint.sound import make_ready
from beamlike.spark.failures import failure
from beamlike.spark.options import is_positive, is_trigger
from beamlike.spark.query.build import envelopes, labels, reads_rows
from beamlike.spark.query.desks import TaskDesks, wall_clock
from beamlike.spark.query.envelope import Topology
from beamlike.spark.query.ingest import require_readable
from beamlike.spark.query.leftovers import Leftovers, tell_of_copies
from beamlike.spark.query.listing import Listings, require_files
from beamlike.spark.query.modules import modules_of
from beamlike.spark.query.sinks import BatchWriter, PartWriter
from beamlike.spark.session.scratch import temporary_checkpoint
from beamlike.spark.session.session import interpret, open_session, ship, worker_environment
from beamlike.spark.stopping import Gate, answer
from beamlike.spark.watching import Watcher
from beamlike.system.in_hand import Desk
from beamlike.system.signals import held_back, signals
from windowing.time import MIN_TIME

KEPT_BATCHES = 10_000


@attrs.frozen
class SparkRunner:
    """Runs a pipeline on Spark Structured Streaming.

    `checkpoint`: a folder that every executor reaches; a run with the same checkpoint goes on where the last one
    was. Without one, a temporary folder is made and the run cannot be continued: the next one replaces its files, as a
    run in process does. With a new checkpoint, file sinks add to what is in their folders, and so they do without one
    where there is a `SparkSource` or `SparkSink`.
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
    trigger: str = attrs.field(default="available_now", validator=is_trigger)
    drain: bool = False
    shards: int | None = attrs.field(default=None, validator=is_positive)
    session: SparkSession | None = None
    master: str | None = None
    config: Mapping[str, str] = attrs.field(factory=dict)
    on_batch: Callable[[BatchRecord], None] | None = None

    def __attrs_post_init__(self) -> None:
        if self.drain and self.trigger != "available_now":
            raise ValueError("SparkRunner: drain=True needs trigger='available_now': an interval has no end")

    def run(self, plan: Plan) -> SparkRun:
        """Runs the plan and waits for its end; with an interval, until it is stopped.

        SIGTERM or Ctrl-C stops it after the batch in hand; a second one gives that batch up.
        """
        run = self.start(plan)
        try:
            with signals(lambda: run.ask_to_stop("a second signal gives it up")):
                run.wait()
        except KeyboardInterrupt:
            run.stop(now=True)
        finally:
            # Whatever ended the wait, no query goes on behind the caller's back.
            run.stop()
        return run

    def start(self, plan: Plan) -> SparkRun:
        """Starts the plan and returns at once. Raises `CheckpointError` if the checkpoint is of another plan."""
        require_alignable({name: source.watermark for name, source in plan.sources.items()})
        require_readable(plan)
        check_sinks({name: sink.sink for name, sink in plan.sinks.items()})
        if self.checkpoint is not None:
            refuse_early(plan, absolute(self.checkpoint), self.shards, draining=self.drain)
        session = self._session(plan)
        if self.checkpoint is None and not session.sparkContext._jsc.isLocal():
            raise ValueError(
                "SparkRunner: on a cluster, give a checkpoint: a folder that every executor reaches"
            )
        path = absolute(self.checkpoint or temporary_checkpoint())
        run = SparkRun(plan, self, session, Checkpoint(session, path))
        run.begin()
        return run

    def _session(self, plan: Plan) -> SparkSession:
        modules = modules_of(plan)  # before Spark starts: what cannot be sent is found here
        session = open_session(
            self.session,
            master=self.master,
            shards=self.shards,
            name=plan.name,
            config=self.config,
            row_loops=reads_rows(plan),
        )
        ship(session, modules)
        return session


@attrs.define(repr=False)
class SparkRun(Shown):
    """A run on Spark: its records, and the means to wait for it and to stop it. It holds the checkpoint's lock."""

    plan: Plan
    runner: SparkRunner
    session: SparkSession
    checkpoint: Checkpoint
    batches: deque[BatchRecord] = attrs.field(factory=lambda: deque(maxlen=KEPT_BATCHES))
    _query: StreamingQuery | None = None
    _gate: Gate | None = None
    _locks: ExitStack = attrs.field(factory=ExitStack)
    _started: threading.Event = attrs.field(factory=threading.Event)
    _stopper: threading.Thread | None = None
    _manifest: dict[str, Any] = attrs.field(factory=dict)
    _progress: Progress | None = None
    _outcome: Outcome = attrs.field(factory=lambda: Outcome(Desk(wall_clock)))
    _stopped: bool = False
    _given_up: bool = False
    _sinks: RunSinks = attrs.field(init=False)
    _limit: DeadLetterLimit = attrs.field(factory=DeadLetterLimit)
    _observers: Observers = attrs.field(init=False)
    _listings: Listings = attrs.field(factory=lambda: Listings({}))
    _watcher: Watcher | None = None

    def begin(self) -> None:
        """Takes the checkpoint's lock, holds the plan against it, and starts the query."""
        self._locks.enter_context(self.checkpoint.lock(f"the run of {self.plan.name!r}"))
        try:
            self._begin()
        except BaseException:
            if self._progress is not None:
                self._progress.close()
            self._outcome.close("failed")
            self._locks.close()
            raise

    def _begin(self) -> None:
        saved = self.checkpoint.manifest()
        if saved is not None:
            make_ready(self.checkpoint, saved)
            if self.runner.shards is None:
                self.session.conf.set("spark.sql.shuffle.partitions", str(saved["shards"]))
        # With an interval, or on another run of the checkpoint, what a glob matches may come later, or be gone.
        at_once = saved is None and self.runner.trigger == "available_now"
        require_files(self.plan, globs=at_once)
        shards = int(self.session.conf.get("spark.sql.shuffle.partitions") or 0)
        self._manifest = self.checkpoint.open(describe(self.plan, shards), draining=self.runner.drain)
        replaces = self.runner.checkpoint is None and not reads_rows(self.plan)
        if replaces:
            # As in process: a later run has the same name, and so replaces its files.
            self._manifest["run"] = self.plan.name
            self._locks.enter_context(hold_sinks(self.plan, self.plan.name))
        self._sinks = self._run_sinks(replaces)
        self._locks.callback(self._sinks.withdraw)
        # Sources first: what cannot be read must not cost what an earlier run has written.
        self.plan = with_rows_as_files(self._sinks.plan, self.checkpoint)
        self._listings = Listings.of(self.checkpoint, self.plan)
        if not self._manifest["begun"]:
            self._sinks.start()
            self._manifest["begun"] = True
            self.checkpoint.save(self._manifest)
        self._limit = DeadLetterLimit(
            self.plan.max_dead_letters, self.checkpoint.tally(), keep=self.checkpoint.keep_tally
        )
        records = self.checkpoint.at(RECORDS_FILE) if self.checkpoint.is_local else None
        desk = Desk(wall_clock, simulated=self._plays)
        storing = partial(stored, "write", self.checkpoint.path)
        with storing():
            self._outcome = Outcome.open(records, self.plan, desk, fresh=False, tasks=True)
        self._outcome.storing = storing
        self._outcome.followed_by(self.runner.on_batch)
        steps = steps_of(self.plan)
        if steps is not None:
            self.checkpoint.play(steps, tuple(self.plan.sources), digest_of_streams(self.plan))
        self._progress = Progress(self.plan.name)
        on_batch = self.runner.on_batch
        self._observers = Observers.of(self.plan, self._limit, self._outcome, self._progress, on_batch)
        self._query = self._start()
        if self.runner.trigger != "available_now" and not self._plays:
            self._watcher = Watcher(self._listings, self.runner.trigger, self._is_active, self._halt)
            self._watcher.start()
        self._started.set()

    def _run_sinks(self, replaces: bool) -> RunSinks:
        """What it writes to. At its end it may replace what an earlier run left, but with an interval it has none."""
        run, letters = self._manifest["run"], JSONLines(self.dead_letters)
        if replaces and self.runner.trigger == "available_now":
            return RunSinks.replacing(self.plan, run, letters)
        return RunSinks(self.plan, run, letters)

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
            if not self._stopped:
                self._observers.end()
            if (self.runner.drain or self._plays) and not self._stopped:
                self._halt()
                self._manifest["drained"] = True
                self.checkpoint.save(self._manifest)
            self._publish("stopped" if self._stopped and not self._manifest["drained"] else "ended")
        except KeyboardInterrupt:
            self._outcome.close("stopped")
            with suppress(Py4JNetworkError):
                self._is_active()  # so that what follows has a connection
            raise
        except StreamingQueryException as error:
            if self._limit.exceeded is not None:
                raise self._limit.exceeded from None
            if told := failure(str(error), self.checkpoint):
                raise told from None
            raise
        finally:
            self._outcome.close("failed")
            if self._progress is not None:
                self._progress.close()
            self._release()

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
        if not self._goes_on:
            self._query.awaitTermination()
            if self._watcher is not None:
                self._watcher.check()
            return
        self._query.processAllAvailable()
        while self._listings.look():
            self._query.processAllAvailable()

    def _end(self) -> None:
        """Closes all windows."""
        self._manifest["draining"] = True
        self.checkpoint.save(self._manifest)
        self.checkpoint.end(tuple(self.plan.sources))
        self._take_all()

    def ask_to_stop(self, notice: str = "") -> None:
        """Has the query stopped once the batch in hand is done; does not wait for that. `notice` is told meanwhile."""
        self._stopped = True
        if self._stopper is None:
            # A thread of its own: a signal may come while this one waits for Java, and then it cannot talk to it.
            name = f"stop {self.plan.name}"
            self._stopper = threading.Thread(target=self._finish, args=(notice,), name=name, daemon=True)
            self._stopper.start()

    def _finish(self, notice: str) -> None:
        self._started.wait()  # the first batch may ask before the query is known here
        if self._query is None or self._gate is None or not self._is_active():
            return
        if notice and self._progress is not None:
            self._progress.tell(f"{self.plan.name}: stopping after the batch in hand; {notice}")
        try:
            self._gate.finish(self._query)
        except Py4JError:
            # Whoever gives the batch up stops the query meanwhile.
            if not self._given_up:
                raise
        if not self._given_up and self._query.exception() is None:
            self._manifest["whole"] = True
            self.checkpoint.save(self._manifest)

    def stop(self, *, now: bool = False) -> None:
        """Stops the query after the batch in hand, and waits for that; called in a batch (`on_batch`), it only asks.

        With `now` the batch in hand is given up, and is done again by the next run on the checkpoint.
        """
        if now:
            self._given_up = True
            self._halt()
        elif self._gate is not None and self._gate.is_mine:
            return self.ask_to_stop()
        elif self._is_active():
            self.ask_to_stop()
        if self._stopper is not None:
            self._stopper.join()
        self._publish("stopped")
        return self._release()

    def _publish(self, ending: Ending) -> None:
        """Shows the files of a run that begins anew, if all of its batches are whole, and says how it ended."""
        with held_back():
            if not self._given_up and self._query is not None and self._query.exception() is None:
                self._sinks.publish()
            self._outcome.close(ending)

    def _halt(self) -> None:
        self._stopped = True
        if self._query is not None:
            self._is_active()
            self._query.stop()

    def _is_active(self) -> bool:
        query = self._query
        return query is not None and answer(lambda: query.isActive)

    def _release(self) -> None:
        """Lets others have the checkpoint, if the query is over."""
        if self._watcher is not None:
            self._watcher.stop()
        if not self._is_active():
            if self._stopper is not None:
                self._stopper.join()
            self._locks.close()

    def _record(self, record: BatchRecord) -> None:
        self.batches.append(record)
        self._observers.take(record)

    def _start(self) -> StreamingQuery:
        topology = Topology.of(self.plan, labels(self.session, self._manifest["shards"]))
        run = self._manifest["run"]
        clock = None if self._plays else wall_clock
        parts = PartWriter.of(self._sinks.sinks, run)
        tell_of_copies(parts.sinks.values(), self.session.sparkContext.getConf().get("spark.speculation"))
        leftovers = Leftovers(parts.sinks, run)
        last, desk = self._outcome.last, self._outcome.desk
        writer = BatchWriter(self.plan, run, self._record, last, clock, desk, leftovers)
        if self.runner.trigger == "available_now":
            # Where processing time passes, there would always be a next batch, and no end.
            self.session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        self.checkpoint.prepare()
        if not reads_rows(self.plan):
            interpret(self.session)
        with worker_environment(self.session):
            started = MIN_TIME if self._plays else wall_clock()
            desks = TaskDesks(self._outcome.tasks, desk.keys)
            control, listings = self.checkpoint.control(), self._listings.sources
            stream = envelopes(self.session, self.plan, topology, listings, control, parts, started, desks)
            # Nobody goes on from a temporary checkpoint.
            kept = self.runner.checkpoint is not None
            self._gate = Gate(writer, self.checkpoint.syncing()) if kept else Gate(writer)
            query = stream.writeStream.foreachBatch(self._gate).queryName(f"{self.plan.name}-{run}")
            query = query.option("checkpointLocation", uri(self.checkpoint.path))
            if self._goes_on:
                return query.start()
            if self._plays or self.runner.trigger == "available_now":
                return query.trigger(availableNow=True).start()
            return query.trigger(processingTime=self.runner.trigger).start()
