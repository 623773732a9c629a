"""A run in process with a checkpoint, until its first batch: its place in the checkpoint, what it reads and writes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final, Protocol, Self

import attrs

from beamlike.io.sources import ReadFromMemory
from beamlike.local.begun import Begun
from beamlike.local.bundle import Clock
from beamlike.local.checkpoint import LocalCheckpoint
from beamlike.local.engine import Engine
from beamlike.local.feed import Feed, feed_of, require_resumable
from beamlike.local.journal import Journal
from beamlike.logical.overlaps import require_outside
from beamlike.plan.manifest import Runner
from beamlike.plan.matching import fitted, require_told_apart
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.plan.tables import with_tables
from beamlike.records.model import BatchRecord
from beamlike.records.writer import RECORDS_FILE
from beamlike.runtime.batch_sinks import BatchSinks
from beamlike.runtime.checkpoint import require_fitting, saved_manifest, stored
from beamlike.runtime.copies import CopyGuard, Reached, require_run
from beamlike.runtime.dead_letter_folder import CheckpointLetters
from beamlike.runtime.dead_letter_limit import DeadLetterLimit
from beamlike.runtime.digests import digest_of_rows, digest_of_streams, other_rows, other_streams
from beamlike.runtime.ingest import require_files
from beamlike.runtime.kept_inputs import keep_inputs, load_inputs
from beamlike.runtime.observers import OnBatch
from beamlike.runtime.open_run import OpenRun
from beamlike.runtime.options import AVAILABLE_NOW, Trigger
from beamlike.runtime.progress import Progress
from beamlike.runtime.run_sinks import RunSinks
from beamlike.runtime.side_tables import at_hand, kept_tables
from beamlike.runtime.sinks import check_sinks, require_in_process
from beamlike.system.in_hand import Desk
from beamlike.system.threads import Threads
from stages.progress.inputs import Inputs

_FILES: Final = (
    *("beamlike/journal.sqlite", "beamlike/manifest.json", "beamlike/records.jsonl"),
    "beamlike/dead-letters/part-0-000000-000.jsonl",
)
"""Some of a checkpoint, of each kind that readers may take for theirs."""
_DIGESTS: Final = "digests.json"


class Options(Protocol):
    """What the runner says of its runs."""

    @property
    def chunk_rows(self) -> int: ...

    @property
    def trigger(self) -> Trigger: ...

    @property
    def drain(self) -> bool: ...

    @property
    def quiet(self) -> bool: ...

    @property
    def on_batch(self) -> OnBatch | None: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def continue_as(self) -> str | None: ...


def check_plan(plan: Plan, checkpoint: LocalCheckpoint, *, draining: bool) -> None:
    """Before anything is made. Raises `PlanError` for what cannot be read, written or go on in process.

    Also raises `CheckpointError` where the plan does not fit the checkpoint, and `SinkError`.
    """
    require_in_process(plan)
    require_resumable(plan)
    sources = {name: source.source for name, source in plan.sources.items()}
    require_outside(sources, checkpoint.path, _FILES, "the checkpoint of the run; give it a folder beside")
    check_sinks({name: sink.sink for name, sink in plan.sinks.items()})
    require_told_apart(plan)
    if (saved := saved_manifest(checkpoint.path)) is not None:
        fit = fitted(plan, saved, 1, Runner.LOCAL)
        require_fitting(saved, fit, checkpoint.path, draining=draining)


@attrs.frozen(eq=False)
class Opened:
    """A run whose batches can begin."""

    plan: Plan
    options: Options
    run: OpenRun
    journal: Journal
    feed: Feed
    engine: Engine
    sinks: BatchSinks
    desk: Desk
    started: int

    @classmethod
    def of(cls, plan: Plan, options: Options, checkpoint: LocalCheckpoint, held: ExitStack) -> Self:
        """Holds the plan against the checkpoint. What has to be let go of at the end of the run is put into `held`."""
        before = checkpoint.manifest()
        require_files(plan, globs=before is None and options.trigger == AVAILABLE_NOW)
        require_run(before, checkpoint, options.continue_as)
        fit = fitted(plan, before, 1, Runner.LOCAL)
        plan, manifest = fit.plan, checkpoint.open(fit, draining=options.drain)
        journal = checkpoint.journal(manifest)
        held.callback(journal.close)
        run_sinks = RunSinks(plan, manifest["run"], CheckpointLetters(dead_letters_of(checkpoint)))
        manifest = CopyGuard(run_sinks, checkpoint, checkpoint.at(RECORDS_FILE)).admit(
            manifest, _reached(journal), options.continue_as, held
        )
        _require_same_input(plan, checkpoint, begun=manifest["begun"])
        tables = kept_tables(plan, options.clock(), checkpoint, checkpoint.files, before)
        plan = with_tables(plan, at_hand(tables))
        # Sources first: what cannot be read must not cost what an earlier run has written.
        threads = Threads()
        feed = feed_of(plan, options.chunk_rows, options.clock, journal.position, threads, held)
        if feed.tells and journal.last is not None and journal.last[1]:
            # Who was killed right after the commit has not told of it.
            feed.committed(journal.last[0])
        run_sinks = RunSinks(plan, manifest["run"], run_sinks.letters)
        desk = Desk(options.clock, simulated=steps_of(plan) is not None)
        run = OpenRun.of(
            plan,
            checkpoint,
            manifest,
            run_sinks,
            DeadLetterLimit(plan.max_dead_letters, journal.tally(), keep=journal.keep_tally),
            desk,
            options.on_batch,
            held,
            progress=Progress.of(plan, options.trigger, quiet=options.quiet),
            records=checkpoint.at(RECORDS_FILE),
            storing=lambda: stored("write", checkpoint.path),
        )
        run.outcome.later, run.outcome.changed = journal.later, feed.changed
        if journal.last is not None:
            run.observers.clock.last = journal.last[0].now
        last = _record_before(journal, run, checkpoint)
        drains = plan.drains(asked=options.drain and steps_of(plan) is None)
        engine = Engine(
            plan, options.clock, journal, _load(plan, journal), last, threads=threads, drains=drains
        )
        sinks = BatchSinks(plan, run_sinks.sinks, manifest["run"], run.may_replay)
        return cls(plan, options, run, journal, feed, engine, sinks, desk, options.clock())

    @property
    def plays(self) -> bool:
        """Whether it plays test streams, which have an end of their own."""
        return steps_of(self.plan) is not None

    def process(self, batch: Begun, *, again: bool) -> BatchRecord:
        """Does a batch that was begun, maybe `again`: its sinks have it."""
        bundle = self.feed.bundle(batch, again=again)
        record = self.engine.take(bundle, batch.number, self.sinks)
        for name, inputs in self.engine.inputs.items():
            keep_inputs(name, self.journal, inputs)
        return record

    def finish(self, batch: Begun, record: BatchRecord) -> None:
        """Tells of it; then it is done."""
        self.run.observers.take(record)
        self.journal.commit(batch)
        if self.feed.tells:
            self.journal.settle()
            self.feed.committed(batch)


def dead_letters_of(checkpoint: LocalCheckpoint) -> str:
    """The folder of the dead letters that no collection of the pipeline takes."""
    return checkpoint.at("dead-letters")


def _reached(journal: Journal) -> Reached:
    if journal.last is None:
        return Reached(-1, -1)
    batch, is_done = journal.last
    return Reached(batch.number, batch.number if is_done else batch.number - 1)


def _load(plan: Plan, journal: Journal) -> dict[str, Inputs]:
    """What its sources and stages knew when the last run ended."""
    known = {name: load_inputs(name, journal) for name in plan.producers}
    return {name: inputs for name, inputs in known.items() if inputs != Inputs()}


def _require_same_input(plan: Plan, checkpoint: LocalCheckpoint, *, begun: bool) -> None:
    """Raises `CheckpointError` where rows in memory, or test streams, are not those of the run so far."""
    before: dict[str, Any] | None = checkpoint.kept(_DIGESTS)
    if steps_of(plan) is not None:
        now = {"@streams": digest_of_streams(plan)}
    else:
        now = {
            name: digest_of_rows(source.source)
            for name, source in plan.sources.items()
            if isinstance(source.source, ReadFromMemory)
        }
    if now and before is None and begun:
        raise checkpoint.damaged(f"{checkpoint.at(_DIGESTS)} is gone")
    before = before or {}
    for source, digest in now.items():
        if before.get(source, digest) != digest:
            raise (
                other_streams(checkpoint.path)
                if source.startswith("@")
                else other_rows(source, checkpoint.path)
            )
    if now != before:
        checkpoint.keep(_DIGESTS, {**before, **now})


def _record_before(journal: Journal, run: OpenRun, checkpoint: LocalCheckpoint) -> BatchRecord | None:
    """The last record, unless it is of a batch that is done again.

    Raises `CheckpointError` where the records know of a batch that the journal does not have.
    """
    recorded, last = run.outcome.last, journal.last
    if recorded is None:
        return None
    if recorded.batch > (-1 if last is None else last[0].number):
        raise checkpoint.damaged(
            f"{journal.path} has no batch {recorded.batch}, which the records have: a part of it is lost"
        )
    is_again = last is not None and not last[1] and recorded.batch == last[0].number
    return None if is_again else recorded
