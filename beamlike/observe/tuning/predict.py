"""Predicts, for bounds of a source's watermark, what would have been late, dropped and delayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs
import numpy as np

from beamlike.observe.tuning.arrived import SourceArrivals, bounded, needed
from beamlike.observe.tuning.stages import Delays, Range, StageArrivals, late
from beamlike.records.graph import SourceDescription
from beamlike.records.history import History
from stages.progress.splits import SourceState
from stages.strategies.base import PercentileLateness
from stages.strategies.lateness import quantile
from windowing.time import Microseconds

_SECOND: Final = 1_000_000
BOUNDS: Final = tuple(
    seconds * _SECOND
    for seconds in (
        *(0, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800),
        *(3_600, 7_200, 21_600, 43_200, 86_400, 172_800, 604_800),
    )
)
"""The bounds (us) that are predicted, up to the least at which nothing is late."""

SHARES: Final = (0.9, 0.99, 0.999)
"""The shares for which a `PercentileLateness` is predicted."""


@attrs.frozen
class StagePrediction:
    """A stage with a bound: the elements that it would have dropped as late, and the delays of its on-time panes."""

    dropped: Range
    delays: Delays


@attrs.frozen
class BoundPrediction:
    """A bound (us): the elements behind the watermark of the source, and the prediction for each stage."""

    bound: int
    late: Range
    stages: Mapping[str, StagePrediction]

    @property
    def dropped(self) -> int:
        """The greatest number of elements that any stage would have dropped."""
        return max((stage.dropped.most for stage in self.stages.values()), default=0)

    @property
    def delay(self) -> int | None:
        """The greatest median (us) of the delays of a stage's panes in event time; None if there are none."""
        delays = [stage.delays.event[0] for stage in self.stages.values() if stage.delays.windows]
        return max(delays, default=None)


@attrs.frozen
class SplitNeed:
    """A split, and the bounds (us) at which none of its elements is late, by its own newest time and by that of all."""

    name: str
    own: int
    whole: int


@attrs.frozen
class SourcePrediction:
    """The predictions for a source.

    Attributes:
        name: The name of the source.
        described: The source, as the records describe it.
        elements: The number of elements that are counted.
        batches: The number of batches in which they arrived.
        resolution: The width (us) of the widest bucket of event times; 0 if all predictions are exact.
        bounds: The predictions, by bound.
        needed: The least bound (us) at which nothing is late.
        unsplit: The prediction for the least bound at which nothing is late without `per_split`; None if the source
            is not divided into splits.
        splits: The need of each split, the greatest first.
        learned: The bound (us) that `PercentileLateness` would have learned at the end, by share; with no entry if it
            would have learned nothing.
        placed: The number of elements of each stage, each counted in every window that it is in.
        notes: The reasons for which predictions are bounds, as sentences.
    """

    name: str
    described: SourceDescription
    elements: int
    batches: int
    resolution: int
    bounds: list[BoundPrediction]
    needed: int
    unsplit: BoundPrediction | None
    splits: list[SplitNeed]
    learned: dict[float, int]
    placed: dict[str, int]
    notes: list[str]


def predict(history: History, name: str, asked: Iterable[int] = ()) -> SourcePrediction:
    """Predicts what other bounds of a source would have lost. `asked` are further bounds (us)."""
    described = history.plan.sources[name]
    arrived = SourceArrivals.of(history, name)
    per_split = None if arrived.mixed else described.per_split
    stages = _stages(history, arrived)
    rows = arrived.rows()

    def one(bound: int, split: str | None) -> BoundPrediction:
        reports = arrived.reports(bounded(bound, split, described.idle_after))
        marks = np.array([report.watermark for report in reports], np.int64)
        return BoundPrediction(
            bound,
            late(rows, marks),
            {
                stage.name: StagePrediction(stage.dropped(inputs), stage.delays(inputs))
                for stage in stages
                for inputs in [stage.inputs(name, reports)]
            },
        )

    enough = _needed(arrived, per_split, described.idle_after)
    used = () if described.bound is None else (described.bound,)
    wanted = {*(bound for bound in BOUNDS if bound < enough), 0, enough, *used, *asked}
    return SourcePrediction(
        name,
        described,
        rows.total,
        len({*rows.batches.tolist()}),
        rows.resolution,
        [one(bound, per_split) for bound in sorted(wanted)],
        enough,
        one(_needed(arrived, None, described.idle_after), None) if per_split else None,
        _splits(arrived) if per_split and not arrived.partial else [],
        {} if per_split and arrived.partial else _learned(arrived, per_split, described.idle_after),
        {stage.name: stage.placed for stage in stages},
        [*_notes(history, arrived, stages)],
    )


