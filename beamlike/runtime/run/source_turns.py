"""Builds the records of a run's sources, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from beamlike.io.files.files import Files
from beamlike.io.files.new_columns import report
from beamlike.plan.model import Plan
from beamlike.records.model import SourceRecord
from beamlike.runtime.batch.build_records import source_record
from beamlike.runtime.batch.ingested import SourceTurn
from beamlike.runtime.run.hints import FileOrder
from stages.progress.arrivals import to_record
from stages.progress.inputs import Arrived, Inputs
from windowing.time import MIN_TIME


def columns_left_out(source: object) -> Mapping[str, str]:
    """Returns columns in the source's files that this process has left out since the last call: those that later files
    have, or that look like declared ones which the files lack.
    """
    return report(source.told_as) if isinstance(source, Files) else {}


@attrs.define
class SourceTurns:
    """The watermark state of a run's sources, by name, and a check of the order of their files."""

    plan: Plan
    inputs: dict[str, Inputs] = attrs.field(factory=dict)
    _order: FileOrder = attrs.field(factory=FileOrder, init=False)

    def receive(self, name: str, arrived: Arrived, started: int = MIN_TIME) -> SourceRecord:
        """Returns the record of a source after a batch, without counts. `started` is the start of the run (us):
        earlier silence of the source does not make it idle.
        """
        strategy = self.plan.sources[name].watermark
        known = self.inputs.get(name, Inputs())
        self.inputs[name] = known.receive(arrived, {name: strategy}, started)
        return source_record(name, self.inputs[name], strategy)

    def with_counts(
        self, name: str, record: SourceRecord, turn: SourceTurn, before: SourceRecord | None
    ) -> SourceRecord:
        """Returns the record with the counts of the batch. `before` is the record of the previous batch, if any."""
        watermark = MIN_TIME if before is None else before.watermark
        self._order.check(name, self.plan.sources[name].source, turn.newest, watermark)
        return attrs.evolve(
            record,
            elements=turn.elements,
            dead_letters=turn.dead_letters,
            read=turn.read,
            changed=turn.changed,
            left_out=turn.left_out,
            arrivals=to_record(turn.arrivals),
        )
