"""Where the sources of a run stand, batch by batch, as it tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from beamlike.io.files.files import Files
from beamlike.io.files.new_columns import report
from beamlike.plan.model import Plan
from beamlike.records.model import SourceRecord
from beamlike.runtime.build_records import source_record
from beamlike.runtime.file_order import FileOrder
from beamlike.runtime.ingest import Newest, newest_of
from stages.progress.inputs import Arrived, Inputs
from windowing.time import MIN_TIME


def columns_left_out(source: object) -> Mapping[str, str]:
    """Returns the columns that this process has found in files of the source since the last call and left out."""
    return report(repr(source.path)) if isinstance(source, Files) else {}


@attrs.frozen
class SourceTurn:
    """What a batch has had of a source, or a task of it: rows, what became of them, and which files they were from.

    `left_out` and `changed` are those of `SourceRecord`.
    """

    read: int = 0
    elements: int = 0
    dead_letters: int = 0
    newest: Newest = attrs.field(factory=dict)
    left_out: Mapping[str, str] = attrs.field(factory=dict)
    changed: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def of_all(cls, turns: Iterable[SourceTurn]) -> SourceTurn:
        """Of all tasks."""
        parts = list(turns)
        return cls(
            sum(turn.read for turn in parts),
            sum(turn.elements for turn in parts),
            sum(turn.dead_letters for turn in parts),
            newest_of(turn.newest for turn in parts),
            {name: file for turn in reversed(parts) for name, file in turn.left_out.items()},
            {file: how for turn in parts for file, how in turn.changed.items()},
        )


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
        return attrs.evolve(
            record,
            elements=turn.elements,
            dead_letters=turn.dead_letters,
            read=turn.read,
            changed=turn.changed,
            left_out=turn.left_out,
        )
