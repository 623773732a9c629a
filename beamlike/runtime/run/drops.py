"""Elements that stages drop: their number, the reasons, and the remedies."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from beamlike.io.sources import ReadInFiles
from beamlike.logical.lookups import LOOKUP
from beamlike.plan.model import Plan
from beamlike.records.model import BatchRecord, StageRecord
from beamlike.runtime.run.hints import NO_ORDER
from beamlike.steps.sides import InPanes
from stages.dropped import CLOSED_WINDOW, LATE, NO_WINDOW
from stages.sides.declarations import side_name

_LOG = logging.getLogger("beamlike")

USUAL: Final = 0.01
"""The share of its elements that a stage may drop without a log message."""

ENOUGH: Final = 1_000
"""A share is judged from this many elements on; fewer are judged at the end of the run."""

WHY: Final[Mapping[str, str]] = {
    LATE: "came later than the allowed lateness",
    CLOSED_WINDOW: "came after the trigger of their windows had finished",
    NO_WINDOW: "were in a gap between windows",
}
"""The meaning of each reason."""

_HELP: Final[Mapping[str, str]] = {
    LATE: "give more allowed_lateness=, or the source a watermark with a larger bound",
    CLOSED_WINDOW: "let the trigger go on, as bl.Repeatedly(...) does",
    NO_WINDOW: "give windows without gaps",
}


@attrs.define
class Placed:
    """The elements that arrived at a stage, and those that it dropped, by reason, counted in each of their windows."""

    count: int = 0
    dropped: Counter[str] = attrs.field(factory=Counter)

    def add(self, stage: StageRecord) -> None:
        """Adds the counts of a batch."""
        self.count += stage.placed or 0
        self.dropped.update(stage.dropped)


def dropped_rows(plan: Plan, batches: Iterable[BatchRecord]) -> Iterator[str]:
    """For each stage and reason: the number of dropped elements, their share, and their collection or a remedy."""
    stages: defaultdict[str, Placed] = defaultdict(Placed)
    for record in batches:
        for name, stage in record.stages.items():
            stages[name].add(stage)
    for name, placed in stages.items():
        takers = takers_of_late(plan, name)
        for reason, count in sorted(placed.dropped.items()):
            what = f"{count:,} of {_elements(placed.count)} that {name} dropped, {_as_they(reason)}"
            yield f"{what}: see {', '.join(takers)}" if takers else f"{what}: {_advice(plan, name, [reason])}"


def takers_of_late(plan: Plan, stage: str) -> list[str]:
    """The consumers of the elements that a stage drops."""
    return sorted({route.consumer for route in plan.stages[stage].routes if route.takes("late")})


@attrs.define
class DroppedCounts:
    """Logs when a stage has dropped more than the `USUAL` share of its elements since the last check.

    A stage is checked whenever `ENOUGH` elements have arrived, in however many batches, and at the end. The log reports
    it the first time, and again when the stage has dropped twice as many: a few dozen messages in a run of months.
    Elements that a collection receives are not lost, and not reported.
    """

    plan: Plan
    _since: dict[str, Placed] = attrs.field(factory=dict)
    _total: Counter[str] = attrs.field(factory=Counter)
    _reported: Counter[str] = attrs.field(factory=Counter)

    def take(self, record: BatchRecord) -> None:
        """Adds a batch."""
        for name, stage in record.stages.items():
            since = self._since.setdefault(name, Placed())
            since.add(stage)
            self._total[name] += sum(stage.dropped.values())
            if since.count >= ENOUGH:
                self._check(name, f"batch {record.batch}")

    def end(self) -> None:
        """Checks all stages at the end of the run."""
        for name in list(self._since):
            self._check(name, "the last batch")

    def _check(self, name: str, where: str) -> None:
        since = self._since.pop(name)
        dropped = since.dropped.total()
        unusual = dropped > USUAL * since.count and self._total[name] >= 2 * self._reported[name]
        if unusual and not takers_of_late(self.plan, name):
            self._reported[name] = self._total[name]
            reasons = ", ".join(
                f"{count:,} {WHY.get(reason, reason)}" for reason, count in sorted(since.dropped.items())
            )
            _LOG.warning(
                "stage %r dropped %s of the last %s up to %s (%s): %s",
                name,
                f"{dropped:,}",
                _elements(since.count),
                where,
                reasons,
                _advice(self.plan, name, sorted(since.dropped)),
            )


def _as_they(reason: str) -> str:
    """The reason for which elements were dropped, as text. Reasons of a user's operator are quoted."""
    return f"as they {WHY[reason]}" if reason in WHY else f"by the reason {reason!r}"


def _advice(plan: Plan, stage: str, reasons: list[str]) -> str:
    helps = [_HELP[reason] for reason in reasons if reason in _HELP]
    if LATE in reasons and any(isinstance(source.source, ReadInFiles) for source in plan.sources.values()):
        helps.append(NO_ORDER)
    return "; ".join([*helps, _collected(plan, stage)])


def _collected(plan: Plan, stage: str) -> str:
    """The step that makes a collection of them. A stage made for a side input has no collection of its own."""
    for route in plan.stages[stage].routes:
        if any(isinstance(step, InPanes) for step in route.steps):
            step, side = route.consumer.removesuffix(LOOKUP), side_name(route.role)
            return f".late(side=...) of {step!r} gives these rows of {side!r} as a collection"
    return "its .late() gives them as a collection"


def _elements(count: int) -> str:
    return "1 element" if count == 1 else f"{count:,} elements"
