"""The declaration of dead letters of a source or step as a collection."""

from __future__ import annotations

import attrs

from beamlike.errors import PlanError
from beamlike.logical.node import Node, inputs_first
from beamlike.logical.origins import Apply, DeadLetters, Group, Origin, Read
from beamlike.rows.event_time import DEAD_LETTERS
from beamlike.steps.base import Step, WindowInto
from beamlike.steps.infer import Shape
from stages.aggregates.combine_fn import Combine


def dead_letters(before: Node, name: str, base: str) -> Node:
    """Declares a collection of the dead letters of a source or step."""
    _require_dead_letters(before, name)
    shape = Shape(DEAD_LETTERS, ())
    after: Node = attrs.evolve(
        before,
        name=name,
        base=base,
        origin=DeadLetters(),
        inputs=(before,),
        shape=shape,
        # Each of them counts for itself: a row and its retraction are one dead letter.
        repeats=False,
        retracting=False,
    )
    return after


def has_dead_letters(node: Node) -> bool:
    """True if the node is a collection of dead letters, or is computed from one."""
    return any(isinstance(one.origin, DeadLetters) for one in inputs_first(node))


def _require_dead_letters(node: Node, step: str) -> None:
    """Raises `PlanError` for a node that has no dead letters.

    Only sources and row-wise steps have some, and those that themselves read dead letters have none.
    """
    if not _looks_at_rows(node.origin):
        raise PlanError(
            "only a source and a step that computes something of each row have dead letters, such as map or filter, a "
            "grouping with a CombineFn, or windows of your own; "
            f"{node.name!r} is neither: call it there",
            step=step,
        )
    if has_dead_letters(node):
        raise PlanError(
            "its rows are dead letters, and have none of their own: those that a step cannot use go to the folder",
            step=step,
        )


def _looks_at_rows(origin: Origin) -> bool:
    """True if a node of this kind may have rows that it cannot use."""
    match origin:
        case WindowInto():
            return origin.python
        case Group(aggregates=aggregates):
            return any(isinstance(aggregate, Combine) for aggregate in aggregates.values())
    return isinstance(origin, Read | Apply | Step)
