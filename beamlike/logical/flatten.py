"""Several collections as one."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from beamlike.api.collection import Collection
from beamlike.logical import checks
from beamlike.logical.origins import Flatten
from beamlike.steps.infer import Shape, flat
from windowing.columns import PANE_RETRACTED


def flatten(*collections: Collection | Iterable[Collection], name: str | None = None) -> Collection:
    """The rows of all collections, which must have the same columns and the same windowing."""
    inputs: list[Collection] = flat(collections)
    step = name or f"flatten({', '.join(getattr(item, 'name', '?') for item in inputs)})"
    checks.require_collections(inputs, step)
    checks.require_alike(inputs, step)
    first = inputs[0]
    step = first.pipeline.new_name(name, "flatten")
    first.pipeline.register(step)
    common = [
        column for column in first.shape.system if all(column in other.shape.system for other in inputs)
    ]
    if any(other.retracting for other in inputs) and PANE_RETRACTED not in common:
        common.append(PANE_RETRACTED)
    union: Collection = attrs.evolve(
        first,
        name=step,
        base=step,
        origin=Flatten(),
        inputs=tuple(inputs),
        shape=Shape(first.schema, tuple(common)),
        bounded=all(other.bounded for other in inputs),
        repeats=any(other.repeats for other in inputs),
    )
    return union
