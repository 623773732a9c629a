"""The observers of a run, which receive each batch when it is done: in the same order on both runners."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from beamlike.plan.model import Plan
from beamlike.records.model import BatchRecord
from beamlike.runtime.run.clock_jumps import ClockJumps
from beamlike.runtime.run.dead_letter_limit import DeadLetterLimit
from beamlike.runtime.run.drops import DroppedCounts
from beamlike.runtime.run.hints import EarlyTimes
from beamlike.runtime.run.progress import Progress
from beamlike.runtime.run.run_records import RunRecords
from beamlike.system.activity import activity

OnBatch: TypeAlias = Callable[[BatchRecord], object]
"""A user's function that is called with the record of each batch."""


@attrs.frozen
class LossReport:
    """Logs the losses of a run: elements that stages drop, and dead letters. Too many dead letters fail the run."""

    drops: DroppedCounts
    limit: DeadLetterLimit

    @classmethod
    def of(cls, plan: Plan, limit: DeadLetterLimit) -> LossReport:
        """Creates the report for a run of this plan."""
        return cls(DroppedCounts(plan), limit)

    def take(self, record: BatchRecord) -> None:
        """Adds a batch. Raises `TooManyDeadLetters`."""
        self.drops.take(record)
        self.limit.take(record)

    def end(self) -> None:
        """Reports what is left at the end of the run. Raises `TooManyDeadLetters`."""
        self.drops.end()
        self.limit.end()


@attrs.frozen(kw_only=True)
class Observers:
    """Passes a batch on in this order: its record, the terminal, the user's `on_batch`, the log, and losses last.

    So the record is stored before `on_batch` is called, and the batch that fails a run has been reported.
    """

    records: RunRecords
    progress: Progress
    on_batch: OnBatch | None
    times: EarlyTimes
    clock: ClockJumps
    losses: LossReport

    @classmethod
    def of(
        cls,
        plan: Plan,
        limit: DeadLetterLimit,
        *,
        records: RunRecords,
        progress: Progress,
        on_batch: OnBatch | None,
        clock: Callable[[], int],
        last_time: int | None = None,
    ) -> Observers:
        """Creates the observers of a run of this plan. `clock` gives the time of this machine (us).

        `last_time`: the processing time (us) of the last batch of an earlier run on the checkpoint, if it is known.
        """
        return cls(
            records=records,
            progress=progress,
            on_batch=on_batch,
            times=EarlyTimes(plan),
            clock=ClockJumps(plan, clock, last_time),
            losses=LossReport.of(plan, limit),
        )

    def take(self, record: BatchRecord) -> None:
        """Reports a batch. Raises `TooManyDeadLetters`, and what `on_batch` raises."""
        self.records.write(record)
        self.progress.update(record)
        if self.on_batch is not None:
            with activity("callback", "on_batch"):
                self.on_batch(record)
        self.times.take(record)
        self.clock.take(record)
        self.losses.take(record)

    def end(self) -> None:
        """Ends the reports of the run. Raises `TooManyDeadLetters`."""
        self.losses.end()
