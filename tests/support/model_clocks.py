"""The clocks of the naive model, and their view from one window."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from tests.support.model_windows import MIN_TIME, Window, maximum


@attrs.frozen
class Clocks:
    """The watermark, processing time and percentile watermarks, in microseconds."""

    watermark: int = MIN_TIME
    processing_time: int = 0
    percentiles: Mapping[int, int] = attrs.field(factory=dict)

    def percentile(self, percentile: int) -> int:
        return self.percentiles.get(percentile, MIN_TIME)

    def advance(self, watermark: int, processing_time: int, percentiles: Mapping[int, int]) -> Clocks:
        """Returns the clocks moved forward; no clock moves back."""
        return Clocks(
            max(self.watermark, watermark),
            max(self.processing_time, processing_time),
            {share: max(time, self.percentile(share)) for share, time in percentiles.items()}
            | {share: time for share, time in self.percentiles.items() if share not in percentiles},
        )

    def moved_since(self, before: Clocks) -> bool:
        shares = self.percentiles.keys() | before.percentiles.keys()
        return (
            self.watermark != before.watermark
            or self.processing_time != before.processing_time
            or any(self.percentile(share) != before.percentile(share) for share in shares)
        )


@attrs.frozen
class Now:
    """The clocks and the window that a trigger may read."""

    clocks: Clocks
    window: Window

    @property
    def over(self) -> bool:
        """True if the watermark has passed the window's end: eow in 4.3."""
        return self.clocks.watermark > maximum(self.window)

    def passed(self, percentile: int) -> bool:
        """True if the percentile watermark has passed the window's end."""
        return self.clocks.percentile(percentile) > maximum(self.window)
