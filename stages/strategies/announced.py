"""The watermark of a source that says itself how complete it is."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import polars as pl

from stages.strategies.base import Summary, WatermarkStrategy
from windowing.time import MIN_TIME


@attrs.frozen
class AnnouncedWatermark(WatermarkStrategy):
    """The watermark is what the source announces; elements say nothing of it.

    Such a source brings this strategy itself; it is given to `p.read` for its options. `idle_after="30s"`: others go on
    without a source that has announced nothing for so long. `percentiles` are those of which a test stream announces
    the watermark at some time; until then they stand with the whole.

    Example:
        >>> bl.AnnouncedWatermark(idle_after="30s")
        AnnouncedWatermark(per_split=None, idle_after=30s, max_drift=None, percentiles=())
    """

    @property
    def learns_lateness(self) -> bool:
        """Percentiles are announced, too."""
        return False

    def observe(self, frame: pl.DataFrame) -> Summary:
        """Nothing."""
        return {}

    def merge(self, one: Summary, other: Summary) -> Summary:
        """The later of each."""
        if not one or not other:
            return one or other
        shares = [one["percentiles"], other["percentiles"]]
        latest = {
            share: max(known.get(share, MIN_TIME) for known in shares)
            for share in sorted({*shares[0], *shares[1]})
        }
        return {"watermark": max(one["watermark"], other["watermark"]), "percentiles": latest}

    def watermark(self, state: Summary, processing_time: int) -> int:
        """As announced; the beginning of time before the first announcement."""
        return int(state.get("watermark", MIN_TIME))

    def percentile_watermarks(self, state: Summary) -> dict[int, int]:
        """As announced."""
        announced = state.get("percentiles", {})
        return {share: int(announced.get(str(share), MIN_TIME)) for share in self.percentiles}


def announcement(watermark: int, percentiles: Mapping[int, int] | None = None) -> Summary:
    """The summary by which a source says where its watermark and those of percentiles stand, in microseconds."""
    # JSON has text for keys.
    shares = {str(share): time for share, time in sorted((percentiles or {}).items())}
    return {"watermark": watermark, "percentiles": shares}
