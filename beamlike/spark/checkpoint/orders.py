"""Orders of the driver to the tasks of a batch: a file of each in the checkpoint, which Spark records and replays."""

from __future__ import annotations

import json

import attrs

from beamlike.system.seals import sealed, unsealed
from stages.facts import from_facts, to_facts


@attrs.frozen
class EndSources:
    """These sources are at their end."""

    end: tuple[str, ...]


@attrs.frozen
class PlayStep:
    """Every test stream plays the step of this number."""

    step: int


Order = EndSources | PlayStep


def order_text(order: Order) -> str:
    """As it is in its file, such as `{"end": ["mobile"]}` or `{"step": 3}`, with its checksum."""
    return json.dumps(sealed(to_facts(order)))


def read_order(text: str) -> Order:
    """The order that a file has. Raises `NotAsWritten`."""
    facts = unsealed(json.loads(text), "a file in beamlike/control")
    order: Order = from_facts(Order, facts)  # type: ignore[arg-type]
    return order
