"""The watermark strategy of a source that announces its own watermark."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import polars as pl

from stages.strategies.base import Summary, WatermarkStrategy
from windowing.time import MIN_TIME


@attrs.frozen(repr=False)
class AnnouncedWatermark(WatermarkStrategy):
    """The strategy of a source that announces its own watermark, which does not depend on elements.

    It is the default strategy of such a source. Pass it to `p.read` only to set its options.

    Args:
        idle_after: The processing time, as in "30s", after which a source without an announcement is idle, so that
            other sources advance without it. By default it is never idle.
        percentiles: The percentages whose watermarks a test stream announces. Until its first announcement, such a
            percentile watermark is at the watermark.

    Example:
        >>> bl.AnnouncedWatermark(idle_after="30s")
        AnnouncedWatermark(idle_after="30s")
    """

    @property
    def learns_lateness(self) -> bool:
        return False  # percentile watermarks are announced, too

    def observe(self, frame: pl.DataFrame) -> Summary:
        return {}

    def merge(self, one: Summary, other: Summary) -> Summary:
        if not one or not other:
            return one or other
        shares = [one["percentiles"], other["percentiles"]]
        latest = {
            share: max(known.get(share, MIN_TIME) for known in shares)
            for share in sorted({*shares[0], *shares[1]})
        }
        return {"watermark": max(one["watermark"], other["watermark"]), "percentiles": latest}

    def watermark(self, state: Summary, processing_time: int) -> int:
        return int(state.get("watermark", MIN_TIME))

    def percentile_watermarks(self, state: Summary) -> dict[int, int]:
        announced = state.get("percentiles", {})
        return {share: int(announced.get(str(share), MIN_TIME)) for share in self.percentiles}


def announcement(watermark: int, percentiles: Mapping[int, int] | None = None) -> Summary:
    """Returns the summary by which a source announces its watermark and its percentile watermarks (us)."""
    # Keys are text, as in JSON.
    shares = {str(share): time for share, time in sorted((percentiles or {}).items())}
    return {"watermark": watermark, "percentiles": shares}
