"""Reports of watermarks: how those of several sources, stages or shards are merged, and which sources must wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from stages.facts import SPARSE
from stages.strategies.histogram import Histogram, merge_histograms, percentile
from windowing.time import MAX_TIME, MIN_TIME


@attrs.frozen
class Report:
    """The watermarks that a source, a stage, or one shard of a stage reports to the stages downstream.

    Attributes:
        watermark: The event time (us) such that no later output is before it.
        percentiles: The percentile watermarks (us) by percentage; a missing one is at the watermark. In the report of
            one shard, they are those of the input. Those of the output are computed from all shards by `of_shards`.
        idle: True if the reporter does not count in the minimum downstream.
        holds: In the report of one shard, the histogram of the holds of its pending elements.
    """

    watermark: int = MIN_TIME
    percentiles: Mapping[int, int] = attrs.field(factory=dict)
    idle: bool = False
    holds: Histogram = attrs.field(factory=dict, metadata=SPARSE)

    def followed_by(self, report: Report) -> Report:
        """Merges a later report of the same reporter into this one. No watermark goes back."""
        shares = {
            share: max(time, self.percentiles.get(share, MIN_TIME))
            for share, time in report.percentiles.items()
        }
        return Report(max(self.watermark, report.watermark), shares, report.idle, report.holds)

    def moved_back(self, by: int) -> Report:
        """Returns the report after a step that may move event times back by up to `by` (us). The end of time stays."""
        if by == 0:
            return self
        shares = {share: _moved_back(time, by) for share, time in self.percentiles.items()}
        return Report(_moved_back(self.watermark, by), shares, self.idle)


def _moved_back(watermark: int, by: int) -> int:
    return watermark if watermark >= MAX_TIME else max(MIN_TIME, watermark - by)


def least(reports: Iterable[Report]) -> Report:
    """Merges reports: the least watermarks of the reports that are not idle. Associative, commutative and idempotent.

    If all reports are idle, the result is idle with the least watermarks of all. The same holds if all others have
    ended, since an idle reporter may still have output.
    """
    known = list(reports)
    counted = [report for report in known if not report.idle]
    idle = len(counted) < len(known) and all(report.watermark >= MAX_TIME for report in counted)
    if idle:
        counted = known
    shares = sorted({share for report in known for share in report.percentiles})
    return Report(
        min((report.watermark for report in counted), default=MAX_TIME),
        {
            share: min(report.percentiles.get(share, report.watermark) for report in counted)
            for share in shares
        },
        idle,
    )


def held_percentiles(
    inputs: Mapping[int, int], holds: Histogram, output: int, before: Mapping[int, int]
) -> dict[int, int]:
    """Computes the percentile watermarks (us) of a stage's output from those of its input and the holds of elements.

    The 66th percentile watermark is a time before which a third of the pending elements hold the watermark. It is never
    ahead of that of the input, and never behind the `output` watermark or its earlier value in `before`.
    """
    reached = {}
    for share, time in inputs.items():
        hold = percentile(holds, 100 - share)
        held = time if hold is None else min(time, hold)
        reached[share] = max(output, before.get(share, MIN_TIME), held)
    return reached


def of_shards(shards: Iterable[Report], before: Mapping[int, int]) -> Report:
    """Merges the latest reports of all shards of a stage. `before` are its percentile watermarks (us) so far."""
    known = list(shards)
    stage = least(known)
    holds = merge_histograms(*(report.holds for report in known))
    percentiles = held_percentiles(stage.percentiles, holds, stage.watermark, before)
    return Report(stage.watermark, percentiles, stage.idle)


def must_wait(sources: Mapping[str, Report], drifts: Mapping[str, int | None]) -> frozenset[str]:
    """Returns the sources that must pause, because they are ahead of the slowest source by more than their `max_drift`
    (us).

    The slowest source is the one with the least watermark of all that are neither idle nor at their end. It never
    pauses, so at least one source always advances.
    """
    going = {
        name: report.watermark
        for name, report in sources.items()
        if not report.idle and report.watermark < MAX_TIME
    }
    slowest = min(going.values(), default=MAX_TIME)
    return frozenset(
        name
        for name, watermark in going.items()
        if (drift := drifts.get(name)) is not None and watermark - slowest > drift
    )
