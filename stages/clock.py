"""The clock of a step, and the input and output watermark of a stage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from windowing.clocks import PROCESSING_TIME, Times
from windowing.time import MAX_TIME, MIN_TIME

if TYPE_CHECKING:
    from stages.completeness import Completeness


@attrs.frozen
class Watermarks:
    """The input and output watermark of a stage (us). Neither ever decreases, and output <= input."""

    input: int = MIN_TIME
    output: int = MIN_TIME

    def advance(self, reports: Iterable[int], hold: int | None = None) -> Watermarks:
        """Returns both watermarks after upstream stages reported theirs (us); `hold` is the least hold in state."""
        received = self.receive(reports)
        held = received.input if hold is None else min(received.input, hold)
        return Watermarks(received.input, max(self.output, held))

    def receive(self, reports: Iterable[int]) -> Watermarks:
        """Moves the input watermark to the least of the reported ones; to the end of time if there are no reports."""
        return Watermarks(max(self.input, min(reports, default=MAX_TIME)), self.output)


@attrs.frozen
class StepClock:
    """The times of a step of a stage. Arrivals are processed with the watermarks before the step; then clocks advance.

    Attributes:
        watermarks: The input and output watermark of the stage before the step.
        previous: The times of all clocks before the step.
        now: The times of all clocks after the step.
        completeness: The completeness of windows after the step; None unless the plan asks for it.
        drained: True if a drain ends the run with this step.
    """

    watermarks: Watermarks
    previous: Times
    now: Times
    completeness: Completeness | None = attrs.field(default=None, eq=False)
    drained: bool = False

    @classmethod
    def standing(cls, watermarks: Watermarks, times: Times) -> StepClock:
        """Creates the clock of a step that does not advance any time."""
        return cls(watermarks, times, times)

    @property
    def input_before(self) -> int:
        """The input watermark before the step (us). Rows with an earlier event time are late."""
        return self.watermarks.input

    @property
    def watermark(self) -> int:
        """The input watermark after the step (us)."""
        return self.now.watermark

    @property
    def processing_time(self) -> int:
        """The processing time of the step (us)."""
        return self.now.processing_time

    @property
    def at_end(self) -> bool:
        """True if the input has ended after this step."""
        return self.now.watermark >= MAX_TIME

    @property
    def moves(self) -> bool:
        """True if the step advances a clock."""
        return self.now != self.previous

    def at_arrival(self) -> Times:
        """Returns the times at which arrivals are processed: the previous ones, with the processing time of this
        step.
        """
        return Times({**self.previous.times, PROCESSING_TIME: self.now.times[PROCESSING_TIME]})
