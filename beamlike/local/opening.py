"""Opens a run in process with a checkpoint: its manifest, journal, sources, sinks and records."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

from beamlike.io.sources import ReadFromMemory
from beamlike.local.engine import Engine
from beamlike.local.executor import LocalExecutor
from beamlike.logical.overlaps import require_outside
from beamlike.plan.manifest import Runner
from beamlike.plan.matching import fitted, require_told_apart
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.plan.tables import with_tables
from beamlike.records.model import BatchRecord
from beamlike.records.writer import RECORDS_FILE
from beamlike.runtime.batch.batch_sinks import BatchSinks
from beamlike.runtime.batch.dead_letter_folder import CheckpointLetters
from beamlike.runtime.batch.kept_inputs import load_inputs
from beamlike.runtime.batch.reading import require_files
from beamlike.runtime.batch.storage import stored
from beamlike.runtime.loop.checkpoint import LocalCheckpoint
from beamlike.runtime.loop.control import RunControl
from beamlike.runtime.loop.feed import open_feed, require_resumable
from beamlike.runtime.loop.journal import Journal
from beamlike.runtime.loop.opened import Opened
from beamlike.runtime.loop.options import LoopOptions
from beamlike.runtime.run.checkpoint import require_fitting, saved_manifest
from beamlike.runtime.run.copies import CopyGuard, Reached, require_run
from beamlike.runtime.run.dead_letter_limit import DeadLetterLimit
from beamlike.runtime.run.digests import digest_of_rows, digest_of_streams, other_rows, other_streams
from beamlike.runtime.run.open_run import OpenRun
from beamlike.runtime.run.options import AVAILABLE_NOW
from beamlike.runtime.run.progress import Progress
from beamlike.runtime.run.run_records import RecordHooks
from beamlike.runtime.run.run_sinks import RunSinks
from beamlike.runtime.run.side_tables import at_hand, kept_tables
from beamlike.runtime.run.sinks import check_sinks, require_in_process
from beamlike.system.threads import Threads
from stages.progress.inputs import Inputs

_FILES: Final = (
    *("beamlike/journal.sqlite", "beamlike/manifest.json", "beamlike/records.jsonl"),
    "beamlike/dead-letters/part-0-000000-000.jsonl",
)
"""An example of each kind of file in a checkpoint, to find out if a source would read such files by mistake."""
_DIGESTS: Final = "digests.json"


def check_plan(plan: Plan, checkpoint: LocalCheckpoint, *, draining: bool) -> None:
    """Checks a plan before anything is written. Raises `PlanError` if the plan cannot run or continue in process.

    Raises `CheckpointError` if the plan does not fit the checkpoint, and `SinkError` if a sink cannot be written.
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


def open_local_run(
    plan: Plan, options: LoopOptions, checkpoint: LocalCheckpoint, control: RunControl, held: ExitStack
) -> Opened:
    """Compares the plan with the checkpoint, and opens the run. Adds to `held` what must be closed at its end."""
    before = checkpoint.manifest()
    require_files(plan, globs=before is None and options.trigger == AVAILABLE_NOW)
    require_run(before, checkpoint, options.continue_as)
    fit = fitted(plan, before, 1, Runner.LOCAL)
    plan, manifest = fit.plan, checkpoint.open(fit, draining=options.drain)
    journal = checkpoint.journal(manifest)
    held.callback(journal.close)
    run_sinks = RunSinks(plan, manifest["run"], CheckpointLetters(checkpoint.dead_letters))
    manifest = CopyGuard(run_sinks, checkpoint, checkpoint.at(RECORDS_FILE)).admit(
        manifest, _reached(journal), options.continue_as, held
    )
    _require_same_input(plan, checkpoint, begun=manifest["begun"])
    tables = kept_tables(plan, options.clock(), checkpoint, checkpoint.files, before)
    plan = with_tables(plan, at_hand(tables))
    # Sources are opened first: if a source cannot be read, the output of an earlier run must not be lost.
    threads = Threads()
    feed = open_feed(
        plan, options.chunk_rows, options.clock, position=journal.position, threads=threads, held=held
    )
    if journal.last is not None and journal.last[1]:
        # If the earlier run was killed right after the commit, it has not notified the sources.
        feed.committed(journal.last[0])
    run_sinks = RunSinks(plan, manifest["run"], run_sinks.dead_letters)
    observed = options.on_batch is not None or bool(options.telemetry)
    run = OpenRun.of(
        plan,
        checkpoint,
        manifest,
        sinks=run_sinks,
        limit=DeadLetterLimit(plan.max_dead_letters, journal.tally(), keep=journal.keep_tally),
        clock=options.clock,
        options=options,
        held=held,
        progress=Progress.of(plan, options.trigger, quiet=options.quiet),
        path=checkpoint.at(RECORDS_FILE),
        hooks=RecordHooks(
            storing=lambda: stored("write", checkpoint.path),
            later=journal.later,
            settle=journal.settle,
            behind=not observed,
            changed=feed.changed,
        ),
        last_time=None if journal.last is None else journal.last[0].now,
    )
    engine = Engine(
        plan,
        options.clock,
        store=journal,
        inputs=_load(plan, journal),
        last=_record_before(journal, run, checkpoint),
        hooks=control.hooks(journal, observed=observed),
        threads=threads,
        drains=plan.drains(asked=options.drain and steps_of(plan) is None),
        keys=run.records.keys,
    )
    sinks = BatchSinks(plan, run_sinks.sinks, manifest["run"], run.may_replay)
    return Opened(
        plan=plan,
        clock=options.clock,
        run=run,
        journal=journal,
        feed=feed,
        executor=LocalExecutor(engine, feed, journal, sinks),
        started=options.clock(),
    )


def _reached(journal: Journal) -> Reached:
    if journal.last is None:
        return Reached(-1, -1)
    batch, is_done = journal.last
    return Reached(batch.number, batch.number if is_done else batch.number - 1)


def _load(plan: Plan, journal: Journal) -> dict[str, Inputs]:
    """Returns the inputs of the sources and stages after the last batch that is done."""
    known = {name: load_inputs(name, journal) for name in plan.producers}
    return {name: inputs for name, inputs in known.items() if inputs != Inputs()}


def _require_same_input(plan: Plan, checkpoint: LocalCheckpoint, *, begun: bool) -> None:
    """Raises `CheckpointError` if rows in memory or test streams differ from those of the earlier runs."""
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
    """Returns the last record; None if its batch will be replayed, or there is no record.

    Raises `CheckpointError` if there is a record of a batch that the journal does not have.
    """
    recorded, last = run.records.last, journal.last
    if recorded is None:
        return None
    if recorded.batch > (-1 if last is None else last[0].number):
        raise checkpoint.damaged(
            f"{journal.path} has no batch {recorded.batch}, which the records have: a part of it is lost"
        )
    is_again = last is not None and not last[1] and recorded.batch == last[0].number
    return None if is_again else recorded
