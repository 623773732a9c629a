"""The present of a run: its last batch, its current batch, and lags that grow while nothing is complete."""

from __future__ import annotations

import attrs

from beamlike.records.model import BatchRecord, is_a_time
from beamlike.system.activity import Activity, CurrentBatch


@attrs.frozen
class Present:
    """The last batch of a run, and the current one if there is one (`in_hand`), at `now` (us).

    Without `now`, the present is that of the last batch: the run is over, or its state is unknown. With `simulated`
    time, event time is measured against the time of the last batch, which does not move.
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
        """The event time (us) by which a watermark is behind; None at the ends of time."""
        return self.time - watermark if is_a_time(watermark) else None

    @property
    def in_hand_for(self) -> int | None:
        """The duration (us) of the current batch so far; None if there is none."""
        if self.now is None or self.in_hand is None:
            return None
        return max(0, self.now - self.in_hand.started)

    def output_system_lag(self, stage: str) -> int:
        """The age (us) of the oldest operation up to the stage's output: of the current batch, or of the last one."""
        last = self.batch.output_system_lag(stage) if self.batch and stage in self.batch.stages else 0
        if self.in_hand is None or self.in_hand_for is None:
            return last
        done = self.in_hand.done.get(stage)
        return max(last, self.in_hand_for) if done is None else max(0, done - self.in_hand.started)

    def input_system_lag(self, stage: str) -> int:
        """The age (us) of the oldest operation upstream of the stage."""
        if self.batch is None or stage not in self.batch.stages:
            return self._of_sources()
        upstream = [one for one in self.batch.stages[stage].upstream if one in self.batch.stages]
        return max([self._of_sources(), *map(self.output_system_lag, upstream)])

    def _of_sources(self) -> int:
        """The age (us) of rows that are being read, or are on their way to the first stages."""
        if self.in_hand is None or self.in_hand_for is None:
            return 0
        return self.in_hand_for if any(work.of_source for work in self.in_hand.works) else 0

    def at_for(self, work: Activity) -> int:
        """The duration (us) of an activity of the current batch so far."""
        return 0 if self.now is None else max(0, self.now - work.since)
