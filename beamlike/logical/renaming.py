"""Steps under their latest names: `named` holds for what has been made of a step before, too."""

from __future__ import annotations

import attrs

from beamlike.api.collection import Collection
from beamlike.api.pipeline import Pipeline, Write


def writes_of(pipeline: Pipeline) -> list[Write]:
    """What goes to sinks, in the order of their names, made of collections as they are called now."""
    known: dict[Collection, Collection] = {}
    writes = sorted(pipeline.writes, key=lambda write: write.name)
    return [attrs.evolve(write, collection=_latest(write.collection, known)) for write in writes]


def _latest(collection: Collection, known: dict[Collection, Collection]) -> Collection:
    """The collection, and all that it is made from; each is one object, however it is reached."""
    latest = collection.pipeline.latest(collection)
    if latest not in known:
        inputs = tuple(_latest(before, known) for before in latest.inputs)
        same = all(one is other for one, other in zip(inputs, latest.inputs, strict=True))
        known[latest] = latest if same else attrs.evolve(latest, inputs=inputs)
    return known[latest]
