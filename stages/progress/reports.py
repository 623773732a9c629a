"""Reports of several sources or stages as one: the least of those that are not idle, and the sources that must wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from stages.facts import SPARSE
from stages.strategies.histogram import Histogram, merge_histograms, percentile
from windowing.time import MAX_TIME, MIN_TIME


@attrs.frozen
class Report:
    """The watermarks of a source, a stage or a shard of it: no later output has an event time before `watermark`.

    `percentiles` are the watermarks of the known shares; any other share is at the watermark. An `idle` report is left
    out of the minimum downstream. For one shard of a stage, `percentiles` are those of the stage's input, and `holds`
    the holds of its own pending elements: the output's percentiles follow from the reports of all shards (`of_shards`).
    """

    watermark: int = MIN_TIME
    percentiles: Mapping[int, int] = attrs.field(factory=dict)
    idle: bool = False
    holds: Histogram = attrs.field(factory=dict, metadata=SPARSE)

    def followed_by(self, report: Report) -> Report:
        """The report after a later one: no watermark goes back."""
        shares = {
            share: max(time, self.percentiles.get(share, MIN_TIME))
            for share, time in report.percentiles.items()
        }
        return Report(max(self.watermark, report.watermark), shares, report.idle, report.holds)

    def moved_back(self, by: int) -> Report:
        """The report after a step that may set event times back by so many microseconds; the ends of time stay."""
        if by == 0:
            return self
        shares = {share: _moved_back(time, by) for share, time in self.percentiles.items()}
        return Report(_moved_back(self.watermark, by), shares, self.idle)


def _moved_back(watermark: int, by: int) -> int:
    return watermark if watermark >= MAX_TIME else max(MIN_TIME, watermark - by)


def least(reports: Iterable[Report]) -> Report:
    """Several reports as one: the least of those that are not idle. If all are, it is idle, at the least of them.

    An idle one may still speak, so it counts if all others have ended. Associative, commutative and idempotent: shards
    and stages may be merged in any order.
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
    """The report of a stage from the latest reports of all its shards; `before`: its percentile watermarks so far."""
    known = list(shards)
    stage = least(known)
    holds = merge_histograms(*(report.holds for report in known))
    percentiles = held_percentiles(stage.percentiles, holds, stage.watermark, before)
    return Report(stage.watermark, percentiles, stage.idle)


def must_wait(sources: Mapping[str, Report], drifts: Mapping[str, int | None]) -> frozenset[str]:
    """The sources that are further ahead of the slowest than their `max_drift` (us) allows.

    The slowest is the least of all that are neither idle nor at their end. It never waits, so one source always
    advances.
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
