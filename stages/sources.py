"""Watermark strategies of sources: observe (per task, columnar) -> merge (associative) -> watermark.

A summary is plain data (a dict that JSON can hold), so that it travels beside the chunks that it describes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import polars as pl
from windowing.columns import EVENT_TIME
from windowing.time import MIN_TIME, microseconds

Summary = dict[str, Any]


@attrs.frozen
class WatermarkStrategy:
    """How complete a source is: W says that no element with an event time before W is still to come.

    Laws: `merge` is associative, commutative and idempotent with `{}` as identity; observing a batch in parts and
    merging gives what observing it whole gives; the watermark of a merged summary is never before its parts'.
    """

    def observe(self, frame: pl.DataFrame) -> Summary:
        """The summary of rows that have an event time."""
        raise NotImplementedError

    def merge(self, one: Summary, other: Summary) -> Summary:
        """The summary of both."""
        raise NotImplementedError

    def watermark(self, summary: Summary, processing_time: int) -> int:
        """The watermark in microseconds, which the source then never takes back."""
        raise NotImplementedError

    def percentile_watermarks(self, summary: Summary) -> dict[int, int]:
        """The percentiles of which it knows the watermark, and these, in microseconds."""
        return {}


def _bound(owner: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 0:
        raise ValueError(f"{type(owner).__name__}: {attribute.name} must not be negative, not {value} us")


@attrs.frozen
class BoundedOutOfOrderness(WatermarkStrategy):
    """The watermark follows the newest event time at a distance: elements are at most `bound` out of order.

    W = newest - bound; an element at exactly W is not late. (Flink's `newest - bound - 1 ms` says that none at or
    before it is to come, and closes windows at the same moment.)
    """

    bound: int = attrs.field(converter=microseconds, validator=_bound)

    def observe(self, frame: pl.DataFrame) -> Summary:
        """The newest event time."""
        newest = frame[EVENT_TIME].max()
        return {} if newest is None else {"newest": newest}

    def merge(self, one: Summary, other: Summary) -> Summary:
        """The newer of the two."""
        if not one or not other:
            return one or other
        return max(one, other, key=lambda summary: int(summary["newest"]))

    def watermark(self, summary: Summary, processing_time: int) -> int:
        """Newest - bound; the beginning of time before the first element."""
        return max(MIN_TIME, int(summary.get("newest", MIN_TIME)) - self.bound)


@attrs.frozen
class MonotonousTimestamps(BoundedOutOfOrderness):
    """Event times never go down: the watermark is the newest, a bound of nothing."""

    bound: int = attrs.field(default=0, init=False)


@attrs.frozen
class AnnouncedWatermark(WatermarkStrategy):
    """The source says itself how complete it is, and does not look at elements.

    `percentiles` are those of which it announces the watermark at some time; until then that is the beginning of time.
    """

    percentiles: tuple[int, ...] = ()

    def observe(self, frame: pl.DataFrame) -> Summary:
        """Nothing: elements say nothing of the watermark."""
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

    def watermark(self, summary: Summary, processing_time: int) -> int:
        """As announced; the beginning of time before the first announcement."""
        return int(summary.get("watermark", MIN_TIME))

    def percentile_watermarks(self, summary: Summary) -> dict[int, int]:
        """As announced."""
        announced = summary.get("percentiles", {})
        return {share: int(announced.get(str(share), MIN_TIME)) for share in self.percentiles}


def announcement(watermark: int, percentiles: Mapping[int, int] | None = None) -> Summary:
    """The summary by which a source says where its watermark and those of percentiles stand, in microseconds."""
    # JSON has text for keys.
    shares = {str(share): time for share, time in sorted((percentiles or {}).items())}
    return {"watermark": watermark, "percentiles": shares}


@attrs.frozen
class SourceClock:
    """What is known of a source so far: the merged summary, and the watermark that it has reached."""

    summary: Summary = attrs.field(factory=dict)
    watermark: int = MIN_TIME

    def observe(self, strategy: WatermarkStrategy, summary: Summary, processing_time: int) -> SourceClock:
        """After one more summary: the watermark never goes back."""
        merged = strategy.merge(self.summary, summary) if summary else self.summary
        return SourceClock(merged, max(self.watermark, strategy.watermark(merged, processing_time)))

    def percentiles(self, strategy: WatermarkStrategy) -> dict[int, int]:
        """The watermarks of the percentiles that the source knows; none is behind that of the whole."""
        known = strategy.percentile_watermarks(self.summary)
        return {share: max(time, self.watermark) for share, time in known.items()}


def least_percentiles(sources: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """The percentile watermarks of several sources together: of each percentile the least that is known."""
    least: dict[int, int] = {}
    for known in sources:
        for share, time in known.items():
            least[share] = min(time, least.get(share, time))
    return least
