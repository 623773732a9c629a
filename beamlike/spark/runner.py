"""The Spark runner. It runs a plan of any shape as one streaming query with one checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Literal, Self

import attrs
from attrs.validators import in_, optional
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from beamlike.io.files.paths import absolute, path_text_if_any
from beamlike.logical.watermark import require_alignable
from beamlike.plan.manifest import Store
from beamlike.plan.model import Plan, Planned, plan_of
from beamlike.records.lines import Ending
from beamlike.records.model import BatchRecord
from beamlike.records.recent import RecentRecords
from beamlike.runtime.display.summary import Shown, log_open
from beamlike.runtime.run.ends import times_due
from beamlike.runtime.run.options import Phase, Trigger, is_positive, is_run_id, is_trigger
from beamlike.runtime.run.run_records import recorded_start
from beamlike.runtime.run.sinks import check_sinks, with_sinks_of_run
from beamlike.runtime.run.telemetry import Telemetry, telemetry_of
from beamlike.spark.checkpoint.checkpoint import Checkpoint, refuse_early, require_available
from beamlike.spark.checkpoint.ending import take_back_end
from beamlike.spark.failures import failure, understood
from beamlike.spark.java_errors import Py4JError, Py4JNetworkError
from beamlike.spark.opening import OpenSparkRun
from beamlike.spark.polling import FilePoller
from beamlike.spark.query.build import reads_rows
from beamlike.spark.query.ingest import require_readable
from beamlike.spark.query.modules import modules_of
from beamlike.spark.query.sinks import BatchWriter
from beamlike.spark.session.kinds import runs_here
from beamlike.spark.session.scratch import temporary_checkpoint
from beamlike.spark.session.session import open_session, ship
from beamlike.spark.session.waiting import telling_of_executors
from beamlike.spark.stopping import RunningQuery
from beamlike.system.path_names import is_remote
from beamlike.system.secrets import shown_settings
from beamlike.system.signals import signals


@attrs.frozen
class SparkRunner:
    """Runs a pipeline on Spark Structured Streaming.

    A run without a checkpoint uses a temporary folder, and cannot be continued: it closes all windows at the end of its
    input, and the next run replaces its files, as in process. With a new checkpoint, file sinks add files to the
    existing ones. They also do so without a checkpoint if the pipeline has a `SparkSource` or `SparkSink`. Test streams
    play one step per batch, whatever the trigger, and are drained; they also set processing time.

    Args:
        checkpoint: A folder that every executor can reach, from which a later run with the same checkpoint continues.
        trigger: "available_now" processes the available input and ends. With an interval ("10 seconds"), the run
            continues until `stop`. Triggers of processing time are evaluated in every batch. Without input, a run with
            an interval still has batches. A run with "available_now" on a checkpoint has one batch, for what has become
            due since the last run.
        drain: If True, closes all windows when no input is left, which finishes the checkpoint. Without a checkpoint, a
            run with "available_now" drains anyway, unless a source is a `SparkSource`, which may have no end.
        shards: The number of shards of each keyed stage; by default that of the checkpoint. For a new one it is the
            number of cores of the cluster, at most 200; or one if the run drains, and its input has at most 4 MB.
        session: A session whose Spark is used, also one of Spark Connect. The run creates a new session in it, and
            changes nothing in the given one. By default, a session is created.
        master: The master for a created session, by default "local[*]".
        config: Settings for a created session.
        records: A file on this machine for the records of all batches, which `beamlike status`, `why`, `watch` and
            `report` read. Only for a checkpoint on another file system; other checkpoints have the records in them.
        on_batch: A function that is called with the record of each batch.
        quiet: If True, neither a terminal nor a notebook shows progress.
        continue_as: For an older copy of a checkpoint, the id of the run that continues from it. Rows of later batches
            are removed from sinks that can do that; the log reports which rows are doubled in others.
        state: Where a new checkpoint has its state: in files that the tasks write ("files", the default on file systems
            and in S3), or in Spark's own state store ("spark"). Spark 3.5 has only "files".
        telemetry: `bl.observe.OpenTelemetry()` or `bl.observe.OpenLineage()`, or a list of both. Each exports the run
            in a thread of its own; if its collector fails, the run continues without.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("out", bl.Parquet("out"))
        <Collection 'plays': user String, points Int64, at String>
        >>> p.run(bl.SparkRunner(checkpoint="checkpoint", drain=True))  # doctest: +SKIP
        <SparkRun of 'scores': 2 batches>
    """

    checkpoint: str | None = attrs.field(default=None, converter=path_text_if_any)
    trigger: Trigger = attrs.field(default="available_now", validator=is_trigger)
    drain: bool = False
    shards: int | None = attrs.field(default=None, validator=is_positive)
    session: SparkSession | None = None
    master: str | None = None
    config: Mapping[str, str] = attrs.field(factory=dict, repr=shown_settings)
    records: str | None = attrs.field(default=None, converter=path_text_if_any)
    on_batch: Callable[[BatchRecord], None] | None = None
    quiet: bool = False
    continue_as: str | None = attrs.field(default=None, kw_only=True, validator=is_run_id)
    state: Literal["spark", "files"] | None = attrs.field(
        default=None, kw_only=True, validator=optional(in_(("spark", "files")))
    )
    telemetry: tuple[Telemetry, ...] = attrs.field(default=(), kw_only=True, converter=telemetry_of)

    def __attrs_post_init__(self) -> None:
        if self.records is not None and (self.checkpoint is None or not is_remote(self.checkpoint)):
            raise ValueError(
                "SparkRunner: records= is for a checkpoint that is not on this machine; others have them in them"
            )
        if self.checkpoint is not None and self.checkpoint.startswith("dbfs:"):
            raise ValueError(
                f"SparkRunner: this process has no folder {self.checkpoint!r}; give the checkpoint a path that this "
                "process and Spark have, such as /Volumes/..."
            )
        if self.continue_as is not None and self.checkpoint is None:
            raise ValueError("SparkRunner: continue_as= needs checkpoint=, whose run continues")
        if self.drain and self.trigger != "available_now":
            raise ValueError("SparkRunner: drain=True needs trigger='available_now': an interval has no end")

    def run(self, plan: Plan | Planned) -> SparkRun:
        """Runs a plan, and waits for its end; with an interval, until it is stopped. Users call `Pipeline.run`.

        SIGTERM or Ctrl-C stops the run after the current batch. A second signal abandons that batch.

        Args:
            plan: A plan or a pipeline.

        Returns:
            The run, with its records.

        Raises:
            RunError: The run fails; the message has the traceback of a worker, if one failed. The errors of `start`
                are raised, too.

        Example:
            >>> run = bl.SparkRunner(checkpoint="checkpoint").run(p.plan())  # doctest: +SKIP
            >>> run.batches[-1].sinks  # doctest: +SKIP
            {'out': 3}
        """
        run = self.start(plan)
        try:
            with signals(lambda: run.ask_to_stop("a second signal abandons it")):
                run.wait()
        except KeyboardInterrupt:
            run.stop(now=True)
        finally:
            # The query must not continue after this call returns.
            run.stop()
        return run

    def start(self, plan: Plan | Planned) -> SparkRun:
        """Starts a plan, and returns at once.

        Args:
            plan: A plan or a pipeline.

        Raises:
            CheckpointError: The checkpoint belongs to another plan, or is in use.
            PlanError: Spark cannot run the plan.
            ValueError: The master is a cluster, and there is no checkpoint.

        Example:
            >>> run = bl.SparkRunner(checkpoint="checkpoint", trigger="10 seconds").start(p.plan())  # doctest: +SKIP
            >>> run.stop()  # doctest: +SKIP
        """
        planned = plan_of(plan, "SparkRunner")
        with recorded_start(self.checkpoint or "", planned):
            return self._started(planned)

    def _started(self, plan: Plan) -> SparkRun:
        require_alignable({name: source.watermark for name, source in plan.sources.items()})
        require_readable(plan)
        plan = with_sinks_of_run(plan)
        check_sinks({name: sink.sink for name, sink in plan.sinks.items()})
        require_available(self._store)
        if self.checkpoint is not None:
            refuse_early(plan, absolute(self.checkpoint), self.shards, draining=self.drain, store=self._store)
        session = self._session(plan)
        if self.checkpoint is None and not runs_here(session):
            raise ValueError(
                "SparkRunner: on a cluster, give a checkpoint: a folder that every executor reaches"
            )
        path = absolute(self.checkpoint or temporary_checkpoint())
        with telling_of_executors(session):
            return SparkRun.begin(plan, self, session, Checkpoint.of(session, path, self._store))

    @property
    def _store(self) -> Store | None:
        return None if self.state is None else Store(self.state)

    def _session(self, plan: Plan) -> SparkSession:
        # Before Spark starts, so that an object that cannot be pickled is found early.
        modules = modules_of(plan)
        given, master, config, loops = self.session, self.master, self.config, reads_rows(plan)
        session = open_session(
            given, master=master, shards=self.shards, name=plan.name, config=config, row_loops=loops
        )
        ship(session, modules)
        return session


@attrs.define(repr=False, kw_only=True)
class SparkRun(Shown):
    """A run on Spark: its records, and methods to wait for it and to stop it. The run holds the checkpoint's lock."""

    plan: Plan
    runner: SparkRunner
    session: SparkSession
    checkpoint: Checkpoint
    batches: RecentRecords
    _opened: OpenSparkRun = attrs.field(alias="opened")
    _query: RunningQuery = attrs.field(alias="query")
    _poller: FilePoller | None = attrs.field(alias="poller")
    _held: ExitStack = attrs.field(alias="held")
    _ending: bool = attrs.field(default=False, init=False)
    _stopper: threading.Thread | None = attrs.field(default=None, init=False)

    @classmethod
    def begin(cls, plan: Plan, runner: SparkRunner, session: SparkSession, checkpoint: Checkpoint) -> Self:
        """Locks the checkpoint, compares the plan with it, and starts the query."""
        with ExitStack() as held:
            held.enter_context(checkpoint.lock(f"the run of {plan.name!r}"))
            with understood(checkpoint):
                opened = OpenSparkRun.of(plan, runner, session, checkpoint, held)
                batches = RecentRecords()

                def record(batch: BatchRecord) -> None:
                    batches.append(batch)
                    opened.run.observers.take(batch)

                gate = opened.gate(record)
                query = opened.start(gate)
                poller = opened.poller(query, batches)
                if poller is not None:
                    poller.start()
            run = cls(
                plan=opened.plan,
                runner=runner,
                session=session,
                checkpoint=checkpoint,
                batches=batches,
                opened=opened,
                query=query,
                poller=poller,
                held=held.pop_all(),
            )
        opened.run.progress.up(checkpoint.path)
        return run

    @property
    def last(self) -> BatchRecord | None:
        return self.batches.last or self._opened.run.records.last

    @property
    def dead_letters(self) -> str:
        return self.checkpoint.dead_letters

    @property
    def changed_files(self) -> Mapping[str, Mapping[str, str]]:
        return self._opened.run.records.changed

    def wait(self) -> None:
        """Waits until the available input is processed, and drains the run if the runner does so. Raises the error of a
        failed query.
        """
        with self._opened.run.progress:
            self._wait()

    def _wait(self) -> None:
        try:
            self._take_all()
            if self._opened.drains and not self._opened.plays and self._query.phase is Phase.GOING:
                self._end()
                self._await_due()
            if self._query.phase is Phase.GOING:
                self._opened.run.observers.end()
            if (self._opened.drains or self._opened.plays) and self._query.phase is Phase.GOING:
                self._query.halt(Phase.DRAINED)
                self._opened.run.note("drained")
            elif self._opened.goes_on and self._query.phase is Phase.GOING:
                self._query.halt(Phase.GOING)
            log_open(self, goes_on=self.runner.checkpoint is not None)
            self._conclude(self._query.phase.ending)
        except KeyboardInterrupt:
            self._opened.run.records.close("stopped")
            with suppress(Py4JNetworkError):
                self._query.is_active()  # renews the connection, so that later calls have one
            raise
        except StreamingQueryException as error:
            self._take_back_end()
            failed = self._failure(error)
            raise failed from failed.__cause__
        except PySparkException as error:
            if lost := self._query.failure_of_server(error):
                raise lost from error
            raise
        finally:
            self._opened.run.records.close("failed")
            self._release()

    def _failure(self, error: Exception) -> BaseException:
        """Returns the error of a run whose query has failed with this one."""
        self._query.require_relayed()
        found = self._query.gate.exit or self._opened.run.observers.losses.limit.exceeded
        if found is None:
            found = failure(str(error), self.checkpoint, self.plan)
            found.__cause__ = self._query.gate.error
        return found

    def _take_all(self) -> None:
        """Waits until the query has read all available input."""
        if self._query.is_closed():
            return
        if not self._opened.goes_on:
            self._query.query.awaitTermination()
            self._query.require_relayed()
            if self._poller is not None:
                self._poller.check()
            return
        self._query.query.processAllAvailable()
        listings = self._opened.listings
        while listings.look() if self._opened.drains else listings.look_on():
            self._query.query.processAllAvailable()
        if listings.waiting:  # the last plan may have moved only a watermark
            self._query.query.processAllAvailable()
            listings.look_on()

    def _end(self) -> None:
        """Closes all windows."""
        self._opened.run.note("draining")
        self._ending = True
        self.checkpoint.end(tuple(self.plan.sources))
        self._take_all()

    def _await_due(self) -> None:
        """Runs batches after the end of all input while state waits for processing time."""
        for _ in times_due(self.plan, lambda: self.last, lambda: self._query.phase is Phase.GOING):
            assert self.last is not None
            self.checkpoint.tick(self.last.batch, after_end=True)
            self._query.query.processAllAvailable()

    def _take_back_end(self) -> None:
        """Undoes the end of sources after a failed drain, if nothing was written. A normal run or a savepoint can then
        follow.
        """
        writer = self._query.gate.batch
        may = self._ending and isinstance(writer, BatchWriter) and not writer.writing
        if may and take_back_end(self.checkpoint):
            self._opened.run.note("draining", holds=False)

    def ask_to_stop(self, notice: str = "") -> None:
        """Asks the query to stop after the current batch, and returns at once. `notice` is printed."""
        self._query.go_to(Phase.STOPPING)
        if self._stopper is None:
            # A thread of its own, because a signal may interrupt this one in a call to Java, and then it
            # cannot make another.
            name = f"stop {self.plan.name}"
            self._stopper = threading.Thread(target=self._finish, args=(notice,), name=name, daemon=True)
            self._stopper.start()

    def _finish(self, notice: str) -> None:
        if not self._query.is_active():
            return
        if notice:
            self._opened.run.progress.message(f"{self.plan.name}: stopping after the current batch; {notice}")
        try:
            self._query.finish()
        except Py4JError:
            # Another call has stopped the query and abandoned the batch.
            if self._query.phase is not Phase.GIVEN_UP:
                raise
        if self._is_whole():
            self._opened.run.note("whole")

    def stop(self, *, now: bool = False) -> None:
        """Stops the query after the current batch, and waits for that. A call from `on_batch` does not wait.

        With `now`, the current batch is abandoned, and the next run on the checkpoint repeats it.
        """
        if now:
            self._query.halt(Phase.GIVEN_UP)
        elif self._query.gate.is_mine:
            return self.ask_to_stop()
        elif self._query.is_active():
            self.ask_to_stop()
        if self._stopper is not None:
            self._stopper.join()
        self._note_failure()
        self._conclude("stopped")
        return self._release()

    def _note_failure(self) -> None:
        """Records the error of a query that has failed and was not waited for."""
        error = None if self._query.phase is Phase.GIVEN_UP else self._query.failed_with()
        if error is not None:
            try:
                failed = self._failure(error)
                raise failed from failed.__cause__
            except BaseException:  # a function of the user's may have asked to leave the process
                self._opened.run.records.close("failed")

    def _conclude(self, ending: Ending) -> None:
        run = self._opened.run
        run.sinks.conclude(run.records, ending, whole=self._is_whole())

    def _is_whole(self) -> bool:
        """True if every batch that was begun is finished. The query must have ended."""
        return self._query.phase is not Phase.GIVEN_UP and not self._query.has_failed()

    def _release(self) -> None:
        """Releases the checkpoint's lock and other resources if the query has ended."""
        if self._poller is not None:
            self._poller.stop()
        if not self._query.is_active():
            if self._stopper is not None:
                self._stopper.join()
            self._query.close()
            self._held.close()
