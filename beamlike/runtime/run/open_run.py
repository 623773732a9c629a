"""A run on a checkpoint, on either runner, after its sinks have started and before its first batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import attrs

from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.runtime.run.checkpoint import CheckpointFolder
from beamlike.runtime.run.dead_letter_limit import DeadLetterLimit
from beamlike.runtime.run.observers import Observers
from beamlike.runtime.run.options import AVAILABLE_NOW, RunOptions
from beamlike.runtime.run.progress import Progress
from beamlike.runtime.run.run_records import RecordHooks, RunRecords
from beamlike.runtime.run.run_sinks import RunSinks


@attrs.frozen(eq=False, kw_only=True)
class OpenRun:
    """The parts of an open run: its sinks, its records, and the observers of its batches.

    `may_replay`: an earlier run on this checkpoint may already have begun the first batch.
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
        options: RunOptions,
        held: ExitStack,
        progress: Progress,
        path: str | None,
        hooks: RecordHooks,
        tasks: bool = False,
        last_time: int | None = None,
    ) -> Self:
        """Starts the sinks, unless an earlier run did. Adds to `held` what must be closed at the end of the run.

        `path`, `clock`, `tasks` and `hooks` are arguments of `RunRecords.open`, `last_time` is one of `Observers.of`.
        `progress` is shown from now on.
        """
        # First, so that they tell if a sink cannot start.
        records = RunRecords.open(path, plan, clock, fresh=False, tasks=tasks, hooks=hooks)
        held.callback(records.close, "failed")
        may_replay = manifest["begun"]
        if not may_replay:
            sinks.start(restored=manifest.get("restored", False))
            manifest["begun"] = True
            checkpoint.save(manifest)
        records.followed_by(options.on_batch)
        held.push(progress)
        endless = options.trigger != AVAILABLE_NOW and steps_of(plan) is None
        records.exported_by(options.telemetry, plan, manifest["run"], spark=tasks, endless=endless)
        observers = Observers.of(
            plan,
            limit,
            records=records,
            progress=progress,
            on_batch=options.on_batch,
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
        """Sets a flag in the stored manifest, which later runs read."""
        self.manifest[fact] = holds
        self.checkpoint.save(self.manifest)
