"""A reader that returns all rows of a source in one batch of a run with a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

import attrs

from beamlike.io.sources import PlannedBatch, Position, Reader
from beamlike.runtime.batch.ingested import AllChunks, Chunk

_READ: Final = "@whole"
"""The entry in the position of a source that was read although it was empty. Other sources have an entry for
each file.
"""


@attrs.define
class FullReader:
    """A reader that returns all rows that a source has now as one batch. Rows that arrive later are not part of the
    run.
    """

    reader: Reader
    was_read: bool
    _next: tuple[PlannedBatch, list[Chunk]] | None = attrs.field(default=None, init=False)

    @classmethod
    def of(cls, position: Position, opened: Callable[[Position], Reader]) -> Self:
        """Returns a reader that continues from a position; `opened` opens the source at a position."""
        own = {entry: value for entry, value in position.items() if entry != _READ}
        return cls(opened(own), bool(position))

    def new(self) -> PlannedBatch | None:
        """Returns all available input, which may be empty; None if it was read before."""
        if self.was_read:
            return None
        if self._next is None:
            inputs, chunks, position = list[Any](), list[Chunk](), dict[str, Any]()
            while (taken := self.reader.new()) is not None:
                inputs.append(taken.input)
                position.update(taken.position)
                chunks.append(self.reader.read(taken))
            self._next = PlannedBatch(inputs, position or {_READ: {"number": 0}}), chunks
        return self._next[0]

    def read(self, taken: PlannedBatch) -> AllChunks:
        """Returns the rows of planned input, which another run may have planned."""
        self.was_read = True
        if self._next is not None and self._next[0].input == taken.input:
            chunks, self._next = self._next[1], None
            return AllChunks(chunks)
        return AllChunks([self.reader.read(PlannedBatch(one, {})) for one in taken.input])

    def close(self) -> None:
        self.reader.close()
