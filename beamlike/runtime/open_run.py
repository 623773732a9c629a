"""A run on a checkpoint from its start on, whatever runs it: its sinks are ready, and it can be told of."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

import attrs

from beamlike.plan.model import Plan
from beamlike.runtime.checkpoint import CheckpointFolder
from beamlike.runtime.dead_letter_limit import DeadLetterLimit
from beamlike.runtime.observers import Observers, OnBatch
from beamlike.runtime.outcome import Outcome, Storing
from beamlike.runtime.progress import Progress
from beamlike.runtime.run_sinks import RunSinks
from beamlike.system.in_hand import Desk


@attrs.frozen(eq=False)
class OpenRun:
    """What a run has open: where it writes, and who is told of its batches.

    `may_replay`: whether a batch may have been begun before, as an earlier run was on this checkpoint.
    """

    checkpoint: CheckpointFolder
    manifest: dict[str, Any]
    sinks: RunSinks
    outcome: Outcome
    progress: Progress
    observers: Observers
    may_replay: bool

    @classmethod
    def of(
        cls,
        plan: Plan,
        checkpoint: CheckpointFolder,
        manifest: dict[str, Any],
        sinks: RunSinks,
        limit: DeadLetterLimit,
        desk: Desk,
        on_batch: OnBatch | None,
        held: ExitStack,
        *,
        progress: Progress,
        records: str | None,
        tasks: bool = False,
        storing: Storing | None = None,
    ) -> Self:
        """Has the sinks made ready, unless they are. What is to be let go of at the end is put into `held`.

        `records`, `tasks` and `storing` are as `Outcome` has them. `progress` is shown from now on.
        """
        may_replay = manifest["begun"]
        if not may_replay:
            sinks.start(restored=manifest.get("restored", False))
            manifest["begun"] = True
            checkpoint.save(manifest)
        outcome = Outcome.open(records, plan, desk, fresh=False, tasks=tasks, storing=storing)
        outcome.followed_by(on_batch)
        held.callback(outcome.close, "failed")
        held.callback(progress.close)
        observers = Observers.of(plan, limit, outcome, progress, on_batch, desk.clock)
        return cls(checkpoint, manifest, sinks, outcome, progress, observers, may_replay)

    def note(self, fact: str, *, holds: bool = True) -> None:
        """From now on this is so, or is no longer, also for later runs on the checkpoint."""
        self.manifest[fact] = holds
        self.checkpoint.save(self.manifest)
