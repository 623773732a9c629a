"""The clocks of a stage by name (watermark, percentile watermarks, processing time), and the time of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

from windowing.time import MIN_TIME

WATERMARK: Final = "watermark"
PROCESSING_TIME: Final = "processing_time"

_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})
_NO_SIDES: Final[Mapping[str, int]] = MappingProxyType({})


def percentile_clock(percentile: int) -> str:
    """The name of the clock that this share of the sources' event times has passed."""
    return f"percentile_{percentile}"


def clock_percentile(clock: str) -> int | None:
    """The share of a percentile clock, read from its name; None for another clock."""
    share = clock.removeprefix("percentile_")
    return int(share) if share != clock else None


@attrs.frozen
class Times:
    """The time at each clock of a stage, by the clock's name, in microseconds. No clock goes back."""

    times: Mapping[str, int] = attrs.field(factory=lambda: {WATERMARK: MIN_TIME, PROCESSING_TIME: 0})

    @classmethod
    def of(
        cls,
        watermark: int,
        processing_time: int = 0,
        percentiles: Mapping[int, int] = _NOTHING,
        sides: Mapping[str, int] = _NO_SIDES,
    ) -> Times:
        """The times of a stage's own clocks, and of those of its side inputs.

        Args:
            watermark: The input watermark of the stage.
            percentiles: The percentile watermarks that are known, by their share.
            sides: The watermarks of inputs that the stage's own watermark does not include, by their clock.
        """
        shares = {percentile_clock(share): time for share, time in percentiles.items()}
        return cls({**shares, **sides, WATERMARK: watermark, PROCESSING_TIME: processing_time})

    def time(self, clock: str) -> int:
        """The time of the clock; the beginning of time for a clock that has not been set."""
        return self.times.get(clock, MIN_TIME)

    @property
    def watermark(self) -> int:
        """The time of the watermark."""
        return self.time(WATERMARK)

    @property
    def processing_time(self) -> int:
        """The processing time."""
        return self.time(PROCESSING_TIME)

    @property
    def percentiles(self) -> dict[int, int]:
        """The percentile watermarks that are known, by their share."""
        return {share: time for name, time in self.times.items() if (share := clock_percentile(name))}

    def advance(self, to: Times) -> Times:
        """Moves each clock forward to its time in `to`; a clock that is ahead of that stays where it is."""
        moved = {name: max(time, self.times.get(name, MIN_TIME)) for name, time in to.times.items()}
        return Times({**self.times, **moved})
