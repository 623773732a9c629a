"""The descriptions of units for the graph of a run in its records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs
from apache_beam.portability import common_urns

from beamlike.beam.columns import ColumnsNode
from beamlike.beam.grouped import GroupNode
from beamlike.beam.nodes import StageNode
from beamlike.beam.stateful import StatefulNode, timer_name
from beamlike.beam.units import Unit
from beamlike.expressions.describe import windowing_choices
from beamlike.plan.run_graph import with_windowing
from beamlike.records.graph import SourceDescription, StageDescription

_KINDS: Final = {
    "columns": "a part in columns",
    "flatten": "Flatten",
    "generic_composite": "a composite transform",
    "pardo": "ParDo",
    "pickled_python": "a composite transform",
    "window_into": "WindowInto",
}
_STREAM: Final = common_urns.primitives.TEST_STREAM.urn.split(":")[-2]


def source_of(unit: Unit) -> SourceDescription:
    """Describes a unit that has no input."""
    is_stream = unit.kind == _STREAM
    reads = "TestStream" if is_stream else _KINDS.get(unit.kind, unit.kind)
    return SourceDescription(reads, "the TestStream" if is_stream else "Beam's worker")


def stage_of(
    unit: Unit, nodes: Iterable[StageNode | GroupNode | ColumnsNode], inputs: tuple[str, ...], level: int
) -> StageDescription:
    """Describes a unit that reads `inputs`. `nodes` can hold its watermark."""
    kind = _KINDS.get(unit.kind, unit.kind)
    described = StageDescription(
        inputs=inputs,
        level=level,
        keys=(),
        aggregates={},
        choices={"operator": kind},
        clocks=(),
        row="element",
        waits="waits for a side input",
    )
    for node in nodes:
        if isinstance(node, GroupNode):
            return _grouping(described, node)
        if isinstance(node, StatefulNode):
            return _stateful(described, node)
    return described


def _grouping(described: StageDescription, node: GroupNode) -> StageDescription:
    operator = node.stage.operator
    (table, *_) = operator.tables
    own = attrs.evolve(
        described,
        keys=("key",),
        choices=windowing_choices(node.windowing),
        clocks=operator.clocks,
        row=table.table.row,
        waits=table.table.waits,
    )
    return with_windowing(own, node.windowing)


def _stateful(described: StageDescription, node: StatefulNode) -> StageDescription:
    table = node.operator.cells.table
    return attrs.evolve(
        described,
        keys=("key",),
        choices={"operator": "ParDo with state or timers"},
        clocks=node.operator.clocks,
        row=table.row,
        waits=table.waits,
        timers={
            timer_name(family[1]): "event" if node.by_watermark(family) else "processing"
            for family in sorted(node.stage.timers)
        },
    )
