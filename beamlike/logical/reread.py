"""A source once more, with steps in front of its watermark: what `with_watermark` declares."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import attrs

from beamlike.errors import PlanError
from beamlike.io.sources import AcceptsTimeUnit
from beamlike.logical.event_time import event_time, require_no_unit
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply, DeadLetters, Flatten, Group, Late, Origin, Read
from beamlike.logical.watermark import by_split, fitted, require_watermark
from beamlike.steps.base import Select, Step, WindowInto, WithColumns
from beamlike.steps.infer import Shape
from beamlike.steps.timestamps import WithTimestamps
from stages.strategies.announced import AnnouncedWatermark
from windowing.columns import EVENT_TIME

Latest = Callable[[Node], Node]
"""Gives a node as it is called now."""


def reread(
    before: Node, latest: Latest, watermark: object, timestamp: Any, unit: str | None, step: str, base: str
) -> Node:
    """The rows of `before` as those of a source of their own, with the steps since its source in front."""
    origin = _reread(before, _since_read(before, latest, step), watermark, timestamp, unit, step)
    shape = attrs.evolve(before.shape, system=origin.system)
    again: Node = attrs.evolve(before, name=step, base=base, origin=origin, inputs=(), shape=shape)
    return again


def _reread(
    before: Node,
    way: tuple[Read, tuple[Step, ...]],
    watermark: object,
    timestamp: Any,
    unit: str | None,
    step: str,
) -> Read:
    origin, since = way
    if watermark is None:
        raise PlanError("give it a watermark strategy such as bl.BoundedOutOfOrderness('5s')", step=step)
    strategy = require_watermark(origin.source, watermark, step)
    if isinstance(strategy, AnnouncedWatermark) and isinstance(origin.source, AcceptsTimeUnit):
        _require_own_time(origin, timestamp, step)
    strategy = by_split(origin.source, strategy, before.schema, step)
    shape = Shape(before.schema, (EVENT_TIME,))
    if timestamp is None and not strategy.assigns_event_time and origin.time is not None:
        require_no_unit(unit, step)
        interlude = (*origin.interlude, *since)
        return attrs.evolve(origin, watermark=fitted(strategy, shape, step), interlude=interlude)
    time = event_time(before.schema, timestamp, unit, strategy, step)
    steps = (_without_time(taken, step) for taken in (*origin.prelude, *origin.interlude, *since))
    strategy = fitted(strategy, shape, step)
    return Read(origin.source, origin.raw, time, strategy, tuple(steps), max_future=origin.max_future)


def _require_own_time(origin: Read, timestamp: Any, step: str) -> None:
    """What such a source announces goes by the event time that it reads itself, in a column of its own."""
    if timestamp is not None or origin.time is None:
        kind = type(origin.source).__name__
        raise PlanError(
            f"{kind} announces its watermark by an event time that it reads itself: name that column as timestamp= of "
            "p.read, or give a strategy such as bl.BoundedOutOfOrderness('5s') here",
            step=step,
        )


def _since_read(node: Node, latest: Latest, step: str) -> tuple[Read, tuple[Step, ...]]:
    """The source of a node, and the steps from there; what is no step in between is refused."""
    steps: tuple[Step, ...] = ()
    node = latest(node)
    while not isinstance(node.origin, Read):
        origin = node.origin
        if not isinstance(origin, Step) or isinstance(origin, WindowInto):
            raise PlanError(_refusal(origin, node.name), step=step)
        steps = (origin, *steps)
        (before,) = node.inputs
        node = latest(before)
    return node.origin, steps


def _refusal(origin: Origin, name: str) -> str:
    """Why no watermark can be set after it."""
    match origin:
        case Group() | Apply() | Late():
            return (
                f"{name!r} is grouped, and its watermark follows from what it reads and holds; call with_watermark "
                "on what it reads"
            )
        case Flatten():
            return f"{name!r} has rows of several collections; call with_watermark on each of them before flatten"
        case DeadLetters():
            return f"{name!r} has dead letters, which have no event time"
        case _:
            return f"{name!r} has put the rows in windows, by their event time; call with_watermark before it"


def _without_time(taken: Step, step: str) -> Step:
    """The step as it is before there is an event time, which it must not read."""
    if isinstance(taken, Select):
        taken = attrs.evolve(taken, kept=())
    gives = frozenset(chain(*taken.gives)) if isinstance(taken, Select | WithColumns) else frozenset[str]()
    if isinstance(taken, WithTimestamps) or EVENT_TIME in taken.needs(gives):
        raise PlanError(
            f"the event time is only read here, and {taken.name!r} needs one before; leave out timestamp= to keep "
            "the one that the rows have, or change that step",
            step=step,
        )
    return taken
