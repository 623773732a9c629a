"""Where the sources of a run stand, batch by batch, as it tells it."""

from __future__ import annotations

import attrs

from beamlike.plan.model import Plan
from beamlike.records.model import SourceRecord
from beamlike.runtime.build_records import source_record
from beamlike.runtime.file_order import FileOrder
from beamlike.runtime.ingested import SourceTurn
from stages.progress.inputs import Arrived, Inputs
from windowing.time import MIN_TIME


@attrs.define
class SourceTurns:
    """What a run knows of its sources, in `inputs` by name, and what its log says of the order of their files."""

    plan: Plan
    inputs: dict[str, Inputs] = attrs.field(factory=dict)
    _order: FileOrder = attrs.field(factory=FileOrder, init=False)

    def receive(self, name: str, arrived: Arrived, started: int = MIN_TIME) -> SourceRecord:
        """Where the source stands after a batch of a run that was `started` then (us), without the counts."""
        strategy = self.plan.sources[name].watermark
        known = self.inputs.get(name, Inputs())
        self.inputs[name] = known.receive(arrived, {name: strategy}, started)
        return source_record(name, self.inputs[name], strategy)

    def tell(
        self, name: str, record: SourceRecord, turn: SourceTurn, before: SourceRecord | None
    ) -> SourceRecord:
        """The record with the counts of the batch; `before` is that of the batch before, where there was one."""
        watermark = MIN_TIME if before is None else before.watermark
        self._order.look(name, self.plan.sources[name].source, turn.newest, watermark)
        return attrs.evolve(record, elements=turn.elements, dead_letters=turn.dead_letters, read=turn.read)
