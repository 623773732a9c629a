"""The rows of a chunk in order of a time, such as a deadline: to find those that are due, and the first that remains.

Rows are due in order of time, so few steps need more than the first rows. Only these are sorted:

    deadlines in a chunk     70 50 90 60 80 50 70 90
    sorted until 60          50 50 60                 at positions 1 5 3

The least time of a bucket is in its index. No row before it is live, so a search begins there and not at the first row
that the chunk ever had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.state.chunks import Chunk, unpack
from stages.state.directory import NEVER
from stages.state.row_numbers import Positions
from stages.state.storage import Storage

SHARE: Final = 16
"""The share of the rows that is sorted at first is one in this many."""
FEW: Final = 4_096
"""The number of rows up to which all are sorted."""
MORE: Final = 4
"""The factor by which more rows are sorted each time that the sorted ones do not suffice."""
_BLOCK: Final = 64
"""The number of rows that are looked at together, in the search for one that remains."""

Flags = npt.NDArray[np.bool_]


@attrs.frozen(eq=False)
class TimeOrder:
    """The positions of all rows of a chunk from time `first` to `last` (us, inclusive), in order of time.

    At least one row in `share` is sorted. If all rows of the chunk have one time, `times` has it once, and there are no
    positions.
    """

    first: int
    last: int
    share: int
    times: npt.NDArray[np.int64]
    positions: npt.NDArray[np.uint32] | None

    @classmethod
    def of(cls, times: npt.NDArray[np.int64], first: int, until: int, share: int) -> TimeOrder:
        """Sorts the rows from `first` to `until`, and later ones, so that they are at least one in `share` of all."""
        positions = np.flatnonzero((times >= first) & (times != NEVER)).astype(np.uint32)
        found, last = times[positions], NEVER
        count = max(FEW, len(found) // share)
        if count < len(found):
            last = max(until, int(np.partition(found, count)[count]))
            positions = positions[found <= last]
            found = times[positions]
        order = np.argsort(found, kind="stable")
        return cls(first, last, 1 if last == NEVER else share, found[order], positions[order])

    @classmethod
    def of_one(cls, time: int) -> TimeOrder:
        """Returns the order of rows that all have this time."""
        return cls(-NEVER, NEVER, 1, np.array([time], np.int64), None)

    @property
    def complete(self) -> bool:
        """True if no row from `first` on is left out."""
        return self.last == NEVER

    def until(self, first: int, time: int, live: Flags) -> Positions:
        """Returns the positions of the live rows from `first` to `time`."""
        start, end = np.searchsorted(self.times, first), np.searchsorted(self.times, time, side="right")
        if self.positions is None:
            return Positions(np.flatnonzero(live) if start < end else np.arange(0))
        found = self.positions[start:end]
        return Positions(found[live[found]].astype(np.intp))

    def least(self, first: int, remaining: Flags) -> tuple[int, int] | None:
        """Returns the time and position of the first remaining row from `first` on; None if no sorted row remains."""
        start = int(np.searchsorted(self.times, first))
        if self.positions is None:
            position = int(remaining.argmax())
            return (int(self.times[0]), position) if start == 0 and remaining[position] else None
        for begin in range(start, len(self.times), _BLOCK):
            hit = np.flatnonzero(remaining[self.positions[begin : begin + _BLOCK]])
            if len(hit):
                place = begin + int(hit[0])
                return int(self.times[place]), int(self.positions[place])
        return None


@attrs.frozen
class Wanted:
    """The times of a chunk that a search needs: those of an index column from `first` to `until` (us), and at least as
    many as are one in `share` of all.

    Several tables may have the same chunk: those of two runs, of two stages, or of one stage before and after a change
    of its plan. So `timing` is that of the table.
    """

    chunk: Chunk
    timing: tuple[bytes, ...]
    column: str
    first: int
    until: int
    share: int = SHARE

    @property
    def order(self) -> TimeOrder | None:
        """The order of the rows; None if it is not known yet."""
        known: TimeOrder | None = self.chunk.orders.get((self.timing, self.column))
        if known is None or known.first > self.first or known.last < self.until or known.share > self.share:
            return None
        return known


def sort_times(wanted: Iterable[Wanted], storage: Storage) -> list[TimeOrder]:
    """Returns the orders of rows that are wanted. Chunks keep them for as long as they are remembered."""
    wanted = list(wanted)
    lacking = [each for each in wanted if each.order is None]
    if lacking:
        _sort(lacking, storage)
    return [order for each in wanted if (order := each.order) is not None]


def _sort(lacking: Sequence[Wanted], storage: Storage) -> None:
    names = storage.time_columns
    chunks = list({id(each.chunk): each.chunk for each in lacking}.values())
    parts = [_alike(chunk.only(names), names) for chunk in chunks]
    columns = pl.Schema({name: dtype for name, dtype in storage.table.schema.items() if name in names})
    # Deadlines are computed at the times of the previous step, after which no live row has been due.
    times = storage.times_of(pl.concat(unpack(parts, columns, storage.table.missing)), storage.index.times)
    bounds = pairwise(accumulate((part.rows for part in parts), initial=0))
    places = {id(chunk): slice(*place) for chunk, place in zip(chunks, bounds, strict=True)}
    for each in lacking:
        found = times[each.column][places[id(each.chunk)]]
        one = len(found) < each.chunk.rows
        order = (
            TimeOrder.of_one(int(found[0]))
            if one
            else TimeOrder.of(found, each.first, each.until, each.share)
        )
        each.chunk.orders[each.timing, each.column] = order


def _alike(chunk: Chunk, names: frozenset[str]) -> Chunk:
    """Returns one row of a chunk whose rows are alike in these columns, such as the end of a window."""
    return chunk.at(Positions(np.arange(1))) if chunk.rows and chunk.kind[1].keys() >= names else chunk
