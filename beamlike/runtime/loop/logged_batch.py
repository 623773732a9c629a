"""A batch in the form in which the journal stores it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

import attrs

from beamlike.io.sources import PlannedBatch, Position


@attrs.frozen
class LoggedBatch:
    """A batch: its input by source, and its processing time (us), which a replay uses again.

    `started`: the start (us) of the run that began the batch. Sources in `waiting` are too far ahead of another source.
    `ended`: all sources have ended.
    """

    number: int
    now: int
    started: int
    taken: Mapping[str, PlannedBatch]
    waiting: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    ended: bool = attrs.field(default=False, kw_only=True)

    def to_json(self) -> str:
        """Converts the batch, without its number, to JSON."""
        taken = {name: _facts(one) for name, one in self.taken.items()}
        return json.dumps([self.now, self.started, taken, self.waiting, self.ended])

    @classmethod
    def from_json(cls, number: int, text: str) -> Self:
        """Creates a batch from its number and the result of `to_json`."""
        now, started, taken, waiting, ended = json.loads(text)
        planned = {name: _taken(*one) for name, one in taken.items()}
        return cls(number, now, started, planned, waiting=tuple(waiting), ended=ended)


def _facts(taken: PlannedBatch) -> list[Any]:
    """Converts the input of a source to a list for JSON. The watermark is left out if the source announces none."""
    facts = [taken.input, taken.position]
    return facts if taken.watermark is None else [*facts, taken.watermark]


def _taken(taken: Any, position: Position, watermark: int | None = None) -> PlannedBatch:
    return PlannedBatch(taken, position, watermark=watermark)
