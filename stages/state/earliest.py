"""The due rows of large buckets, and the rows with their least hold and deadlines, which the index must know.

The directory has the least times of each chunk, of deleted rows, too. Chunks are searched in order of them, until the
least time found is not after that of the next chunk:

    least deadlines by chunk    7   5   9        chunk 1 is searched: its row with 5 was deleted, the next one has 6
                                                 6 is before 7, so it is the least of the bucket
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.frames import concat_nonempty
from stages.state.buckets import BUCKET
from stages.state.chunks import Chunk, gathered
from stages.state.content import BucketContent
from stages.state.directory import NEVER, Directory
from stages.state.index import DEADLINE
from stages.state.row_numbers import BucketMask, Positions, RowNumbers
from stages.state.storage import Storage
from stages.state.time_order import MORE, SHARE, Wanted, sort_times
from windowing.clocks import Times


@attrs.frozen(eq=False)
class DueRows:
    """The ascending numbers of the due rows of a bucket, and the chunks that were read to find them, by number."""

    numbers: RowNumbers
    chunks: Mapping[int, Chunk]


def due_rows(storage: Storage, directories: Mapping[int, Directory], now: Times) -> dict[int, DueRows]:
    """Finds the rows that are due at `now`, in the chunks that have a deadline until then."""
    times = {DEADLINE + clock: now.time(clock) for clock in storage.state_table.clocks}
    timing = storage.state_table.timing
    wanted, places, read = list[Wanted](), list[tuple[int, int]](), dict[int, dict[int, Chunk]]()
    for bucket, known in directories.items():
        chunks = read[bucket] = dict[int, Chunk]()
        for name, time in times.items():
            if (first := storage.least[bucket].get(name, NEVER)) > time:
                continue
            for number in np.flatnonzero(known.least[name] <= time).tolist():
                if number not in chunks:
                    chunks[number] = storage.chunk(bucket, number)
                wanted.append(Wanted(chunks[number], timing, name, first, time))
                places.append((bucket, number))
    due = {bucket: np.zeros(len(known.live), np.bool_) for bucket, known in directories.items()}
    for want, order, (bucket, number) in zip(wanted, sort_times(wanted, storage), places, strict=True):
        start = int(directories[bucket].ends[number]) - want.chunk.rows
        live = directories[bucket].live[start : start + want.chunk.rows]
        due[bucket][start + order.until(want.first, want.until, live)] = True
    return {bucket: DueRows(RowNumbers(np.flatnonzero(flags)), read[bucket]) for bucket, flags in due.items()}


@attrs.frozen(eq=False)
class Remaining:
    """The live rows of a bucket that a step leaves as they are: a flag for each row, and the content that was read."""

    content: BucketContent
    mask: BucketMask


@attrs.frozen(order=True)
class _Place:
    """A time (us), and the chunk and the position in it of the row that has the time."""

    time: int
    chunk: int
    position: int


_NOWHERE: Final = _Place(NEVER, -1, -1)


@attrs.define(eq=False)
class _LeastTime:
    """The search for the least of one time of the rows that remain in a bucket.

    Attributes:
        bucket: The number of the bucket.
        column: The index column of the time.
        first: The least time of the bucket before the step (us).
        remaining: The rows among which to search.
        chunks: The chunks that were read, by number.
        found: The place of the least time so far.
    """

    bucket: int
    column: str
    first: int
    remaining: Remaining
    chunks: dict[int, Chunk]
    found: _Place = _NOWHERE
    _order: list[int] = attrs.field(init=False)
    _next: int = attrs.field(default=0, init=False)
    _share: int = attrs.field(default=SHARE, init=False)

    def __attrs_post_init__(self) -> None:
        self._order = np.argsort(self._least, kind="stable").tolist()

    @property
    def over(self) -> bool:
        """True if no other chunk can have an earlier row."""
        return self._next == len(self._order) or self._least[self._order[self._next]] >= self.found.time

    def wanted(self, storage: Storage) -> Wanted:
        """Returns the times of the chunk that is searched next. Reads the chunk if necessary."""
        number = self._order[self._next]
        if number not in self.chunks:
            self.chunks[number] = storage.chunk(self.bucket, number)
        timing = storage.state_table.timing
        return Wanted(self.chunks[number], timing, self.column, self.first, self.first, self._share)

    def search(self, wanted: Wanted) -> None:
        """Searches a chunk, of which the wanted times are sorted."""
        number, order = self._order[self._next], wanted.order
        assert order is not None
        end = self._directory.ends[number]
        hit = order.least(self.first, self.remaining.mask[end - wanted.chunk.rows : end])
        if hit is None and not order.complete and order.last < self.found.time:
            self._share = max(1, self._share // MORE)
            return
        if hit is not None:
            self.found = min(self.found, _Place(hit[0], number, hit[1]))
        self._next, self._share = self._next + 1, SHARE

    @property
    def _directory(self) -> Directory:
        assert self.remaining.content.directory is not None
        return self.remaining.content.directory

    @property
    def _least(self) -> npt.NDArray[np.int64]:
        return self._directory.least[self.column]


def earliest(storage: Storage, remaining: Mapping[int, Remaining], now: Times) -> pl.DataFrame:
    """Returns the rows with the least hold and deadlines of the remaining rows of each bucket, with column BUCKET."""
    searches = list[_LeastTime]()
    parts, buckets, others = list[tuple[Chunk, Positions]](), list[int](), list[pl.DataFrame]()
    for bucket, one in remaining.items():
        if one.content.directory is None:
            others.append(_placed(_in_all(storage, one, now), bucket))
            continue
        chunks = dict(one.content.chunks)
        searches += (
            _LeastTime(bucket, name, time, one, chunks) for name, time in storage.least[bucket].items()
        )
    _search(storage, searches)
    for bucket in dict.fromkeys(search.bucket for search in searches):
        own = [search for search in searches if search.bucket == bucket]
        found = [(own[0].chunks[chunk], places) for chunk, places in _by_chunk(each.found for each in own)]
        parts += found
        buckets += [bucket] * sum(len(places) for _, places in found)
    rows = storage.rows_of(gathered(parts)).hstack([pl.Series(BUCKET, buckets, pl.Int64)])
    return concat_nonempty(rows, *others)


def _search(storage: Storage, searches: list[_LeastTime]) -> None:
    """Searches chunk by chunk, in all buckets at once: what is not sorted yet is computed with one query."""
    while searches := [search for search in searches if not search.over]:
        wanted = [search.wanted(storage) for search in searches]
        sort_times(wanted, storage)
        for search, each in zip(searches, wanted, strict=True):
            search.search(each)


def _in_all(storage: Storage, one: Remaining, now: Times) -> pl.DataFrame:
    """Returns the earliest remaining rows of a bucket of which all rows were read."""
    content = one.content
    here, places = one.mask[content.numbers], set[int]()
    for values in storage.times_of(content.rows, now).values():
        times = np.where(here, values, NEVER)
        places |= {int(times.argmin())} if times.min(initial=NEVER) != NEVER else set()
    return content.rows[sorted(places)]


def _placed(rows: pl.DataFrame, bucket: int) -> pl.DataFrame:
    return rows.with_columns(pl.lit(bucket, pl.Int64).alias(BUCKET))


def _by_chunk(found: Iterable[_Place]) -> Iterator[tuple[int, Positions]]:
    """Yields the positions of the places, by chunk."""
    places = sorted({(each.chunk, each.position) for each in found if each.time != NEVER})
    for chunk in sorted({chunk for chunk, _ in places}):
        yield chunk, Positions(np.array([position for other, position in places if other == chunk]))
