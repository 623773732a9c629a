"""The present state of a run: its last and its current batch, and lags that grow until the batch is complete."""

from __future__ import annotations

import attrs

from beamlike.records.model import BatchRecord, is_a_time
from beamlike.system.activity import Activity, CurrentBatch


@attrs.frozen
class Present:
    """The last batch of a run, and the current batch if there is one (`in_hand`), at the time `now` (us).

    Without `now`, times are those of the last batch: the run is over, or its state is unknown. If processing time is
    `simulated`, lags are measured at the time of the last batch, not at `now`.
    """

    batch: BatchRecord | None
    in_hand: CurrentBatch | None = None
    now: int | None = None
    simulated: bool = False

    @property
    def time(self) -> int:
        """The processing time (us)."""
        last = 0 if self.batch is None else self.batch.processing_time
        return last if self.now is None or self.simulated else max(last, self.now)

    def lag(self, watermark: int) -> int | None:
        """Returns the duration (us) by which a watermark is behind processing time; None at the ends of time."""
        return self.time - watermark if is_a_time(watermark) else None

    @property
    def in_hand_for(self) -> int | None:
        """The duration (us) of the current batch so far; None if there is none."""
        if self.now is None or self.in_hand is None:
            return None
        return max(0, self.now - self.in_hand.started)

    def output_system_lag(self, stage: str) -> int:
        """Returns the age (us) of the oldest operation up to the output of the stage, in the last or the
        current batch.
        """
        last = self.batch.output_system_lag(stage) if self.batch and stage in self.batch.stages else 0
        if self.in_hand is None or self.in_hand_for is None:
            return last
        done = self.in_hand.done.get(stage)
        return max(last, self.in_hand_for) if done is None else max(0, done - self.in_hand.started)

    def input_system_lag(self, stage: str) -> int:
        """Returns the age (us) of the oldest operation before the stage."""
        if self.batch is None or stage not in self.batch.stages:
            return self._of_sources()
        upstream = [one for one in self.batch.stages[stage].upstream if one in self.batch.stages]
        return max([self._of_sources(), *map(self.output_system_lag, upstream)])

    def _of_sources(self) -> int:
        """Returns the age (us) of rows that are being read or are sent to the first stages; 0 if there are none."""
        if self.in_hand is None or self.in_hand_for is None:
            return 0
        return self.in_hand_for if any(work.of_source for work in self.in_hand.works) else 0

    def at_for(self, work: Activity) -> int:
        """Returns the duration (us) of an activity of the current batch so far."""
        return 0 if self.now is None else max(0, self.now - work.since)
