"""The union of several collections."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from beamlike.errors import UnlikeCollections
from beamlike.expressions.describe import windowing_choices
from beamlike.logical.node import Node
from beamlike.logical.origins import Flatten
from beamlike.rows.dtypes import schema_text
from beamlike.steps.infer import Shape
from windowing.columns import EVENT_TIME, PANE_RETRACTED


def flattened(inputs: Sequence[Node], name: str) -> Node:
    """Returns the rows of all nodes, which must be `require_alike`."""
    first = inputs[0]
    common = [
        column for column in first.shape.system if all(column in other.shape.system for other in inputs)
    ]
    if any(other.retracting for other in inputs) and PANE_RETRACTED not in common:
        common.append(PANE_RETRACTED)
    union: Node = attrs.evolve(
        first,
        name=name,
        base=name,
        origin=Flatten(),
        inputs=tuple(inputs),
        shape=Shape(first.schema, tuple(common)),
        bounded=all(other.bounded for other in inputs),
        repeats=any(other.repeats for other in inputs),
    )
    return union


def require_alike(nodes: Sequence[Node], step: str) -> None:
    """Raises an error unless nodes have the same windowing and the same columns, in any order."""
    first, *others = nodes
    for other in others:
        _require_same_columns(first, other, step)
        require_same_windowing(first, other, step)


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


def require_same_windowing(first: Node, other: Node, step: str) -> None:
    """Raises an error unless nodes have the same windows, and the same choices for panes."""
    ours, theirs = windowing_choices(first.windowing), windowing_choices(other.windowing)
    differences = [
        f"{choice} {ours[choice]} in {first.name!r} but {theirs[choice]} in {other.name!r}"
        for choice in ours
        if ours[choice] != theirs[choice]
    ]
    if first.merged != other.merged:
        merged, fresh = (first, other) if first.merged else (other, first)
        differences.append(
            f"{merged.name!r} was grouped, so its windows are merged, and {fresh.name!r} was not"
        )
    if differences:
        remedy = "call window_into(...) with the same choices on each before"
        raise UnlikeCollections(f"unlike windowings: {'; '.join(differences)}; {remedy}", step=step)
