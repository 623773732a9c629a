"""The records of the sources of a run, batch by batch."""

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
from stages.progress.inputs import Arrived, Inputs
from windowing.time import MIN_TIME


def columns_left_out(source: object) -> Mapping[str, str]:
    """Returns the columns that this process has found in files of the source since the last call and left out."""
    return report(repr(source.path)) if isinstance(source, Files) and source.infers else {}


@attrs.define
class SourceTurns:
    """The inputs of a run's sources, by name, and a check of the order of their files."""

    plan: Plan
    inputs: dict[str, Inputs] = attrs.field(factory=dict)
    _order: FileOrder = attrs.field(factory=FileOrder, init=False)

    def receive(self, name: str, arrived: Arrived, started: int = MIN_TIME) -> SourceRecord:
        """The record of a source after a batch, without counts. The run `started` at this time (us)."""
        strategy = self.plan.sources[name].watermark
        known = self.inputs.get(name, Inputs())
        self.inputs[name] = known.receive(arrived, {name: strategy}, started)
        return source_record(name, self.inputs[name], strategy)

    def with_counts(
        self, name: str, record: SourceRecord, turn: SourceTurn, before: SourceRecord | None
    ) -> SourceRecord:
        """The record with the counts of the batch; `before` is the record of the batch before, if there is one."""
        watermark = MIN_TIME if before is None else before.watermark
        self._order.check(name, self.plan.sources[name].source, turn.newest, watermark)
        return attrs.evolve(
            record,
            elements=turn.elements,
            dead_letters=turn.dead_letters,
            read=turn.read,
            changed=turn.changed,
            left_out=turn.left_out,
        )
