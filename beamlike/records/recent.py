"""The records of the last batches of a run, in little memory."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from typing import overload

import attrs

from beamlike.records.model import BatchRecord

KEPT_BATCHES = 10_000
"""The number of batches whose records a run keeps in memory."""


@attrs.define(eq=False, repr=False)
class RecentRecords(Sequence[BatchRecord]):
    """The records of the last `most` batches, as a sequence.

    All but the last are kept as bytes and become objects again when they are read. As objects, ten thousand would take
    100 MB, and garbage collection would go through all of them, for some 0.1 s.
    """

    most: int = KEPT_BATCHES
    _kept: deque[bytes] = attrs.field(factory=deque, init=False)
    _last: BatchRecord | None = attrs.field(default=None, init=False)

    def append(self, record: BatchRecord) -> None:
        """Adds the record of the next batch."""
        self._last = record
        self._kept.append(pickle.dumps(record, pickle.HIGHEST_PROTOCOL))
        if len(self._kept) > self.most:
            self._kept.popleft()

    @property
    def last(self) -> BatchRecord | None:
        """The record of the last batch; None if there is none."""
        return self._last

    @overload
    def __getitem__(self, index: int) -> BatchRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[BatchRecord]: ...

    def __getitem__(self, index: int | slice) -> BatchRecord | list[BatchRecord]:
        if isinstance(index, slice):
            return [_record(kept) for kept in [*self._kept][index]]
        return _record(self._kept[index])

    def __iter__(self) -> Iterator[BatchRecord]:
        # A copy, since the run may add a record meanwhile.
        return map(_record, [*self._kept])

    def __len__(self) -> int:
        return len(self._kept)

    def __repr__(self) -> str:
        return repr(list(self))


def _record(kept: bytes) -> BatchRecord:
    record: BatchRecord = pickle.loads(kept)
    return record
