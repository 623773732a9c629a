"""Several sources or stages together: the least of those that are not idle, and who is far ahead and must wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from stages.facts import SPARSE
from stages.strategies.histogram import Histogram, merge_histograms, percentile
from windowing.time import MAX_TIME, MIN_TIME


@attrs.frozen
class Report:
    """Where a source, a stage or a shard of it stands: what it still may send has no event time before `watermark`.

    `percentiles` are the watermarks of those that are known; another stands where the watermark does. Who is `idle`
    is left out of the minimum downstream. Of one shard of a stage, `percentiles` are those of the stage's input, and
    `holds` is where its own pending elements hold them: all shards together tell those of the output (`of_shards`).
    """

    watermark: int = MIN_TIME
    percentiles: Mapping[int, int] = attrs.field(factory=dict)
    idle: bool = False
    holds: Histogram = attrs.field(factory=dict, metadata=SPARSE)

    def followed_by(self, report: Report) -> Report:
        """After a later report: no watermark goes back."""
        shares = {
            share: max(time, self.percentiles.get(share, MIN_TIME))
            for share, time in report.percentiles.items()
        }
        return Report(max(self.watermark, report.watermark), shares, report.idle, report.holds)

    def moved_back(self, by: int) -> Report:
        """After a step that may set event times back by so many microseconds; the ends of time stay."""
        if by == 0:
            return self
        shares = {share: _moved_back(time, by) for share, time in self.percentiles.items()}
        return Report(_moved_back(self.watermark, by), shares, self.idle)


def _moved_back(watermark: int, by: int) -> int:
    return watermark if watermark >= MAX_TIME else max(MIN_TIME, watermark - by)


def least(reports: Iterable[Report]) -> Report:
    """Several as one: the least of those that are not idle. If all are, it is idle, where the least of them is.

    One that is idle may still speak, so it counts where all others have ended. Associative, commutative and
    idempotent: shards and stages may be put together in any way.
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
    """Percentile watermarks of a stage's output: the 66th is where a third of the pending elements hold it earlier.

    Each stays at or behind that of the input, at or ahead of the `output` watermark, which is the 100th, and of its
    time `before`.
    """
    reached = {}
    for share, time in inputs.items():
        hold = percentile(holds, 100 - share)
        held = time if hold is None else min(time, hold)
        reached[share] = max(output, before.get(share, MIN_TIME), held)
    return reached


def of_shards(shards: Iterable[Report], before: Mapping[int, int]) -> Report:
    """A stage, of the latest reports of all its shards, and how far its percentile watermarks had come `before`."""
    known = list(shards)
    stage = least(known)
    holds = merge_histograms(*(report.holds for report in known))
    percentiles = held_percentiles(stage.percentiles, holds, stage.watermark, before)
    return Report(stage.watermark, percentiles, stage.idle)


def must_wait(sources: Mapping[str, Report], drifts: Mapping[str, int | None]) -> frozenset[str]:
    """The sources that are further ahead of the slowest than their `max_drift` (us) lets them.

    The slowest is the least of all that are neither idle nor at their end. It never waits, so somebody goes on.
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
