"""The declaration of `with_watermark`. After row-wise steps, the source is read a second time, with these steps before
its watermark. Elsewhere, an operator looks at the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import attrs

from beamlike.errors import PlanError, WrongType
from beamlike.expressions.describe import describe
from beamlike.io.sources import AcceptsTimeUnit
from beamlike.logical.dead_letters import has_dead_letters
from beamlike.logical.event_time import event_time, require_event_time, require_no_unit
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply, Read
from beamlike.logical.watermark import by_split, fitted, require_watermark
from beamlike.steps.base import Select, Step, WindowInto, WithColumns
from beamlike.steps.infer import Shape
from beamlike.steps.timestamps import WithTimestamps
from stages.strategies.announced import AnnouncedWatermark
from stages.strategies.base import WatermarkStrategy
from stages.strategies.validators import SourceFile
from windowing.columns import EVENT_TIME, PANE_RETRACTED

Latest = Callable[[Node], Node]
"""Returns the node under its current name, after all renamings."""


def watermarked(
    before: Node, latest: Latest, watermark: object, timestamp: Any, unit: str | None, step: str, base: str
) -> Node:
    """Declares the rows of `before` with another watermark.

    After row-wise steps, the rows are a source of their own, and the steps since the original source become part of it.
    """
    way = None if before.retracting else _since_read(before, latest)
    if way is None:
        return _observed(before, watermark, timestamp, step, base)
    origin = _reread(before, way, watermark, timestamp, unit, step)
    shape = attrs.evolve(before.shape, system=origin.system)
    again: Node = attrs.evolve(before, name=step, base=base, origin=origin, inputs=(), shape=shape)
    return again


def _observed(before: Node, watermark: object, timestamp: object, step: str, base: str) -> Node:
    """Declares an operator that looks at the rows, and holds the watermark."""
    from stages.process.watermarked import Watermarked  # few pipelines need it

    if has_dead_letters(before):
        raise PlanError(f"{before.name!r} has dead letters, which have no event time", step=step)
    require_event_time(before, step)
    strategy = _require_observing(watermark, step)
    if timestamp is not None:
        raise PlanError(
            f"rows of {before.name!r} have event times, which the watermark of a stage depends on; set others with "
            f"with_timestamps({timestamp!r}, allowed_skew=...) before, and leave out timestamp= here",
            step=step,
        )
    outside = before.outside_windows()
    changes = (PANE_RETRACTED,) if before.retracting else ()
    shape = Shape(before.schema, (EVENT_TIME, *changes))
    operator = Watermarked(shape.everything(), fitted(strategy, shape, step))
    after: Node = attrs.evolve(
        outside, name=step, base=base, origin=Apply(operator), inputs=(before,), shape=shape
    )
    return after


def _require_observing(given: object, step: str) -> WatermarkStrategy:
    """Returns the strategy. Raises an error if it is none, or if only a source can have it."""
    if not isinstance(given, WatermarkStrategy):
        raise WrongType(
            f"with_watermark takes a strategy such as bl.BoundedOutOfOrderness('5s'), not {given!r}",
            step=step,
        )
    only = {
        "estimates percentiles": bool(given.percentiles),
        "has a max_drift, with which a source waits": given.max_drift is not None,
        "makes event times of the times of arrival": given.assigns_event_time,
        "is announced": isinstance(given, AnnouncedWatermark),
        "has a split for each file": isinstance(given.per_split, SourceFile),
    }
    if reasons := [reason for reason, is_so in only.items() if is_so]:
        raise PlanError(
            f"{describe(given)} {' and '.join(reasons)}, which is for sources; call with_watermark directly after "
            "read(...) or row-wise steps, or give another strategy",
            step=step,
        )
    return given


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
        steps_after_time = (*origin.steps_after_time, *since)
        return attrs.evolve(
            origin, watermark=fitted(strategy, shape, step), steps_after_time=steps_after_time
        )
    time = event_time(before.schema, timestamp, unit, strategy, step)
    # The event time is read after all steps, so earlier steps run without one.
    steps = (
        _without_time(taken, step) for taken in (*origin.steps_before_time, *origin.steps_after_time, *since)
    )
    strategy = fitted(strategy, shape, step)
    return Read(origin.source, origin.raw, time, strategy, tuple(steps), max_future=origin.max_future)


def _require_own_time(origin: Read, timestamp: Any, step: str) -> None:
    """Raises `PlanError` unless the event time is a column of the source, which computes its announced watermark from
    it.
    """
    if timestamp is not None or origin.time is None:
        kind = type(origin.source).__name__
        raise PlanError(
            f"{kind} announces its watermark by an event time that it reads itself: name that column as timestamp= of "
            "p.read, or give a strategy such as bl.BoundedOutOfOrderness('5s') here",
            step=step,
        )


def _since_read(node: Node, latest: Latest) -> tuple[Read, tuple[Step, ...]] | None:
    """Returns the source of a node, and the steps since then; None if one of them is not a row-wise step."""
    steps: tuple[Step, ...] = ()
    node = latest(node)
    while not isinstance(node.origin, Read):
        origin = node.origin
        if not isinstance(origin, Step) or isinstance(origin, WindowInto):
            return None
        steps = (origin, *steps)
        (before,) = node.inputs
        node = latest(before)
    return node.origin, steps


def _without_time(taken: Step, step: str) -> Step:
    """Returns the step in the form that runs before rows have an event time. Raises `PlanError` if it reads the event
    time.
    """
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
