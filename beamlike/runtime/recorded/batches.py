"""The batches of a run whose input is still in its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from beamlike.errors import CheckpointError
from beamlike.runtime.recorded.taken import Taken
from windowing.time import MIN_TIME

STEPS: Final = "@steps"
"""The name under which a batch of test streams has its step, instead of the names of sources. No step has such
a name.
"""


@attrs.frozen(kw_only=True)
class RecordedBatch:
    """A batch of a run: the input that it took from each source, and its processing time (us).

    `started`: the start (us) of the run that began the batch; None if it is not known. Sources in `waiting` were too
    far ahead of another source. `ended`: all sources end here. `commanded`: the sources that a command ends here.
    `done`: the batch is committed.
    """

    number: int
    now: int
    taken: Mapping[str, Taken]
    started: int | None = MIN_TIME
    waiting: frozenset[str] = frozenset()
    ended: bool = False
    commanded: frozenset[str] = frozenset()
    done: bool = True

    @property
    def over(self) -> frozenset[str]:
        """The sources that end here: by a command, or since the batch has their last input."""
        return self.commanded | {name for name, taken in self.taken.items() if getattr(taken, "over", False)}

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yields each part of the input as text, with the name of its source."""
        for source, taken in self.taken.items():
            for text in taken.texts():
                yield source, text


@attrs.frozen
class RecordedRun:
    """The run of a checkpoint: its manifest, and the batches whose input its log still has, by number.

    `saved`: batch 0 is the restored savepoint, and took no input.
    """

    path: str
    manifest: dict[str, Any]
    batches: Mapping[int, RecordedBatch]

    def __attrs_post_init__(self) -> None:
        if not self.batches:
            raise CheckpointError(f"the run of the checkpoint {self.path} has not begun a batch yet")

    @property
    def first(self) -> int:
        """The number of the first batch whose input is known."""
        return min(self.batches)

    @property
    def last(self) -> int:
        """The number of the last batch that has begun."""
        return max(self.batches)

    @property
    def done(self) -> int:
        """The number of the last batch that is done; -1 if none is known."""
        return max((one.number for one in self.batches.values() if one.done), default=-1)

    def batch(self, number: int) -> RecordedBatch:
        """Returns a batch. Raises `CheckpointError` if the run has no such batch, or its input is no longer known."""
        if number in self.batches:
            return self.batches[number]
        there = f"batch {self.first}" if self.first == self.last else f"batches {self.first} to {self.last}"
        if number > self.last or number < 0:
            raise CheckpointError(f"the run of {self.path} has no batch {number}: it has {there}")
        raise CheckpointError(
            f"batch {number} of {self.path} is gone: a checkpoint has the input of the last 100 batches, and this one "
            f"of {there}"
        )
