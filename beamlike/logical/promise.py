"""Promises: how complete the on-time panes of a grouping must be, and how soon after the end of their window."""

from __future__ import annotations

from typing import Any

import attrs

from beamlike.errors import PlanError, WrongType
from beamlike.logical.node import Node
from beamlike.logical.origins import Group, Promise
from windowing.time import Duration, format_duration, microseconds
from windowing.windows import GlobalWindows


def promised(node: Node, complete: Any, within: Duration, hold: Any) -> Node:
    """Returns the node of a grouping with a promise. The arguments are those of `Collection.promise`."""
    if not isinstance(node.origin, Group):
        raise PlanError(
            "only the output of aggregate(...) has panes whose completeness can be promised; call promise(...) there, "
            "before any other step",
            step=node.name,
        )
    if isinstance(node.windowing.windows, GlobalWindows):
        raise PlanError(
            "a promise is about windows that end, and the global window does not; call window_into(...) before the "
            "grouping",
            step=node.name,
        )
    promise = Promise(_share(complete, node.name), _within(within, node.name), _flag(hold, node.name))
    after: Node = attrs.evolve(node, origin=attrs.evolve(node.origin, promise=promise))
    return after


def _share(complete: Any, step: str) -> float:
    if isinstance(complete, bool) or not isinstance(complete, int | float):
        raise WrongType(f"promise: complete is a share such as 0.999, not {complete!r}", step=step)
    if not 0 < complete <= 1:
        hint = f"; did you mean {complete / 100:g}?" if 1 < complete <= 100 else ""
        raise PlanError(
            f"promise: complete is a share above 0 and at most 1, not {complete!r}{hint}", step=step
        )
    return float(complete)


def _within(within: Duration, step: str) -> int:
    try:
        found = microseconds(within)
    except (TypeError, ValueError) as error:
        raise PlanError(f"promise: within: {error}", step=step) from None
    if found < 0:
        raise PlanError(
            f"promise: within must not be negative, not {format_duration(found)}; it counts from the end of a window",
            step=step,
        )
    return found


def _flag(hold: Any, step: str) -> bool:
    if not isinstance(hold, bool):
        raise WrongType(f"promise: hold is True or False, not {hold!r}", step=step)
    return hold
