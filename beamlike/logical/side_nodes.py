"""Nodes of a step with side inputs: the helper nodes that are renamed together with it, and the late rows of a side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from beamlike.errors import PlanError, listed
from beamlike.logical.grouping import dropped_shape, has_looked_up, late
from beamlike.logical.joins import Free
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply
from beamlike.logical.sides import NodeWithParts
from beamlike.steps.sides import Dropped, InPanes
from stages.operator import MAIN, Operator
from stages.process.sessions_of_changes import SessionsOfChanges
from stages.process.settled import Settled
from stages.sides.declarations import side_name

_MADE: Final = (SessionsOfChanges, Settled)
"""Operators that are only added before another one."""


def nodes_named_after(node: Node) -> Iterator[Node]:
    """Yields the helper nodes of a step, whose names begin with the step's name: its lookup, and its sides'
    groupings.
    """
    from stages.process.newest_of_key import NewestOfKey  # few pipelines need it

    stage = node.inputs[0] if has_looked_up(node) else node
    if stage is not node:
        yield stage
    for flat in _panes_of(stage):
        (panes,) = flat.inputs
        (node,) = panes.inputs
        yield from (panes, flat)
        # Helper nodes for the newest panes of a grouping have names below that of the side.
        while node.name.startswith(f"{panes.name}."):
            yield node
            (node,) = node.inputs
    if isinstance(node.origin, Apply) and isinstance(node.origin.operator, NewestOfKey):
        yield node.inputs[0]
    for before in node.inputs:
        if isinstance(before.origin, Apply) and isinstance(before.origin.operator, _MADE):
            yield before


def _panes_of(stage: Node) -> Iterator[Node]:
    """Yields the inputs of a stage that deliver panes of sides. A side that is read completely before the run has no
    panes.
    """
    if isinstance(stage.origin, Apply):
        yield from (feed for feed in stage.inputs[1:] if isinstance(feed.origin, InPanes))


def late_of_side(
    node: Node, side: Node, name: str, base: str, free: Free, latest: Callable[[Node], Node]
) -> NodeWithParts:
    """Declares a collection of the rows of a side that arrived too late for the step."""
    stage = node.inputs[0] if has_looked_up(node) else node
    if not isinstance(stage.origin, Apply) or not stage.inputs[1:]:
        raise PlanError(f"{node.name!r} has no side; late() returns the rows that it drops", step=name)
    grouped = {latest(feed.inputs[0].inputs[0].inputs[0]): feed.inputs[0] for feed in _panes_of(stage)}
    if latest(side) not in grouped:
        raise PlanError(_why_not(node, stage, stage.origin.operator, side), step=name)
    dropped = late(grouped[latest(side)], free(f"{name}.row"), base)
    shape = dropped_shape(side, name)
    origin = Dropped(name, tuple(side.schema), shape.kept().system)
    made: Node = attrs.evolve(dropped, name=name, base=base, origin=origin, inputs=(dropped,), shape=shape)
    return NodeWithParts(made, (dropped,))


def _why_not(node: Node, stage: Node, operator: Operator, side: Node) -> str:
    sides = {
        side_name(role): feed
        for role, feed in zip(operator.inputs, stage.inputs, strict=True)
        if role != MAIN
    }
    whole = [name for name, feed in sides.items() if not isinstance(feed.origin, InPanes)]
    if side.base in whole or side.name in whole:
        return f"no row of side {side.name!r} is late, as it is in the global window and read as a whole"
    names = listed(map(repr, sides))
    return f"{node.name!r} does not read {side.name!r}; its sides are {names}"
