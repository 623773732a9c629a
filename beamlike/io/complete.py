"""Complete sources, which have an end: when a run has read all their input, their watermark is at the end of time.

The position of such a source has the entry `OVER` from its last batch on, in checkpoints and savepoints.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Self

import attrs

from beamlike.errors import CheckpointError
from beamlike.io.base import Pieces
from beamlike.io.files.reader import FileReader
from beamlike.io.sources import Chunk, MayBeComplete, PlannedBatch, Position, Reader
from beamlike.system.after_end import AFTER_END

OVER: Final = "@over"
"""The entry in the position of a source that is over. Positions of files have an entry for each file, so its value has
the form of such an entry.
"""
END: Final[Position] = MappingProxyType({OVER: {"number": 0}})
"""The change of the position with which a source is over."""

_LOG = logging.getLogger("beamlike")


def is_complete(source: object) -> bool:
    """True if the user has declared that the source is complete when a run begins."""
    return isinstance(source, MayBeComplete) and source.complete


def is_over(position: Mapping[str, Any]) -> bool:
    """True if a source at this position is over."""
    return OVER in position


def without_end(position: Position) -> Position:
    """Returns the position as the source itself knows it."""
    return {entry: value for entry, value in position.items() if entry != OVER}


def with_end(taken: PlannedBatch | None) -> PlannedBatch:
    """Returns the next batch of a complete source, which is its end if no more input is available."""
    if taken is None:
        return PlannedBatch(None, dict(END))
    return taken if taken.more else taken._replace(position={**taken.position, **END})


def only_ends(taken: PlannedBatch) -> bool:
    """True if a batch has nothing but the end of its source."""
    return taken.input is None and taken.watermark is None and {*taken.position} == {OVER}


def require_complete(name: str, *, complete: bool, over: bool) -> None:
    """Raises `CheckpointError` if the source `name` is over, and the pipeline no longer declares it complete."""
    if over and not complete:
        raise CheckpointError(
            f"source {name!r} is over in this checkpoint: a run read it with complete=True, or Kafka with end=, to its "
            "end, so all further rows of it would be late. Give this again, read further input as another source, or "
            "begin with a new checkpoint"
        )


@attrs.define(eq=False)
class LateInput:
    """Looks for input of a source that plans its batches and is over. The first such input is logged and reported.

    The run does not need the source any more, so an error of the source is logged, and ends the search.
    """

    name: str
    _found: dict[str, str] = attrs.field(factory=dict, init=False)
    _done: bool = attrs.field(default=False, init=False)

    def look(self, new: Callable[[], PlannedBatch | None]) -> None:
        """Looks for input; `new` plans the batch that would be next."""
        if self._done:
            return
        try:
            taken = new()
        except Exception as error:
            self._done = True
            _LOG.warning("source %r is over, and cannot be searched for later input: %s", self.name, error)
            return
        if taken is not None and taken.input is not None:
            self._done = True
            where = json.dumps(dict(taken.position))
            self._found[where] = f"{AFTER_END} of the source"
            _LOG.warning(
                "source %r is over (complete=True, or Kafka with end=), and has new input up to the position %s, "
                "which is not read: read it as another source",
                self.name,
                where,
            )

    def report(self) -> dict[str, str]:
        """Returns the input that was found since the last call, by its position."""
        found, self._found = self._found, {}
        return found


@attrs.define(eq=False)
class CompleteReader:
    """A reader of a complete source. Its last batch moves the position to the end, unless the reader has an attribute
    `final` that is false: then the end may move in a later run.
    """

    reader: Reader
    _over: bool
    _late: LateInput

    @classmethod
    def of(cls, name: str, position: Position, opened: Callable[[Position], Reader]) -> Self:
        """Creates a reader that continues from a position; `opened` opens the source at a position."""
        return cls(opened(without_end(position)), is_over(position), LateInput(name))

    def new(self) -> PlannedBatch | None:
        if not self._over:
            taken = self.reader.new()
            return with_end(taken) if getattr(self.reader, "final", True) else taken
        if isinstance(self.reader, FileReader):
            self.reader.look_after_end()
        else:
            self._late.look(self.reader.new)
        return None

    def read(self, batch: PlannedBatch) -> Chunk:
        self._over = self._over or is_over(batch.position)
        return Pieces([]) if only_ends(batch) else self.reader.read(batch)

    def changed(self) -> dict[str, str]:
        """Returns the changed files and the late input since the last call, each with the kind of change."""
        files = self.reader.changed() if isinstance(self.reader, FileReader) else {}
        return {**files, **self._late.report()}

    def close(self) -> None:
        self.reader.close()
