"""Elements that stages drop: why, what can be done about it, and which share of them the log is told of."""

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
from beamlike.runtime.file_order import NO_ORDER
from beamlike.steps.sides import InPanes
from stages.dropped import CLOSED_WINDOW, LATE, NO_WINDOW

_LOG = logging.getLogger("beamlike")

USUAL: Final = 0.01
"""Which share of its elements a stage may drop without a word in the log."""

ENOUGH: Final = 1_000
"""Of so many elements a share is judged; of fewer at the end of the run."""

WHY: Final[Mapping[str, str]] = {
    LATE: "came later than the allowed lateness",
    CLOSED_WINDOW: "came after the trigger of their windows had finished",
    NO_WINDOW: "were in a gap between windows",
}
"""What the reasons mean."""

_HELP: Final[Mapping[str, str]] = {
    LATE: "give more allowed_lateness=, or the source a watermark with a larger bound",
    CLOSED_WINDOW: "let the trigger go on, as bl.Repeatedly(...) does",
    NO_WINDOW: "give windows without gaps",
}


@attrs.define
class Placed:
    """How many elements came to a stage, and how many it dropped, by reason; each counts in every window it is in."""

    count: int = 0
    dropped: Counter[str] = attrs.field(factory=Counter)

    def add(self, stage: StageRecord) -> None:
        """What came in one more batch."""
        self.count += stage.placed or 0
        self.dropped.update(stage.dropped)


def dropped_rows(plan: Plan, batches: Iterable[BatchRecord]) -> Iterator[str]:
    """For each stage and reason: how many elements of how many, and where they are or what can be done."""
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
    """Tells the log where a stage drops more than is `USUAL` of what came since it was last looked at.

    A stage is looked at whenever `ENOUGH` elements have come, however they are spread over batches, and at the end. It
    is told the first time, and again when it has dropped twice as much as then: a run that goes on for months says so
    a few dozen times. What a collection takes is not lost, and not told.
    """

    plan: Plan
    _since: dict[str, Placed] = attrs.field(factory=dict)
    _total: Counter[str] = attrs.field(factory=Counter)
    _told: Counter[str] = attrs.field(factory=Counter)

    def take(self, record: BatchRecord) -> None:
        """One more batch."""
        for name, stage in record.stages.items():
            since = self._since.setdefault(name, Placed())
            since.add(stage)
            self._total[name] += sum(stage.dropped.values())
            if since.count >= ENOUGH:
                self._look(name, f"batch {record.batch}")

    def end(self) -> None:
        """No more batches are to come."""
        for name in list(self._since):
            self._look(name, "the last batch")

    def _look(self, name: str, where: str) -> None:
        since = self._since.pop(name)
        dropped = since.dropped.total()
        unusual = dropped > USUAL * since.count and self._total[name] >= 2 * self._told[name]
        if unusual and not takers_of_late(self.plan, name):
            self._told[name] = self._total[name]
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
    """Why elements were dropped; a reason of another operator stands for itself."""
    return f"as they {WHY[reason]}" if reason in WHY else f"by the reason {reason!r}"


def _advice(plan: Plan, stage: str, reasons: list[str]) -> str:
    helps = [_HELP[reason] for reason in reasons if reason in _HELP]
    if LATE in reasons and any(isinstance(source.source, ReadInFiles) for source in plan.sources.values()):
        helps.append(NO_ORDER)
    return "; ".join([*helps, _collected(plan, stage)])


def _collected(plan: Plan, stage: str) -> str:
    """How they become a collection; a stage that was made for a side of a step is no collection of the user's."""
    for route in plan.stages[stage].routes:
        if any(isinstance(step, InPanes) for step in route.steps):
            step, side = route.consumer.removesuffix(LOOKUP), route.role.removeprefix("side.")
            return f".late(side=...) of {step!r} gives these rows of {side!r} as a collection"
    return "its .late() gives them as a collection"


def _elements(count: int) -> str:
    return "1 element" if count == 1 else f"{count:,} elements"
