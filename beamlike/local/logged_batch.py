"""A batch as the journal stores it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

import attrs

from beamlike.io.sources import PlannedBatch, Position


@attrs.frozen
class LoggedBatch:
    """A batch: its input by source, and its processing time (us), which a replay uses again.

    `started`: the start of the run (us) that began the batch. Sources in `waiting` are too far ahead. With `ended`, all
    sources have ended.
    """

    number: int
    now: int
    started: int
    taken: Mapping[str, PlannedBatch]
    waiting: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    ended: bool = attrs.field(default=False, kw_only=True)

    def to_json(self) -> str:
        """Converts the batch to JSON, without its number."""
        taken = {name: _facts(one) for name, one in self.taken.items()}
        return json.dumps([self.now, self.started, taken, self.waiting, self.ended])

    @classmethod
    def from_json(cls, number: int, text: str) -> Self:
        """Reads the result of `to_json`."""
        now, started, taken, waiting, ended = json.loads(text)
        planned = {name: _taken(*one) for name, one in taken.items()}
        return cls(number, now, started, planned, waiting=tuple(waiting), ended=ended)


def _facts(taken: PlannedBatch) -> list[Any]:
    """The facts of a source's input. Most sources announce no watermark."""
    facts = [taken.input, taken.position]
    return facts if taken.watermark is None else [*facts, taken.watermark]


def _taken(taken: Any, position: Position, watermark: int | None = None) -> PlannedBatch:
    return PlannedBatch(taken, position, watermark=watermark)
