"""Watermarks of a stage: input = minimum over upstream reports, output = minimum over input, buffers and state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from stages.strategies.histogram import Histogram, percentile
from windowing.time import MAX_TIME, MIN_TIME
from windowing.triggers.base import PROCESSING_TIME, WATERMARK, clock_percentile, percentile_clock


@attrs.frozen
class Watermarks:
    """Where a stage stands in event time, in microseconds. Both never go back, and output <= input."""

    input: int = MIN_TIME
    output: int = MIN_TIME

    def advance(self, reports: Iterable[int], hold: int | None = None) -> Watermarks:
        """After upstream reports of these watermarks, with this least hold among buffers and state."""
        received = self.receive(reports)
        held = received.input if hold is None else min(received.input, hold)
        return Watermarks(received.input, max(self.output, held))

    def receive(self, reports: Iterable[int]) -> Watermarks:
        """The input moved to the least report; a stage without upstream is at the end of input."""
        return Watermarks(max(self.input, min(reports, default=MAX_TIME)), self.output)


def held_percentiles(
    inputs: Mapping[int, int], holds: Histogram, output: int, before: Mapping[int, int]
) -> dict[int, int]:
    """Percentile watermarks of a stage's output: the 66th is where a third of the pending elements hold it earlier.

    None is ahead of that of the input, behind the `output` watermark, which is the 100th, or where it was `before`.
    """
    reached = {}
    for share, time in inputs.items():
        hold = percentile(holds, 100 - share)
        held = time if hold is None else min(time, hold)
        reached[share] = max(output, before.get(share, MIN_TIME), held)
    return reached


@attrs.frozen
class Clock:
    """What a step moves to: the stage's input watermark and the processing time, in microseconds.

    `percentiles`: of percentile watermarks that are known, how far each has come. `sides`: by their clock, the
    watermarks of inputs that are no part of the stage's own. `drained`: the end of all time is that of the run, and
    more input may exist.
    """

    watermark: int
    processing_time: int = 0
    percentiles: Mapping[int, int] = attrs.field(factory=dict)
    sides: Mapping[str, int] = attrs.field(factory=dict)
    drained: bool = False

    @property
    def times(self) -> Times:
        """The time of each clock by its name."""
        shares = {percentile_clock(share): time for share, time in self.percentiles.items()}
        own = {WATERMARK: self.watermark, PROCESSING_TIME: self.processing_time}
        return Times({**shares, **self.sides, **own})


@attrs.frozen
class Times:
    """Where the clocks of a stage stand, by name, in microseconds. None ever goes back."""

    times: Mapping[str, int] = attrs.field(factory=lambda: {WATERMARK: MIN_TIME, PROCESSING_TIME: 0})

    def time(self, clock: str) -> int:
        """Where the clock stands; one that has not been told stands at the beginning of time."""
        return self.times.get(clock, MIN_TIME)

    @property
    def percentiles(self) -> dict[int, int]:
        """The percentile watermarks that are known."""
        return {share: time for name, time in self.times.items() if (share := clock_percentile(name))}

    def advance(self, clock: Clock) -> Times:
        """After a step to this clock; where that is behind, nothing changes."""
        moved = {name: max(time, self.times.get(name, MIN_TIME)) for name, time in clock.times.times.items()}
        return Times({**self.times, **moved})

    def at_arrival(self, now: Times) -> Times:
        """For the elements of a step that moves to `now`: only processing time is that of the step already."""
        return Times({**self.times, PROCESSING_TIME: now.times[PROCESSING_TIME]})
