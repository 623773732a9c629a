"""The clock of a step, and the input and output watermark of a stage."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from windowing.clocks import PROCESSING_TIME, Times
from windowing.time import MAX_TIME, MIN_TIME


@attrs.frozen
class Watermarks:
    """The input and output watermark of a stage, in microseconds. Neither goes back, and output <= input."""

    input: int = MIN_TIME
    output: int = MIN_TIME

    def advance(self, reports: Iterable[int], hold: int | None = None) -> Watermarks:
        """Moves both after upstream reports of these watermarks; `hold` is the least among buffers and state."""
        received = self.receive(reports)
        held = received.input if hold is None else min(received.input, hold)
        return Watermarks(received.input, max(self.output, held))

    def receive(self, reports: Iterable[int]) -> Watermarks:
        """Moves the input to the least report; a stage without upstream is at the end of input."""
        return Watermarks(max(self.input, min(reports, default=MAX_TIME)), self.output)


@attrs.frozen
class StepClock:
    """The clock of a step of a stage, which moves from the times `previous` to the times `now`.

    `watermarks` are those of the stage before the step. Arrivals are processed with them; then the clock moves.
    """

    watermarks: Watermarks
    previous: Times
    now: Times

    @classmethod
    def standing(cls, watermarks: Watermarks, times: Times) -> StepClock:
        """A clock that does not move."""
        return cls(watermarks, times, times)

    @property
    def input_before(self) -> int:
        """The input watermark before the step (us). Rows with an earlier event time are late."""
        return self.watermarks.input

    @property
    def watermark(self) -> int:
        """The input watermark that the step moves to (us)."""
        return self.now.watermark

    @property
    def processing_time(self) -> int:
        """The processing time of the step (us)."""
        return self.now.processing_time

    @property
    def at_end(self) -> bool:
        """True if the input is over after this step."""
        return self.now.watermark >= MAX_TIME

    @property
    def moves(self) -> bool:
        """True if a clock goes forward in this step."""
        return self.now != self.previous

    def at_arrival(self) -> Times:
        """The times at which arrivals are processed: the previous ones, with the processing time of this step."""
        return Times({**self.previous.times, PROCESSING_TIME: self.now.times[PROCESSING_TIME]})
