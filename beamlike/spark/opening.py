"""Opens a run on Spark: its checkpoint, its sinks and records, and its query."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, Protocol

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from beamlike.io.files.access import access_to
from beamlike.io.files.paths import uri
from beamlike.plan.manifest import Store, needs_processing_time
from beamlike.plan.matching import Fit, fitted
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.records.model import BatchRecord
from beamlike.records.writer import RECORDS_FILE
from beamlike.runtime.batch.batch_sinks import Leftovers
from beamlike.runtime.batch.dead_letter_folder import CheckpointLetters
from beamlike.runtime.batch.envelope import Topology
from beamlike.runtime.batch.reading import require_files
from beamlike.runtime.batch.storage import stored
from beamlike.runtime.run.copies import CopyGuard, Reached, require_run
from beamlike.runtime.run.dead_letter_limit import DeadLetterLimit
from beamlike.runtime.run.digests import digest_of_streams
from beamlike.runtime.run.ends import is_over
from beamlike.runtime.run.open_run import OpenRun
from beamlike.runtime.run.options import RunOptions, seconds
from beamlike.runtime.run.progress import Progress
from beamlike.runtime.run.readings import with_readings_as_files
from beamlike.runtime.run.run_records import RecordHooks
from beamlike.runtime.run.run_sinks import RunSinks
from beamlike.runtime.run.sinks import hold_sinks
from beamlike.spark.checkpoint.arrow_files import ArrowFiles
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.memory_rows import with_rows_as_files
from beamlike.spark.checkpoint.s3 import require_followed
from beamlike.spark.checkpoint.sound import make_ready
from beamlike.spark.checkpoint.sourcelog import last_batch
from beamlike.spark.connect.relay import Batch, Relay
from beamlike.spark.polling import FilePoller
from beamlike.spark.query.build import envelopes, reads_rows
from beamlike.spark.query.file_operators import StateFolder
from beamlike.spark.query.input_size import is_small
from beamlike.spark.query.labels import labels
from beamlike.spark.query.listing import Listings
from beamlike.spark.query.parts import PartWriter, warn_of_copies
from beamlike.spark.query.received import require_batch_read
from beamlike.spark.query.sinks import BatchWriter
from beamlike.spark.query.tables import with_tables_sent
from beamlike.spark.query.task_activity import TaskTrackers, wall_clock
from beamlike.spark.session.connect import archive_for, require_reached
from beamlike.spark.session.kinds import is_connect, runs_here, setting
from beamlike.spark.session.session import (
    NEEDED,
    interpret,
    require_python,
    use_state_store,
    worker_environment,
)
from beamlike.spark.state.versions import StatePublisher
from beamlike.spark.stopping import BatchGate, RunningQuery, started
from windowing.time import MIN_TIME

_SHARDS: Final = "spark.sql.shuffle.partitions"
_RETAINED: Final = "spark.sql.streaming.minBatchesToRetain"


class SparkOptions(RunOptions, Protocol):
    """The options of a run on Spark."""

    @property
    def shards(self) -> int | None: ...

    @property
    def config(self) -> Mapping[str, str]: ...


@attrs.frozen(eq=False, kw_only=True)
class OpenSparkRun:
    """An open run on Spark, whose query can start. `plan` is the plan that the query runs. `small`: so is its input."""

    plan: Plan
    options: SparkOptions
    session: SparkSession
    checkpoint: Checkpoint
    listings: Listings
    run: OpenRun
    small: bool
    over: tuple[str, ...] = ()
    """The sources whose end the first batch must report again, for stages that are new."""

    @classmethod
    def of(
        cls, plan: Plan, options: SparkOptions, session: SparkSession, checkpoint: Checkpoint, held: ExitStack
    ) -> OpenSparkRun:
        """Compares the plan with the checkpoint, and opens the run. Adds to `held` what must be closed at its end."""
        before = checkpoint.manifest()
        store = checkpoint.new_store if before is None else before["store"]
        require_python(session, stateful=bool(plan.levels) and store == Store.SPARK)
        if store == Store.FILES and plan.levels:
            require_followed(session, checkpoint.path)
        if is_connect(session):
            require_reached(session, checkpoint.keep_code(archive_for(session)), NEEDED)
        elif not runs_here(session):
            with checkpoint.probe() as file:
                require_reached(session, file, NEEDED)
        require_run(before, checkpoint, options.continue_as)
        small = before is None and _drains(plan, options) and is_small(plan)
        fit = _fit(plan, options, session, checkpoint, small=small)
        plan, manifest = fit.plan, checkpoint.open(fit, draining=options.drain)
        manifest, sinks = _sinks(plan, options, manifest, checkpoint, held)
        # Sources are opened before sinks replace anything, so an unreadable source does not cost the output
        # of an earlier run.
        plan = with_rows_as_files(sinks.plan, checkpoint)
        plan = with_readings_as_files(plan, checkpoint.at("readings"), wall_clock)
        plan = with_tables_sent(plan, session, checkpoint, before, held)
        listings = Listings.of(checkpoint, plan)
        held.callback(listings.close)
        checkpoint.end_at_once(name for name, source in plan.sources.items() if source.whole)
        records = _records(checkpoint, options)
        storing = partial(stored, "write", records or checkpoint.path)
        run = OpenRun.of(
            plan,
            checkpoint,
            manifest,
            sinks=sinks,
            limit=DeadLetterLimit(plan.max_dead_letters, checkpoint.tally(), keep=checkpoint.keep_tally),
            clock=wall_clock,
            options=options,
            held=held,
            progress=Progress.of(plan, options.trigger, quiet=options.quiet),
            path=records,
            tasks=True,
            hooks=RecordHooks(storing, changed=listings.changed, page=_page_of(session)),
        )
        if (steps := steps_of(plan)) is not None:
            checkpoint.play(steps, tuple(plan.sources), digest_of_streams(plan))
        new = plan.stages.keys() - (before or {"stages": ()})["stages"]
        is_restored = manifest.get("restored") and not manifest["begun"]
        over = tuple(listings.over) if new or is_restored else ()
        return cls(
            plan=plan,
            options=options,
            session=session,
            checkpoint=checkpoint,
            listings=listings,
            run=run,
            over=over,
            small=small,
        )

    @property
    def plays(self) -> bool:
        """True if the run plays test streams, which define their own end."""
        return steps_of(self.plan) is not None

    @property
    def drains(self) -> bool:
        """True if the run closes all windows at its end: the user asked for it, or no run can continue this one."""
        return _drains(self.plan, self.options)

    @property
    def goes_on(self) -> bool:
        """True if the query must keep running after it has read all input, for the end of sources or for
        later plans.
        """
        planned = self.options.trigger == "available_now" and bool(self.listings.waiting)
        return (self.drains or planned) and not self.plays

    def poller(self, query: RunningQuery, batches: Sequence[BatchRecord]) -> FilePoller | None:
        """Returns the poller of a run with an interval; None for any other. `batches` are those of this run so far."""
        if self.options.trigger == "available_now" or self.plays:
            return None

        def finish() -> None:
            self.run.progress.over()
            query.finish()

        def ended() -> bool:
            return is_over(self.plan, batches[-1]) if batches else self._was_over

        return FilePoller(self.listings, self.options.trigger, query.is_active, query.halt, ended, finish)

    @property
    def _was_over(self) -> bool:
        """True if no input can follow that of the earlier runs, as all sources are complete and over."""
        whole = (name for name, source in self.plan.sources.items() if source.whole)
        # A stage that is new is yet to receive the end of its sources, in the first batch.
        return not self.over and {*self.plan.sources} <= {*self.listings.over, *whole}

    def gate(self, on_batch: Callable[[BatchRecord], None]) -> BatchGate:
        """Returns the function that the query calls for each batch. `on_batch` receives the record of the batch."""
        run, records = self.run.manifest["run"], self.run.records
        clock = None if self.plays else wall_clock
        if self._commands_ticks:
            on_batch = partial(_with_tick, self.checkpoint, on_batch)
        writer = BatchWriter(
            plan=self.plan,
            run=run,
            on_batch=on_batch,
            latest=records.last,
            clock=clock,
            tracker=records.tracker,
            leftovers=Leftovers(self._parts().sinks, run),
            may_replay=self.run.may_replay,
            changed=self.listings.changed,
            require_read=partial(require_batch_read, self.checkpoint),
            state=self._publisher(),
        )
        # No run continues from a temporary checkpoint, so its files are not synced.
        kept = self.options.checkpoint is not None
        return BatchGate(writer, self.checkpoint.syncing()) if kept else BatchGate(writer)

    def start(self, gate: BatchGate) -> RunningQuery:
        """Starts the query."""
        relay = Relay.of(self.session, self.checkpoint, gate) if is_connect(self.session) else None
        parts = self._parts()
        warn_of_copies(parts.sinks.values(), setting(self.session, "spark.speculation"))
        if self.options.trigger == "available_now":
            # With these batches, a run for which processing time must pass would never end.
            self.session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        self._begin_with_batch()
        self.checkpoint.prepare()
        if self.run.manifest["store"] == Store.SPARK:
            use_state_store(self.session, self.options.config)
        if not reads_rows(self.plan):
            interpret(self.session)
        code = self.checkpoint.keep_code(archive_for(self.session)) if relay is not None else None
        with worker_environment(self.session, code):
            query = started(lambda: self._query(parts, gate if relay is None else relay.box.turn))
        running = RunningQuery(query, gate, relay)
        if relay is not None:
            relay.follow(running.is_active, running.halt)
        return running

    def _begin_with_batch(self) -> None:
        """Plans a batch even if there is no input: to end sources for new stages, or because timers may have become due
        since the last run.
        """
        done = last_batch(self.checkpoint, "commits")
        timed = (
            self.options.trigger == "available_now" and not self.drains and needs_processing_time(self.plan)
        )
        if done >= 0 and (timed or self.over or self._commands_ticks):
            self.checkpoint.tick(done, self.over)

    @property
    def _commands_ticks(self) -> bool:
        """True if each batch must command the next one, because Spark runs no batch without input for operators that
        are stateless for it.
        """
        in_files = self.run.manifest["store"] == Store.FILES
        return in_files and self.options.trigger != "available_now" and needs_processing_time(self.plan)

    def _publisher(self) -> StatePublisher | None:
        if self.run.manifest["store"] != Store.FILES:
            return None
        # A batch that is not committed may be replayed, from the version before it.
        kept = max(2, int(self.session.conf.get(_RETAINED) or 0))
        files = self.checkpoint.direct or ArrowFiles()
        return StatePublisher(self.checkpoint.state, kept, may_replay=self.run.may_replay, files=files)

    def _parts(self) -> PartWriter:
        return PartWriter.of(self.run.sinks.sinks, self.run.manifest["run"], self.plan.own_names())

    def _query(self, parts: PartWriter, for_each: Batch) -> StreamingQuery:
        topology = Topology.of(self.plan, labels(self.run.manifest["shards"]))
        started = MIN_TIME if self.plays else wall_clock()
        trackers = TaskTrackers(self.run.records.tasks, self.run.records.keys)
        control, listings = self.checkpoint.control, self.listings.sources
        options = self.options
        asked = options.drain and options.checkpoint is not None and not self.plays
        stream = envelopes(
            self.session,
            self.plan,
            topology,
            small=self.small,
            operators=self.run.manifest["operators"],
            rows=self.run.manifest["rows"],
            folder=StateFolder.of(self.checkpoint, self.run.manifest),
            listings=listings,
            control=control,
            writer=parts,
            started=started,
            trackers=trackers,
            drains=self.plan.drains(asked=asked),
        )
        name = f"{self.plan.name}-{self.run.manifest['run']}"
        query = stream.writeStream.foreachBatch(for_each).queryName(name)
        query = query.option("checkpointLocation", uri(self.checkpoint.path))
        if self.goes_on:
            return query.start()
        if self.plays or self.options.trigger == "available_now":
            return query.trigger(availableNow=True).start()
        return query.trigger(
            processingTime=f"{seconds(self.options.trigger) * 1000:.0f} milliseconds"
        ).start()


def _with_tick(checkpoint: Checkpoint, on_batch: Callable[[BatchRecord], None], record: BatchRecord) -> None:
    on_batch(record)
    checkpoint.tick_again(record.batch)


def _drains(plan: Plan, options: SparkOptions) -> bool:
    """True if a run closes all windows at its end: the user asked for it, or no run can continue it."""
    return options.drain or (options.checkpoint is None and options.trigger == "available_now" and plan.ends)


def _fit(
    plan: Plan, options: SparkOptions, session: SparkSession, checkpoint: Checkpoint, *, small: bool
) -> Fit:
    """Adapts the plan to the checkpoint. A new run with `small` input has one shard, unless the user sets a number."""
    saved = checkpoint.manifest()
    if saved is not None:
        make_ready(checkpoint, saved)
        if options.shards is None:
            session.conf.set(_SHARDS, str(saved["shards"]))
    elif small and options.shards is None and _SHARDS not in options.config:
        session.conf.set(_SHARDS, "1")
    # In a run with an interval, files of a glob may arrive later. In a later run, they may have been removed.
    require_files(plan, globs=saved is None and options.trigger == "available_now")
    return fitted(plan, saved, int(session.conf.get(_SHARDS) or 0))


def _records(checkpoint: Checkpoint, options: SparkOptions) -> str | None:
    """Returns the path of the records; None if the run writes none."""
    if checkpoint.is_local:
        return checkpoint.at(RECORDS_FILE)
    return None if options.records is None else os.fspath(options.records)


def _sinks(
    plan: Plan, options: SparkOptions, manifest: dict[str, Any], checkpoint: Checkpoint, held: ExitStack
) -> tuple[dict[str, Any], RunSinks]:
    """Returns the manifest with the id of the run, and its sinks. They are locked against other runs with this id.

    A run that has an end may replace the files of an earlier run. A run with an interval may not.
    """
    letters = CheckpointLetters(checkpoint.dead_letters, access=access_to(checkpoint.path))
    replaces = options.checkpoint is None and not reads_rows(plan)
    if replaces:
        # As in process, a later run has the same name, and replaces the files of this one.
        manifest["run"] = plan.name
        held.enter_context(hold_sinks(plan, plan.name))
    else:
        reached = Reached(last_batch(checkpoint, "offsets"), last_batch(checkpoint, "commits"))
        records = _records(checkpoint, options)
        guard = CopyGuard(
            RunSinks(plan, manifest["run"], letters), checkpoint, records or "", not checkpoint.is_local
        )
        manifest = guard.admit(manifest, reached, options.continue_as, held)
    run, at_end = manifest["run"], replaces and options.trigger == "available_now"
    sinks = RunSinks.replacing(plan, run, letters) if at_end else RunSinks(plan, run, letters)
    held.callback(sinks.withdraw)
    return manifest, sinks


def _page_of(session: SparkSession) -> str:
    """Returns the address of Spark's own page; empty with Spark Connect, or if it is switched off."""
    return "" if is_connect(session) else session.sparkContext.uiWebUrl or ""
