"""The declaration of the stage that puts changes into the sessions of their key, before they are grouped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from beamlike.logical.node import Node
from beamlike.logical.origins import Apply
from beamlike.steps.infer import Shape
from stages.process.sessions_of_changes import SessionsOfChanges
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS


def in_sessions(before: Node, keys: Sequence[str], step: str, free: Callable[[str], str]) -> Node:
    """Returns the rows for a grouping by these keys. Changes in windows that merge are put into their sessions by a
    stage of its own; other rows are returned as they are.
    """
    if not before.retracting or before.merged or not before.windowing.windows.merging:
        return before
    operator = SessionsOfChanges(tuple(keys), before.schema, before.windowing)
    name = free(f"{step}.sessions")
    shape = Shape(before.schema, (EVENT_TIME, *WINDOW_COLUMNS, PANE_RETRACTED))
    made: Node = attrs.evolve(
        before, name=name, base=name, origin=Apply(operator), inputs=(before,), shape=shape, merged=True
    )
    return made