def _stages(history: History, arrived: SourceArrivals) -> list[StageArrivals]:
    """Returns the stages that read the source directly, and read no other stage."""
    found = []
    for name, stage in history.plan.stages.items():
        main = stage.main or stage.inputs
        if arrived.name in main and all(one in history.plan.sources for one in main):
            others = [SourceArrivals.of(history, one) for one in main if one != arrived.name]
            found.append(StageArrivals.of(name, stage, [arrived, *others]))
    return [stage for stage in found if stage is not None]


def _needed(arrived: SourceArrivals, per_split: str | None, idle_after: int | None) -> int:
    """Returns the least bound (us) at which nothing is late. All watermarks of a bound are behind those of bound 0."""
    reports = arrived.reports(bounded(0, per_split, idle_after))
    rows = arrived.rows()
    marks = np.array([0, *(report.watermark for report in reports)], np.int64)[rows.batches]
    behind = np.where(rows.batches > 0, marks - rows.first, 0)
    return int(behind.max(initial=0))


def _splits(arrived: SourceArrivals) -> list[SplitNeed]:
    needs = [
        SplitNeed(split, needed(arrived, split, own=True), needed(arrived, split, own=False))
        for split in arrived.splits
    ]
    return sorted(needs, key=lambda need: (-need.whole, -need.own, need.name))


def _learned(arrived: SourceArrivals, per_split: str | None, idle_after: int | None) -> dict[float, int]:
    # The state of the strategy does not depend on the share.
    idle = None if idle_after is None else Microseconds(idle_after)
    *_, last = arrived.states(PercentileLateness(SHARES[0], per_split=per_split, idle_after=idle))
    found = {share: [*_quantiles(last, share)] for share in SHARES}
    return {share: max(bounds) for share, bounds in found.items() if bounds}


def _quantiles(state: SourceState, share: float) -> Iterable[int]:
    for split in state.splits.values():
        bound = quantile(split.state, share)
        if bound is not None:
            yield bound


def _notes(history: History, arrived: SourceArrivals, stages: list[StageArrivals]) -> Iterable[str]:
    if arrived.merged:
        yield (
            f"{arrived.merged} early records are of several batches, because the file reached its greatest size: "
            "their elements are not counted"
        )
    if arrived.missing:
        yield f"{arrived.missing} batches have no event times in the records: their elements are not counted"
    if arrived.partial and not arrived.mixed:
        yield "batches are too large for a histogram of each split: the needs of splits are not known"
    if arrived.mixed:
        yield "the records have no splits, because there are too many: the watermark is computed as for one split"
    for stage in stages:
        if not stage.exact:
            yield (
                f"stage {stage.name!r}: steps before it drop, add or change elements, or the records lack some; its "
                "counts are estimates, of the elements of the source"
            )
        promise = history.plan.stages[stage.name].promise
        if promise is not None and promise.hold:
            yield f"stage {stage.name!r}: it waits for its promise, and predictions are those without"
        if stage.merging:
            yield f"stage {stage.name!r}: delays are those of sessions of one element"
    counted = {stage.name for stage in stages}
    after = [
        name
        for name, stage in history.plan.stages.items()
        if name not in counted and _reads(history, name, arrived.name) and stage.inputs
    ]
    if after:
        yield f"not predicted, as they read other stages or have no known windows: {', '.join(after)}"


def _reads(history: History, stage: str, source: str) -> bool:
    """True if a stage reads the source, directly or by other stages."""
    inputs = history.plan.stages[stage].inputs
    return source in inputs or any(
        _reads(history, one, source) for one in inputs if one in history.plan.stages
    )
