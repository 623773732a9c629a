"""Sources that say what a batch takes before it is read, in process: an intake, and all of one from its beginning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import attrs

from beamlike.io.base import Pieces
from beamlike.io.files.chunking import together
from beamlike.io.sources import Position, ReadInParts, Taken


@attrs.define
class PartsIntake:
    """Reads such a source on from a position, in batches of about `rows` rows."""

    source: ReadInParts
    position: dict[str, Any]
    rows: int
    _next: Taken | None = attrs.field(default=None, init=False)

    @classmethod
    def of(cls, source: ReadInParts, position: Position, rows: int) -> Self:
        """From a position that an intake of the source gave."""
        return cls(source, dict(position), rows)

    def new(self) -> Taken | None:
        """What comes next; the same until it is read."""
        if self._next is None:
            self._next = self.source.take(self.position, self.rows)
        return self._next

    def read(self, taken: Taken) -> Pieces:
        """Those parts."""
        pieces = [piece for part in taken.input for piece in self.source.read_part(part, self.rows)]
        self.position.update(taken.position)
        self._next = None
        return together(pieces)

    def close(self) -> None:
        """Nothing is open."""


def chunks_up_to(source: ReadInParts, rows: int, end: Any) -> Iterator[Pieces]:
    """What batches take of a source that knows its `end`."""
    intake = PartsIntake.of(source, {"end": end}, rows)
    while (taken := intake.new()) is not None:
        yield intake.read(taken)
