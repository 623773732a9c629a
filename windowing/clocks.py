"""The clocks of a stage (watermark, percentile watermarks, processing time, sides), by name, with their times."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

from windowing.time import MAX_TIME, MIN_TIME

WATERMARK: Final = "watermark"
PROCESSING_TIME: Final = "processing_time"

_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})
_NO_SIDES: Final[Mapping[str, int]] = MappingProxyType({})


def percentile_clock(percentile: int) -> str:
    """Returns the name of the clock of this percentile watermark, from 1 to 99."""
    return f"percentile_{percentile}"


def clock_percentile(clock: str) -> int | None:
    """Returns the percentage of a percentile watermark, from the name of its clock; None for any other clock."""
    share = clock.removeprefix("percentile_")
    return int(share) if share != clock else None


@attrs.frozen
class Times:
    """The time (us) of each clock of a stage, by the clock's name."""

    times: Mapping[str, int] = attrs.field(factory=lambda: {WATERMARK: MIN_TIME, PROCESSING_TIME: 0})

    @classmethod
    def of(
        cls,
        watermark: int,
        processing_time: int = 0,
        percentiles: Mapping[int, int] = _NOTHING,
        sides: Mapping[str, int] = _NO_SIDES,
    ) -> Times:
        """Creates the times of a stage's clocks (us).

        Args:
            watermark: The input watermark of the stage.
            processing_time: The processing time.
            percentiles: The percentile watermarks, by percentage.
            sides: The watermarks of side inputs, by the name of their clock.
        """
        shares = {percentile_clock(share): time for share, time in percentiles.items()}
        return cls({**shares, **sides, WATERMARK: watermark, PROCESSING_TIME: processing_time})

    def time(self, clock: str) -> int:
        """Returns the time (us) of a clock. A clock without a time is at the beginning of time."""
        return self.times.get(clock, MIN_TIME)

    @property
    def watermark(self) -> int:
        """The input watermark (us)."""
        return self.time(WATERMARK)

    @property
    def processing_time(self) -> int:
        """The processing time (us)."""
        return self.time(PROCESSING_TIME)

    @property
    def percentiles(self) -> dict[int, int]:
        """The percentile watermarks (us) by percentage."""
        return {share: time for name, time in self.times.items() if (share := clock_percentile(name))}

    def with_watermark(self, watermark: int) -> Times:
        """Returns the times with another input watermark (us)."""
        return Times({**self.times, WATERMARK: watermark})

    def back(self, duration: int) -> Times:
        """Returns the times that were this long (us) ago. The end of time stays the end of time."""
        ago = {
            name: time if time >= MAX_TIME else max(time - duration, MIN_TIME)
            for name, time in self.times.items()
        }
        return Times(ago)

    def advance(self, to: Times) -> Times:
        """Returns the times after each clock has advanced to its time in `to`. No clock goes back."""
        moved = {name: max(time, self.times.get(name, MIN_TIME)) for name, time in to.times.items()}
        return Times({**self.times, **moved})
