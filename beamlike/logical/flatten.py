"""The declaration of a union of several collections."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from beamlike.errors import UnlikeCollections
from beamlike.expressions.describe import describe
from beamlike.logical.node import Node
from beamlike.logical.origins import Flatten
from beamlike.logical.windowing import rewindowed
from beamlike.rows.dtypes import schema_text
from beamlike.steps.infer import Shape
from windowing.columns import EVENT_TIME, PANE_RETRACTED


def flattened(inputs: Sequence[Node], name: str) -> Node:
    """Declares the union of nodes. They must have passed `require_alike`.

    Triggers and accumulation are those of the first, and the allowed lateness is the largest.
    """
    first = inputs[0]
    common = [
        column for column in first.shape.system if all(column in other.shape.system for other in inputs)
    ]
    retracting = any(other.retracting for other in inputs)
    if retracting and PANE_RETRACTED not in common:
        common.append(PANE_RETRACTED)
    lateness = max(other.windowing.allowed_lateness for other in inputs)
    union: Node = attrs.evolve(
        first,
        name=name,
        base=name,
        origin=Flatten(),
        inputs=tuple(inputs),
        shape=Shape(first.schema, tuple(common)),
        windowing=rewindowed(first, {"allowed_lateness": f"{lateness}us"}, name),
        bounded=all(other.bounded for other in inputs),
        repeats=any(other.repeats for other in inputs),
        unlike=_unlike(inputs),
        retracting=retracting,
    )
    return union


def _unlike(inputs: Sequence[Node]) -> str:
    """Returns the windows of nodes as text if they differ; empty if they are alike."""
    if unlike := next((node.unlike for node in inputs if node.unlike), ""):
        return unlike
    first, *others = inputs
    return next((text for other in others if (text := _difference(first, other))), "")


def _difference(first: Node, other: Node) -> str:
    ours, theirs = describe(first.windowing.windows), describe(other.windowing.windows)
    if ours != theirs:
        return f"{ours} in {first.name!r} but {theirs} in {other.name!r}"
    if first.merged != other.merged:
        merged, fresh = (first, other) if first.merged else (other, first)
        return f"{merged.name!r} was grouped, so its windows are merged, and {fresh.name!r} was not"
    return ""


def require_alike(nodes: Sequence[Node], step: str) -> None:
    """Raises `UnlikeCollections` unless nodes have the same columns, in any order, and all or none an event time."""
    first, *others = nodes
    for other in others:
        _require_same_columns(first, other, step)


def _require_same_columns(first: Node, other: Node, step: str) -> None:
    if dict(first.schema) != dict(other.schema):
        ours, theirs = dict(first.schema.items()), dict(other.schema.items())
        here = {name: dtype for name, dtype in ours.items() if theirs.get(name) != dtype}
        there = {name: dtype for name, dtype in theirs.items() if ours.get(name) != dtype}
        raise UnlikeCollections(
            f"unlike columns: {first.name!r} has {schema_text(here)}, "
            f"{other.name!r} has {schema_text(there)}; make them alike with select(...)",
            step=step,
        )
    if (EVENT_TIME in first.shape.system) != (EVENT_TIME in other.shape.system):
        raise UnlikeCollections(
            "rows with and without an event time cannot be one collection; dead letters have none", step=step
        )


def require_same_windows(first: Node, other: Node, step: str) -> None:
    """Raises `UnlikeCollections` unless the rows of both nodes are in the same windows."""
    if unlike := first.unlike or other.unlike or _difference(first, other):
        remedy = "call window_into(...) with the same windows on each before"
        raise UnlikeCollections(f"unlike windows: {unlike}; {remedy}", step=step)
