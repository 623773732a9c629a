"""A case in a pipeline: its sinks, and the outcomes of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import narwhals as nw

import beamlike as bl
from beamlike.records.model import BatchRecord, StageRecord
from beamlike.testing.player import Recorder
from tests.cases.case import Outcome

Rows = Mapping[str, list[dict[str, Any]]]
"""The rows of each sink: `out`, `late` and, of some kinds, `letters`."""


@attrs.frozen
class DeclaredCase:
    """A case in a pipeline. `outcome` makes a step's outcome from its rows and the record of the stage."""

    stage: str
    batches: Sequence[range]
    recorders: Mapping[str, Recorder]
    outcome: Callable[[Rows, StageRecord], Outcome]

    def outcomes(self, records: Mapping[int, BatchRecord]) -> list[Outcome]:
        """Returns the outcome of each step. Raises `KeyError` if the run ended before."""
        found = []
        for batches in self.batches:
            rows = {what: recorder.rows(batches) for what, recorder in self.recorders.items()}
            found.append(self.outcome(rows, records[batches[-1]].stages[self.stage]))
        return found


def recorded(out: bl.Collection, name: str, failing: bl.Collection | None = None) -> dict[str, Recorder]:
    """Adds sinks for the results of a step, the rows that it drops, and the dead letters of `failing`."""
    # A number, as no datetime can represent times outside of the calendar.
    rows = {"out": out.with_columns(at=bl.event_time().cast(nw.Int64)), "late": out.late()}
    if failing is not None:
        rows["letters"] = failing.dead_letters()
    recorders = {what: Recorder() for what in rows}
    for what, recorder in recorders.items():
        rows[what].write(f"{name} {what}", recorder)
    return recorders
