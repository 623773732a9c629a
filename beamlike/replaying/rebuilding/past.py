"""The input of a topic or table before the batches that the log of a run still has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from beamlike.errors import CheckpointError, naming_source
from beamlike.io.complete import without_end
from beamlike.io.sources import HasPast, HasSparkOffsets, Position
from beamlike.plan.model import Plan, SourcePlan
from beamlike.runtime.recorded.batches import RecordedRun
from beamlike.runtime.recorded.taken import BatchTaken, SpanTaken, Taken
from beamlike.runtime.savepoint.savepoint import Savepoint
from beamlike.steps.changes import ChangesOfLog
from beamlike.steps.timestamps import WithTimestamps


@attrs.frozen
class Past:
    """A source of a run whose first batches are not known any more."""

    name: str
    source: SourcePlan
    saved: Savepoint
    run: RecordedRun

    def before(self, known: Sequence[Taken], since: int | None) -> tuple[BatchTaken, bool]:
        """Returns the input before the `known` input, as one batch. The second value is True if it contains the first
        known input, too: of some sources only the position after a batch is known.

        Raises `CheckpointError` if the source cannot read it again.
        """
        source = self.source.source
        if not isinstance(source, HasPast):
            raise self._gone("only files, topics and tables can be read again without it")
        position, merged = self._position(known)
        try:
            with naming_source(self.name):
                planned = source.past(position, since)
        except LookupError as error:
            raise self._gone(str(error.args[0])) from error
        begin = (
            planned.input.get("begin", {}) if planned is not None and isinstance(planned.input, dict) else {}
        )
        return BatchTaken(() if planned is None else (planned,), begin, in_process=False), merged

    def _position(self, known: Sequence[Taken]) -> tuple[Position, bool]:
        """Returns the position before the known input or, with True, after the first of it."""
        match known[0] if known else None:
            case SpanTaken(begin):
                return self._of_spark(begin), False
            case BatchTaken(planned):
                first = planned[0] if planned else None
                if first is None:
                    return self._saved(), False
                moved = first.input.get("begin") if isinstance(first.input, dict) else None
                after = without_end(first.position)
                return (after, True) if moved is None else ({**after, **moved}, False)
        return self._saved(), False

    def _saved(self) -> Position:
        """Returns the position of the savepoint, if no known batch has moved it."""
        if self.name in self.saved.positions:
            return without_end(self.saved.positions[self.name])
        return self._of_spark(self.saved.offsets[self.name][-1])

    def _of_spark(self, offset: str) -> Mapping[str, Any]:
        source = self.source.source
        assert isinstance(source, HasSparkOffsets)
        return source.position_of([offset])

    def _gone(self, why: str) -> CheckpointError:
        return CheckpointError(
            f"source {self.name!r}: what it gave before batch {self.run.first} is no longer in the log of "
            f"{self.run.path}, which has the last 100 batches: {why}. A stage that needs this source must begin "
            "without state: give it another name"
        )


def needed_since(plan: Plan, anew: frozenset[str], since: int | None) -> dict[str, int]:
    """Returns, by source, the time (us) of the first rows that stages built anew need, if they need only rows with
    event times of at least `since`. The plan has these stages, and those before them.

    A source is left out if a stage before them reads it, which may need earlier rows for later output, or if a step
    changes its event times. A row may be ahead of its time of arrival by `max_future`.
    """
    found = dict[str, int]()
    if since is None:
        return found
    for name, source in plan.sources.items():
        steps = [step for route in source.routes for step in route.path]
        direct = plan.stages.keys() & {route.consumer for route in source.routes} <= anew
        same = not any(isinstance(step, WithTimestamps | ChangesOfLog) for step in steps)
        if direct and same and source.max_future is not None:
            found[name] = since - source.max_future
    return found
