"""Paths: how rows get from a source or stage to a node, over stateless steps."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from beamlike.logical.grouping import has_looked_up
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply, DeadLetters, Flatten, Late, OfStage, Read
from beamlike.plan.route import Output, Route
from beamlike.steps.base import NotRetracted, Step
from beamlike.steps.lookup import LookUp
from beamlike.steps.windows import parts
from stages.operator import MAIN
from stages.process.newest_of_key import NewestOfKey
from windowing.columns import PANE_RETRACTED


@attrs.frozen
class Path:
    """The steps from a source or stage to a node.

    For dead letters of a step, `before` has the steps up to that step, and `steps` the steps of its dead letters.
    `role` is the input of the stage to which the path leads.
    """

    producer: str
    steps: tuple[Step, ...]
    output: Output = "main"
    before: tuple[Step, ...] = ()
    of: Output = "main"
    shown: tuple[str, ...] = ()
    role: str = MAIN

    def route(self, consumer: str, columns: tuple[str, ...]) -> Route:
        """Returns the route along this path to a consumer."""
        return Route(consumer, self.steps, columns, self.output, self.before, self.of, self.shown, self.role)


def paths_to(node: Node, after: tuple[Step, ...] = ()) -> Iterator[Path]:
    """Yields every path from a source or stage to the node, in the order of declaration."""
    ahead = [(node, after)]
    while ahead:
        node, after = ahead.pop()
        origin = node.origin
        if isinstance(origin, Read | OfStage):
            yield Path(node.name, after)
        elif isinstance(origin, DeadLetters):
            yield from _paths_to_dead_letters(node.inputs[0], after)
        elif isinstance(origin, Late):
            yield Path(node.inputs[0].name, after, "late")
        else:
            ahead += [(before, (*_steps(node, before), *after)) for before in reversed(node.inputs)]


def _paths_to_dead_letters(node: Node, after: tuple[Step, ...]) -> Iterator[Path]:
    """Yields every path to the dead letters of a source, a stage or a step."""
    if isinstance(node.origin, Read | OfStage):
        yield Path(node.name, after, "dead_letters")
        if isinstance(node.origin, Apply) and isinstance(node.origin.operator, NewestOfKey):
            yield from _paths_to_dead_letters(node.inputs[0], after)
        return
    (before,) = node.inputs
    if has_looked_up(node):
        yield Path(before.name, after, "dead_letters")
    if isinstance(before.origin, LookUp):
        yield from _paths_to_dead_letters(before, after)
    # The flag of retracted rows marks those that are dead letters already.
    shown = (*before.schema, *((PANE_RETRACTED,) if before.retracting else ()))
    for path in paths_to(before, _steps(node, before)[:1]):
        yield Path(path.producer, after, "dead_letters", path.steps, path.output, shown)


def _steps(node: Node, before: Node) -> tuple[Step, ...]:
    """Returns the steps between `before` and the node."""
    origin = node.origin
    if isinstance(origin, Step):
        return parts(origin)
    meets_retractions = isinstance(origin, Flatten) and node.retracting and not before.retracting
    return (NotRetracted(node.name),) if meets_retractions else ()
