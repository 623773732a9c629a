"""The declaration of side inputs of a keyed process, and their checks."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from beamlike.errors import DuplicateName, PlanError, WrongType
from beamlike.logical.joins import Free
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply
from beamlike.logical.sides import NodeWithParts, SideArgument, SideFeeds
from beamlike.steps.sides import SideViews
from stages.keyed_with_sides import KeyedWithSides
from stages.process.declarations import Process, fields_of, timers_of
from stages.process.stateful import Stateful


def with_sides(node: Node, sides: Mapping[str, SideArgument], step: str, free: Free) -> NodeWithParts:
    """Declares the step of a node with keyed state again, as one whose function also reads side inputs."""
    assert isinstance(node.origin, Apply)
    assert isinstance(node.origin.operator, Stateful)
    (before,) = node.inputs
    if node.origin.operator.gives_changes:
        raise PlanError(
            "its rows may retract earlier ones (accumulation retracting), and with allowed lateness its methods are "
            "called again for corrected rows, when a side may have other rows; give no allowed lateness, or "
            "process(..., retractions=True), where self.retracted marks retractions",
            step=step,
        )
    fed = SideFeeds.of(before, [one.use for one in sides.values()], step, free)
    views = SideViews({keyword: one.view(fed.names[one.node]) for keyword, one in sides.items()})
    operator = KeyedWithSides(node.origin.operator, tuple(fed.sides.values()), views, before.base)
    made: Node = attrs.evolve(node, origin=Apply(operator), inputs=(before, *fed.nodes))
    return NodeWithParts(made, fed.others)


def require_attributes(process: object, sides: Iterable[str], step: str) -> None:
    """Raises `DuplicateName` if a side input has the name of another attribute of the process, and `WrongType` if a
    method has a parameter for it.
    """
    if not isinstance(process, Process):
        return
    own, declared = type(process).__name__, {**fields_of(process), **timers_of(process)}
    for name in sides:
        if name in declared or name in vars(process) or _has(Process, name) or _has(type(process), name):
            raise DuplicateName(
                f"side {name!r} would be self.{name}, but {own} already has {name}; choose another keyword",
                step=step,
            )
        for method in _methods(process):
            if name in inspect.signature(method).parameters:
                raise WrongType(
                    f"{method.__qualname__} has a parameter {name!r}, and a process reads the side as an attribute, "
                    f"self.{name}; remove the parameter",
                    step=step,
                )


def _has(kind: type[Process], name: str) -> bool:
    # An annotation without a value is how a user's class declares the type of a side.
    return hasattr(kind, name) or (kind is Process and name in Process.__annotations__)


def _methods(process: Process) -> list[Any]:
    firings = [getattr(process, f"on_{name}", None) for name in timers_of(process)]
    return [one for one in (process.element, process.expire, *firings) if inspect.ismethod(one)]
