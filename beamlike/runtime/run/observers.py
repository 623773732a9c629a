"""The observers of a run. They receive the record of each finished batch, in the same order on both runners."""

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
    """A report of lost rows: dropped elements and dead letters are logged. Too many dead letters fail the run."""

    drops: DroppedCounts
    limit: DeadLetterLimit

    @classmethod
    def of(cls, plan: Plan, limit: DeadLetterLimit) -> LossReport:
        """Creates the report for a run of this plan."""
        return cls(DroppedCounts(plan), limit)

    def take(self, record: BatchRecord) -> None:
        """Adds the record of a batch. Raises `TooManyDeadLetters` if the run's limit is exceeded."""
        self.drops.take(record)
        self.limit.take(record)

    def end(self) -> None:
        """Logs losses that are not reported yet, at the end of the run. Raises `TooManyDeadLetters` if the run's limit
        is exceeded.
        """
        self.drops.end()
        self.limit.end()


@attrs.frozen(kw_only=True)
class Observers:
    """The observers of each batch, in this order: records, the terminal, the user's `on_batch`, log warnings, lost
    rows.

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
        """Creates the observers of a run of this plan. `clock` returns the time of this machine (us).

        `last_time` is the processing time (us) of the last batch of an earlier run on the checkpoint, if known.
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
        """Reports a batch to all observers. Raises `TooManyDeadLetters` if the run's limit is exceeded, and errors of
        `on_batch`.
        """
        self.records.write(record)
        self.progress.update(record)
        if self.on_batch is not None:
            with activity("callback", "on_batch"):
                try:
                    self.on_batch(record)
                except Exception as error:
                    error.add_note("in on_batch")
                    raise
        self.times.take(record)
        self.clock.take(record)
        self.losses.take(record)

    def end(self) -> None:
        """Ends the reports of the run. Raises `TooManyDeadLetters` if the run's limit is exceeded."""
        self.losses.end()
