"""Orders of the driver to the tasks of a batch: a file of each in the checkpoint, which Spark records and replays."""

from __future__ import annotations

import json

import attrs

from stages.facts import from_json, to_facts


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
    """As it is in its file: `{"end": ["mobile"]}` or `{"step": 3}`."""
    return json.dumps(to_facts(order))


def read_order(text: str) -> Order:
    """The order that a file has."""
    order: Order = from_json(Order, text)  # type: ignore[arg-type]
    return order
