"""A run on a checkpoint with its sinks started and its observers ready, on any runner."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import attrs

from beamlike.plan.model import Plan
from beamlike.runtime.run.checkpoint import CheckpointFolder
from beamlike.runtime.run.dead_letter_limit import DeadLetterLimit
from beamlike.runtime.run.observers import Observers, OnBatch
from beamlike.runtime.run.progress import Progress
from beamlike.runtime.run.run_records import RecordHooks, RunRecords
from beamlike.runtime.run.run_sinks import RunSinks


@attrs.frozen(eq=False, kw_only=True)
class OpenRun:
    """The open parts of a run: its sinks, its records, and the observers of its batches.

    `may_replay`: True if an earlier run on this checkpoint may have begun the first batch.
    """

    checkpoint: CheckpointFolder
    manifest: dict[str, Any]
    sinks: RunSinks
    records: RunRecords
    progress: Progress
    observers: Observers
    may_replay: bool

    @classmethod
    def of(
        cls,
        plan: Plan,
        checkpoint: CheckpointFolder,
        manifest: dict[str, Any],
        *,
        sinks: RunSinks,
        limit: DeadLetterLimit,
        clock: Callable[[], int],
        on_batch: OnBatch | None,
        held: ExitStack,
        progress: Progress,
        path: str | None,
        hooks: RecordHooks,
        tasks: bool = False,
        last_time: int | None = None,
    ) -> Self:
        """Starts the sinks, unless an earlier run did. Adds to `held` what must be closed at the end of the run.

        `path`, `clock`, `tasks` and `hooks` are those of `RunRecords.open`, `last_time` that of `Observers.of`.
        `progress` is shown from now on.
        """
        may_replay = manifest["begun"]
        if not may_replay:
            sinks.start(restored=manifest.get("restored", False))
            manifest["begun"] = True
            checkpoint.save(manifest)
        records = RunRecords.open(path, plan, clock, fresh=False, tasks=tasks, hooks=hooks)
        records.followed_by(on_batch)
        held.callback(records.close, "failed")
        held.callback(progress.close)
        observers = Observers.of(
            plan,
            limit,
            records=records,
            progress=progress,
            on_batch=on_batch,
            clock=clock,
            last_time=last_time,
        )
        return cls(
            checkpoint=checkpoint,
            manifest=manifest,
            sinks=sinks,
            records=records,
            progress=progress,
            observers=observers,
            may_replay=may_replay,
        )

    def note(self, fact: str, *, holds: bool = True) -> None:
        """Stores in the manifest that a fact holds from now on, or no longer, also for later runs."""
        self.manifest[fact] = holds
        self.checkpoint.save(self.manifest)
