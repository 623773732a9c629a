"""A batch as the journal notes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

import attrs

from beamlike.io.sources import PlannedBatch, Position


@attrs.frozen
class LoggedBatch:
    """A batch: what it takes of which source, and its processing time (us), which is the same when it is done again.

    `started` is when the run began (us) that took it. Sources that are `waiting` are too far ahead. With `ended`, all
    sources are at their end.
    """

    number: int
    now: int
    started: int
    taken: Mapping[str, PlannedBatch]
    waiting: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    ended: bool = attrs.field(default=False, kw_only=True)

    def to_json(self) -> str:
        """As facts."""
        taken = {name: _facts(one) for name, one in self.taken.items()}
        return json.dumps([self.now, self.started, taken, self.waiting, self.ended])

    @classmethod
    def from_json(cls, number: int, text: str) -> Self:
        """What `to_json` gave."""
        now, started, taken, waiting, ended = json.loads(text)
        planned = {name: _taken(*one) for name, one in taken.items()}
        return cls(number, now, started, planned, waiting=tuple(waiting), ended=ended)


def _facts(taken: PlannedBatch) -> list[Any]:
    """Most sources announce nothing."""
    facts = [taken.input, taken.position]
    return facts if taken.watermark is None else [*facts, taken.watermark]


def _taken(taken: Any, position: Position, watermark: int | None = None) -> PlannedBatch:
    return PlannedBatch(taken, position, watermark=watermark)
