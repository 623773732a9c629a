"""Reports of elements that stages drop: their number, the reasons, and the remedies."""

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
from stages.dropped import CLOSED_WINDOW, LATE, NO_WINDOW, UNMATCHED
from stages.sides.declarations import side_name

_LOG = logging.getLogger("beamlike")

USUAL: Final = 0.01
"""The share of its elements that a stage may drop without a log message."""

ENOUGH: Final = 1_000
"""The number of elements from which a share is checked. Fewer elements are checked at the end of the run."""

WHY: Final[Mapping[str, str]] = {
    LATE: "arrived later than the allowed lateness",
    CLOSED_WINDOW: "arrived after the trigger of their windows had finished",
    NO_WINDOW: "were in a gap between windows",
    UNMATCHED: "retract rows that are not there",
}
"""The meaning of each reason, as text."""

_HELP: Final[Mapping[str, str]] = {
    LATE: "give more allowed_lateness=, or the source a watermark with a larger bound",
    CLOSED_WINDOW: "let the trigger go on, as bl.Repeatedly(...) does",
    NO_WINDOW: "give windows without gaps",
}


@attrs.define
class Placed:
    """Counts of the elements that arrived at a stage, and of those dropped, by reason. An element counts in
    each window.
    """

    count: int = 0
    dropped: Counter[str] = attrs.field(factory=Counter)

    def add(self, stage: StageRecord) -> None:
        """Adds the counts of a batch."""
        self.count += stage.placed or 0
        self.dropped.update(stage.dropped)


def dropped_rows(plan: Plan, batches: Iterable[BatchRecord]) -> Iterator[str]:
    """Yields, for each stage and reason, a line with the number and share of dropped elements, and their collection or
    a remedy.
    """
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
    """Returns the consumers of the elements that a stage drops."""
    return sorted({route.consumer for route in plan.stages[stage].routes if route.takes("late")})


@attrs.define
class DroppedCounts:
    """A check that logs when a stage has dropped more than the `USUAL` share of its elements since the last check.

    A stage is checked when `ENOUGH` elements have arrived since then, and at the end of the run. It is reported the
    first time, and again when the number of dropped elements has doubled: at most a few dozen messages in a run of
    months. Elements that a collection receives are not lost, so they are not reported.
    """

    plan: Plan
    _since: dict[str, Placed] = attrs.field(factory=dict)
    _total: Counter[str] = attrs.field(factory=Counter)
    _reported: Counter[str] = attrs.field(factory=Counter)

    def take(self, record: BatchRecord) -> None:
        """Adds the record of a batch, and reports stages that drop too many elements."""
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
        # A retraction without its row is never usual: a result is wrong.
        usual = 0 if since.dropped[UNMATCHED] else USUAL * since.count
        unusual = dropped > usual and self._total[name] >= 2 * self._reported[name]
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
    """Returns the reason why elements were dropped, as text. Reasons of a user's operator are quoted."""
    return f"as they {WHY[reason]}" if reason in WHY else f"by the reason {reason!r}"


def _advice(plan: Plan, stage: str, reasons: list[str]) -> str:
    helps = [_HELP[reason] for reason in reasons if reason in _HELP]
    if UNMATCHED in reasons:
        helps.append(_same_again(plan, stage))
    if LATE in reasons and any(isinstance(source.source, ReadInFiles) for source in plan.sources.values()):
        helps.append(NO_ORDER)
    return "; ".join([*helps, _collected(plan, stage)])


def _same_again(plan: Plan, stage: str) -> str:
    """Returns the remedy for retractions that match nothing: the user's functions on the way of the rows."""
    ways = [
        route for producer in plan.producers.values() for route in producer.routes if route.consumer == stage
    ]
    steps = dict.fromkeys(step.name for route in ways for step in route.steps if step.python)
    of = f", here {', '.join(map(repr, steps))}" if steps else ""
    return f"functions must return the same for a row and for its retraction{of}"


def _collected(plan: Plan, stage: str) -> str:
    """Returns how to get the dropped elements as a collection. A stage that was created for a side has no collection
    itself.
    """
    for route in plan.stages[stage].routes:
        if any(isinstance(step, InPanes) for step in route.steps):
            step, side = route.consumer.removesuffix(LOOKUP), side_name(route.role)
            return f".late(side=...) of {step!r} gives these rows of {side!r} as a collection"
    return "its .late() gives them as a collection"


def _elements(count: int) -> str:
    return "1 element" if count == 1 else f"{count:,} elements"
