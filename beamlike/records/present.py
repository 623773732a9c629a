"""A run as it stands now: its last batch, the one in hand, and lags that grow while nothing is complete."""

from __future__ import annotations

import attrs

from beamlike.records.model import BatchRecord, is_a_time
from beamlike.system.activity import Activity, CurrentBatch


@attrs.frozen
class Present:
    """The last batch of a run, and the one in hand if there is one, at `now` (us).

    Without `now`, as of the last batch: the run is over, or nobody knows. Where time is `simulated`, event time is
    measured against that of the last batch, which stands still.
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
        """How far in event time (us) a watermark is behind; None at the ends of time."""
        return self.time - watermark if is_a_time(watermark) else None

    @property
    def in_hand_for(self) -> int | None:
        """How long (us) the batch in hand has been at it."""
        if self.now is None or self.in_hand is None:
            return None
        return max(0, self.now - self.in_hand.started)

    def output_system_lag(self, stage: str) -> int:
        """How old (us) the oldest operation up to the stage's output is: that in hand, or else the last one."""
        last = self.batch.output_system_lag(stage) if self.batch and stage in self.batch.stages else 0
        if self.in_hand is None or self.in_hand_for is None:
            return last
        done = self.in_hand.done.get(stage)
        return max(last, self.in_hand_for) if done is None else max(0, done - self.in_hand.started)

    def input_system_lag(self, stage: str) -> int:
        """How old (us) the oldest operation upstream of the stage is."""
        if self.batch is None or stage not in self.batch.stages:
            return self._of_sources()
        upstream = [one for one in self.batch.stages[stage].upstream if one in self.batch.stages]
        return max([self._of_sources(), *map(self.output_system_lag, upstream)])

    def _of_sources(self) -> int:
        """Of what is still read, or on its way to the first stages."""
        if self.in_hand is None or self.in_hand_for is None:
            return 0
        return self.in_hand_for if any(work.of_source for work in self.in_hand.works) else 0

    def at_for(self, work: Activity) -> int:
        """How long (us) the batch in hand has been in this."""
        return 0 if self.now is None else max(0, self.now - work.since)
