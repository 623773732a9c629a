"""The working set of a step: the rows and arrivals of a table that it reads, and writes back.

    index:      bucket 128        bucket 129        bucket 130 (large)    buffer (bucket -1)
    store:      rows | log        rows | log        rows | patches        hot rows
    arrivals:   a b               c                 d
                |                 |                 |                     |
    read:       nothing: a, b     rows, log, c      slice: rows of the    all, if there are arrivals
                are appended to   (a row is due,    keys of d; or all     or due rows
                the log           c cannot wait)    rows of a due key
    written:    log               rows, no log      a patch               hot rows

An arrival for a hot row is merged into it at once. A bucket is read whole, or as a slice if it is large and its table
has patches; never both. Buckets that are read whole are replaced, so all of their rows must be written back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import attrs
import polars as pl

from stages.frames import concat_nonempty, partition, size_of
from stages.state.buckets import BUCKET, inside, split_by_bucket, touched
from stages.state.due_soon import FROM_BYTES, HOT, MAYBE_OVERLAPS, DueSoonBuffer, divide, mark
from stages.state.index import Index, Size
from stages.state.patches import BucketSlice, Update, large, placed_in, read_slices, write_patches
from stages.state.storage import Storage
from windowing.clocks import WATERMARK, Times

SMALL_BYTES: Final = 64_000
"""The size of a bucket's rows up to which it is read whenever an arrival is for it: that costs no more than to wait."""

LONGEST_LOG: Final = 256
"""The number of chunks in a log at which its bucket is read; it is also read when the log is larger than its rows."""


@attrs.frozen(eq=False, kw_only=True)
class WorkingSet:
    """The rows and arrivals that a step reads: whole buckets, slices of large buckets, hot rows, and new arrivals.

    `loaded` are the numbers of the whole buckets. `rows` are all rows to be written back, `incoming` the arrivals to
    process, including those that waited in loaded buckets. `waiting` are other arrivals, with the column of their
    bucket, which will be appended to logs. `overlapping` has keys of which rows may overlap; None if there are none.
    `requested` has rows that the step requested and that stay where they are.
    """

    storage: Storage
    loaded: frozenset[int]
    slices: tuple[BucketSlice, ...]
    hot: DueSoonBuffer
    rows: pl.DataFrame
    incoming: pl.DataFrame
    waiting: pl.DataFrame
    overlapping: pl.DataFrame | None
    requested: pl.DataFrame

    @classmethod
    def of(
        cls,
        storage: Storage,
        whole: Iterable[int],
        *,
        slices: tuple[BucketSlice, ...],
        hot: DueSoonBuffer,
        placed: pl.DataFrame,
        matching: pl.Series | None,
    ) -> WorkingSet:
        """Reads the buckets `whole`.

        `placed` are arrivals with the column of their bucket; `matching` is true for those that match hot rows, or None
        if there are no hot rows.
        """
        loaded = frozenset(whole)
        read = [*loaded, *(part.bucket for part in slices)]
        if matching is None:
            here, waiting = inside(placed, read)
        else:
            here, waiting = partition(placed, placed[BUCKET].is_in(read) | matching)
        # Hot rows that may overlap rows of their bucket need a merge only if the bucket was loaded.
        overlapping = hot.overlapping_keys() if loaded else hot.rows.clear()
        table = storage.table
        return cls(
            storage=storage,
            loaded=loaded,
            slices=slices,
            hot=hot,
            rows=concat_nonempty(
                storage.rows(loaded), hot.rows[list(table.schema)], *(part.rows for part in slices)
            ),
            incoming=concat_nonempty(storage.waiting(loaded), here[list(table.incoming)]),
            waiting=waiting,
            overlapping=overlapping if len(overlapping) else None,
            requested=concat_nonempty(table.no_rows, *(part.requested for part in slices)),
        )

    @classmethod
    def everything(cls, storage: Storage) -> WorkingSet:
        """Reads all rows and all waiting arrivals."""
        nothing = storage.buckets.place(storage.table.nothing_incoming)
        hot, whole = storage.hot_rows(needed=True), set(storage.sizes) - {HOT}
        return cls.of(storage, whole, slices=(), hot=hot, placed=nothing, matching=hot.matches(nothing))

    def write_back(self, rows: pl.DataFrame, now: Times) -> Index:
        """Writes rows in place of those that were read, and appends waiting arrivals; returns the index afterwards."""
        storage, index = self.storage, self.storage.index
        updates, others = self._updates(storage.buckets.place(rows))
        rewritten = {update.bucket: update for update in updates if update.must_rewrite(storage)}
        loaded = self.loaded | rewritten.keys()
        if loaded or len(self.hot.rows):
            written = [placed_in(update.everything(storage), bucket) for bucket, update in rewritten.items()]
            placed = concat_nonempty(others[[*storage.table.schema, BUCKET]], *written)
            index = self._replace(placed, loaded, now)
        patched = [update for update in updates if update.bucket not in rewritten]
        index = write_patches(storage, index, patched, now)
        if len(self.waiting):
            index = storage.append(index, self.waiting, now)
        return index

    def _updates(self, placed: pl.DataFrame) -> tuple[list[Update], pl.DataFrame]:
        """Divides rows into (updates of the slices, rows of other buckets)."""
        if not self.slices:
            return [], placed
        sliced, others = inside(placed, [part.bucket for part in self.slices])
        new, columns = split_by_bucket(sliced), list(self.storage.table.schema)
        updates = [Update(part, new.get(part.bucket, sliced.clear())[columns]) for part in self.slices]
        return updates, others

    def _replace(self, placed: pl.DataFrame, loaded: Collection[int], now: Times) -> Index:
        """Writes rows of the loaded buckets to these, and all others to the due-soon buffer."""
        buckets, by_bucket = self.storage.buckets, dict[int, pl.DataFrame]()
        here, hot = inside(placed, loaded)
        hot = hot.with_columns(pl.lit(False).alias(MAYBE_OVERLAPS))
        # Rows whose bucket was not read were hot before. Their buckets are unchanged, so what was marked stays marked.
        if len(hot):
            hot = mark(hot, self.hot.overlapping_keys(), self.hot.keys)
        for bucket, part in split_by_bucket(here).items():
            soon, later = self._divided(part, now)
            # All rows and arrivals of this bucket have been merged, so none of them overlap.
            if len(soon):
                hot = pl.concat([hot, soon.with_columns(pl.lit(False).alias(MAYBE_OVERLAPS))])
            split = buckets.split(bucket, size_of(later))
            by_bucket |= {bucket: later} if split is buckets else split_by_bucket(split.place(later))
            buckets = split
        return self.storage.replace(loaded, by_bucket, hot[[*self.storage.table.schema, MAYBE_OVERLAPS]], now)

    def _divided(self, part: pl.DataFrame, now: Times) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Divides the rows of a bucket into (hot rows, others)."""
        if not self.storage.table.has_hot_rows or size_of(part) < FROM_BYTES:
            return part.clear(), part
        return divide(part, self.storage.kept.deadlines(now)[WATERMARK])


def read_working_set(
    storage: Storage,
    incoming: pl.DataFrame,
    now: Times,
    *,
    also: Iterable[int] = (),
    requested_keys: pl.DataFrame | None = None,
) -> WorkingSet:
    """Reads the rows that a step needs which has these arrivals and moves the clocks to `now`.

    `also` are further buckets to be read whole, `requested_keys` further keys whose rows are only read.
    """
    placed = storage.buckets.place(incoming)
    requested = placed.clear() if requested_keys is None else storage.buckets.place(requested_keys)
    due, unknown = storage.index.due(now), _holds_unknown(storage, now)
    hot = storage.hot_rows(needed=bool(due or unknown) or len(placed) > 0)
    matching = hot.matches(placed)
    for_hot = placed.clear() if matching is None else placed.filter(matching)
    # Arrivals that wait in the bucket of a hot row may be part of the row once it grows, and must be merged first.
    again = _with_waiting(storage, for_hot) if storage.table.in_order else []
    hot = hot.with_arrivals(for_hot)
    needed = {
        *also,
        *unknown,
        *due,
        *again,
        *_cannot_wait(storage, placed, now),
        *_overlapping_and_due(storage, hot, now),
    }
    # Of `also` and `unknown` all rows are needed, so no slice will do. The buffer is read already.
    sliced = large(storage, needed - {*also, *unknown, HOT})
    only_requested = set(touched(requested)) & set(storage.sizes) - needed
    slices = read_slices(
        storage, sliced | only_requested, arrivals=placed, requested_keys=requested, due=due, now=now
    )
    whole = needed - {*sliced, HOT}
    return WorkingSet.of(storage, whole, slices=slices, hot=hot, placed=placed, matching=matching)


def _with_waiting(storage: Storage, placed: pl.DataFrame) -> list[int]:
    """The buckets of these arrivals in which other arrivals wait."""
    return [bucket for bucket in touched(placed) if storage.sizes.get(bucket, Size()).log]


def _holds_unknown(storage: Storage, now: Times) -> list[int]:
    """All buckets if percentiles are in use for the first time, since the index lacks histograms of holds then."""
    return list(storage.sizes) if now.percentiles and storage.index.holds is None else []


def _overlapping_and_due(storage: Storage, hot: DueSoonBuffer, now: Times) -> Iterable[int]:
    """The buckets of hot rows that are due and may overlap with rows of their bucket."""
    if hot.rows.is_empty():
        return ()
    return hot.overlapping_and(storage.overdue(now))


def _cannot_wait(storage: Storage, placed: pl.DataFrame, now: Times) -> Iterable[int]:
    """The buckets of arrivals that cannot wait, and those whose log may not grow."""
    buckets = touched(placed)
    waits_until = storage.table.may_wait_until(percentiles=bool(now.percentiles))
    if waits_until is None:
        return buckets
    may_grow = {bucket for bucket in buckets if _may_grow(storage.sizes.get(bucket, Size()))}
    if not may_grow:
        return buckets
    over = [until <= now.time(clock) for clock, until in waits_until.items()]
    due = touched(placed.filter(pl.any_horizontal(over)))
    return [*due, *(bucket for bucket in buckets if bucket not in may_grow)]


def _may_grow(size: Size) -> bool:
    """True if more arrivals may be appended to the log of a bucket."""
    return size.bytes > SMALL_BYTES and size.log < size.bytes and size.chunks - size.base < LONGEST_LOG
