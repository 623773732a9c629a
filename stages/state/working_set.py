"""The working set of a step: the rows and arrivals of a table that the step reads and writes back.

    index:      bucket 128        bucket 129        bucket 130 (large)    due-soon buffer (bucket -1)
    store:      rows | log        rows | log        rows | patches        due-soon rows
    arrivals:   a b               c                 d
                |                 |                 |                     |
    read:       nothing: a, b     rows, log, c      slice: rows of the    all; or a slice, if it is
                are appended to   (a row is due,    keys of d; or all     large and no bucket is
                the log           c cannot wait)    rows of a due key     loaded
    written:    log               rows, no log      a patch               due-soon rows, or a patch

An arrival that matches a due-soon row is merged into it at once. A bucket is read whole, or as a slice if it is large
and its table has patches; never both. Buckets that are read whole are replaced, so all of their rows must be written
back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import attrs
import numpy as np
import polars as pl

from stages.frames import concat_nonempty, partition, repeated, size_of
from stages.state.buckets import BUCKET, inside, split_by_bucket, touched
from stages.state.due_soon import BUFFER, FROM_BYTES, MAYBE_OVERLAPS, DueSoonBuffer, divide, mark
from stages.state.index import Index, Size
from stages.state.lookup import hashes_by_bucket
from stages.state.patches import Update, large, write_patches
from stages.state.slices import BucketSlice, placed_in, read_slices
from stages.state.storage import Storage
from windowing.clocks import WATERMARK, Times
from windowing.time import MAX_TIME

_UNFLAGGED: Final = pl.Series(MAYBE_OVERLAPS, [False])

SMALL_BYTES: Final = 64_000
"""The size of a bucket's rows (bytes) up to which every arrival loads it: that costs no more than a waiting arrival."""

CROWDED: Final = 4
"""A large bucket with at most this many rows for each key of the rows placed in it is read and written whole.

That costs less than to search for the rows of a slice, and so many deleted rows would soon make a rewrite necessary.
"""

LONGEST_LOG: Final = 256
"""The number of chunks in a log from which every arrival loads the bucket; also if the log is larger than the rows."""


@attrs.frozen(eq=False, kw_only=True)
class WorkingSet:
    """The rows and arrivals that a step has loaded from a table.

    Attributes:
        loaded: The numbers of the buckets that were read whole.
        slices: The slices of large buckets.
        buffer: The due-soon buffer.
        due_soon: The slice of the due-soon buffer, if only that was read.
        rows: All rows that the step must write back, changed or not.
        incoming: The arrivals to process, including those that waited in loaded buckets.
        waiting: The other arrivals, with the column BUCKET, which will be appended to logs.
        overlapping: The keys of due-soon rows that may overlap with rows of their bucket; None if there are none.
        requested: Rows of requested keys. They stay in the table.
    """

    storage: Storage
    loaded: frozenset[int]
    slices: tuple[BucketSlice, ...]
    buffer: DueSoonBuffer
    due_soon: BucketSlice | None
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
        buffer: DueSoonBuffer,
        placed: pl.DataFrame,
        matching: pl.Series | None,
        due_soon: BucketSlice | None = None,
    ) -> WorkingSet:
        """Reads the buckets `whole`, and divides the arrivals `placed` into incoming and waiting ones.

        `placed` has the column BUCKET. `matching` is true for arrivals that match due-soon rows; None if there are no
        due-soon rows.
        """
        loaded = frozenset(whole)
        read = [*loaded, *(part.bucket for part in slices)]
        if matching is None:
            here, waiting = inside(placed, read)
        else:
            here, waiting = partition(placed, pl.Series(np.isin(placed[BUCKET].to_numpy(), read)) | matching)
        # Due-soon rows that may overlap with rows of their bucket can be merged only if a bucket was loaded.
        overlapping = buffer.overlapping_keys() if loaded else buffer.rows.clear()
        table = storage.table
        return cls(
            storage=storage,
            loaded=loaded,
            slices=slices,
            buffer=buffer,
            due_soon=due_soon,
            rows=concat_nonempty(
                storage.rows(loaded), buffer.rows[:, list(table.schema)], *(part.rows for part in slices)
            ),
            incoming=concat_nonempty(storage.waiting(loaded), here[:, list(table.incoming)]),
            waiting=waiting,
            overlapping=overlapping if len(overlapping) else None,
            requested=concat_nonempty(table.no_rows, *(part.requested for part in slices)),
        )

    @classmethod
    def everything(cls, storage: Storage) -> WorkingSet:
        """Reads all rows and all waiting arrivals of a table."""
        nothing = storage.buckets.place(storage.table.nothing_incoming)
        buffer, whole = storage.due_soon_buffer(needed=True), set(storage.sizes) - {BUFFER}
        found = cls.of(
            storage, whole, slices=(), buffer=buffer, placed=nothing, matching=buffer.matches(nothing)
        )
        rows, incoming = storage.not_overdue(found.rows), storage.not_overdue(found.incoming)
        return attrs.evolve(found, rows=rows, incoming=incoming)

    @classmethod
    def unread(cls, storage: Storage) -> WorkingSet:
        """Loads all buckets without reading them, so that all of their rows are removed."""
        table = storage.table
        return cls(
            storage=storage,
            loaded=frozenset(storage.sizes),
            slices=(),
            buffer=storage.due_soon_buffer(needed=False),
            due_soon=None,
            rows=table.no_rows,
            incoming=table.nothing_incoming,
            waiting=storage.buckets.place(table.nothing_incoming),
            overlapping=None,
            requested=table.no_rows,
        )

    def write_back(self, rows: pl.DataFrame, now: Times) -> Index:
        """Replaces the rows that were read by `rows`, appends the waiting arrivals, and returns the new index."""
        storage, index = self.storage, self.storage.index
        updates, others = self._updates(storage.buckets.place(rows))
        rewritten = {update.bucket: update for update in updates if update.must_rewrite(storage)}
        loaded = self.loaded | rewritten.keys()
        if self.due_soon is not None:
            index = self._write_due_soon(self.due_soon, others, now)
        elif loaded or len(self.buffer.rows):
            written = [placed_in(update.everything(storage), bucket) for bucket, update in rewritten.items()]
            placed = concat_nonempty(others[:, [*storage.table.schema, BUCKET]], *written)
            index = self._replace(placed, loaded, now)
        patched = [update for update in updates if update.bucket not in rewritten]
        index = write_patches(storage, index, patched, now)
        if len(self.waiting):
            index = storage.append(index, self.waiting, now)
        return index

    def _updates(self, placed: pl.DataFrame) -> tuple[list[Update], pl.DataFrame]:
        """Divides rows to write into updates of the bucket slices, and rows of other buckets."""
        if not self.slices:
            return [], placed
        sliced, others = inside(placed, [part.bucket for part in self.slices])
        new, columns = split_by_bucket(sliced), list(self.storage.table.schema)
        updates = [Update(part, new.get(part.bucket, sliced.clear())[columns]) for part in self.slices]
        return updates, others

    def _write_due_soon(self, before: BucketSlice, placed: pl.DataFrame, now: Times) -> Index:
        """Replaces the slice of the due-soon buffer. No bucket was loaded, so all rows belong to it."""
        storage, rows = self.storage.due_soon, self._flagged(placed)
        update = Update(before, rows[:, list(storage.table.schema)])
        if not update.must_rewrite(storage):
            return write_patches(storage, storage.index, [update], now)
        return self.storage.replace((), {}, update.everything(storage), now)

    def _flagged(self, due_soon: pl.DataFrame) -> pl.DataFrame:
        """Adds MAYBE_OVERLAPS to rows of the due-soon buffer, whose buckets are unchanged: flags that are set stay."""
        due_soon = due_soon.hstack([repeated(_UNFLAGGED, len(due_soon))])
        return mark(due_soon, self.buffer.overlapping_keys(), self.buffer.keys) if len(due_soon) else due_soon

    def _replace(self, placed: pl.DataFrame, loaded: Collection[int], now: Times) -> Index:
        """Replaces the loaded buckets by their rows in `placed`, and the due-soon buffer by all other rows."""
        buckets, by_bucket = self.storage.buckets, dict[int, pl.DataFrame]()
        here, due_soon = inside(placed, loaded)
        due_soon = self._flagged(due_soon)  # rows whose bucket was not read are from the buffer
        for bucket, part in split_by_bucket(here).items():
            soon, later = self._divided(part, now)
            # All rows and arrivals of this bucket have been merged, so none of them overlap.
            if len(soon):
                due_soon = pl.concat([due_soon, soon.hstack([repeated(_UNFLAGGED, len(soon))])])
            split = buckets.split(bucket, size_of(later))
            by_bucket |= {bucket: later} if split is buckets else split_by_bucket(split.place(later))
            buckets = split
        return self.storage.replace(
            loaded, by_bucket, due_soon[:, [*self.storage.table.schema, MAYBE_OVERLAPS]], now
        )

    def _divided(self, part: pl.DataFrame, now: Times) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Divides the rows of a bucket into (due-soon rows, rows that stay in the bucket)."""
        if not self.storage.table.has_due_soon_buffer or size_of(part) < FROM_BYTES:
            return part.clear(), part
        return divide(part, self.storage.state_table.deadlines(now)[WATERMARK])


def read_working_set(
    storage: Storage,
    incoming: pl.DataFrame,
    now: Times,
    *,
    also: Iterable[int] = (),
    requested_keys: pl.DataFrame | None = None,
) -> WorkingSet:
    """Reads the rows that a step needs to process the arrivals `incoming` and to move the clocks to `now`.

    `also` are further buckets to read whole, `requested_keys` further keys whose rows are only read.
    """
    if _ends_silently(storage, now) and incoming.is_empty() and not also and requested_keys is None:
        return WorkingSet.unread(storage)
    placed = storage.buckets.place(incoming)
    requested = placed.clear() if requested_keys is None else storage.buckets.place(requested_keys)
    due, unknown = {*storage.due(now)}, _holds_unknown(storage, now)
    needed = {*also, *unknown, *due, *_cannot_wait(storage, placed, now)} - {BUFFER}
    buffer = _read_due_soon(storage, placed, now, whole=bool(needed), due=due)
    if buffer.part is not None and buffer.buckets:
        # Due-soon rows return to a bucket that is loaded.
        buffer = _read_due_soon(storage, placed, now, whole=True, due=due)
    needed |= buffer.buckets
    # The buckets `also` and `unknown` are needed whole.
    sliced = large(storage, needed - {*also, *unknown})
    key_columns = [*storage.table.keys, BUCKET]
    sliced -= _crowded(storage, sliced, placed[:, key_columns], requested[:, key_columns])
    only_requested = set(touched(requested)) & set(storage.sizes) - needed
    slices = read_slices(
        storage, sliced | only_requested, arrivals=placed, requested_keys=requested, due=due, now=now
    )
    return WorkingSet.of(
        storage,
        needed - sliced,
        slices=slices,
        buffer=buffer.rows,
        placed=placed,
        matching=buffer.matching,
        due_soon=buffer.part,
    )


def _crowded(storage: Storage, buckets: Collection[int], *placed: pl.DataFrame) -> frozenset[int]:
    """Returns the buckets in which rows of so many keys are placed that few of their own rows may be left out."""
    rows = {bucket: storage.live_rows[bucket] for bucket in buckets}
    # Rows of one key count once. They are hashed only if there are enough of them.
    if not rows or CROWDED * sum(map(len, placed)) < min(rows.values()):
        return frozenset()
    keys = hashes_by_bucket(concat_nonempty(*placed), storage.table.keys)
    return frozenset(bucket for bucket in rows if CROWDED * len(keys.get(bucket, ())) >= rows[bucket])


@attrs.frozen(eq=False)
class _DueSoon:
    """The due-soon rows that a step has read.

    Attributes:
        rows: The rows, before arrivals are merged into them.
        part: The slice of the buffer, if only that was read.
        matching: A flag for each arrival: true if it matches one of the rows. None if there are no rows.
        buckets: The buckets that the step must load because of the rows.
    """

    rows: DueSoonBuffer
    part: BucketSlice | None
    matching: pl.Series | None
    buckets: frozenset[int]


def _read_due_soon(
    storage: Storage, placed: pl.DataFrame, now: Times, *, whole: bool, due: Collection[int]
) -> _DueSoon:
    """Reads the due-soon rows that are due or have the key of an arrival; if `whole`, all, unless none is needed."""
    part = None if whole else _due_soon_slice(storage, placed, now, due)
    if part is None:
        buffer = storage.due_soon_buffer(needed=whole or bool(due) or len(placed) > 0)
    else:
        buffer = DueSoonBuffer(storage.buckets.place(part.rows), storage.state_table)
    matching = buffer.matches(placed)
    for_buffer = placed.clear() if matching is None else placed.filter(matching)
    # If order counts, arrivals that already wait in the bucket of a due-soon row must be merged before newer ones.
    again = _with_waiting(storage, for_buffer) if storage.table.in_order else []
    buffer = buffer.with_arrivals(for_buffer)
    return _DueSoon(buffer, part, matching, frozenset([*again, *_overlapping_and_due(storage, buffer, now)]))


def _due_soon_slice(
    storage: Storage, placed: pl.DataFrame, now: Times, due: Collection[int]
) -> BucketSlice | None:
    """Reads the due-soon rows that are due or have the key of an arrival; None if all must be read."""
    table = storage.due_soon
    if not large(table, [BUFFER]) or now.percentiles or table.directory(BUFFER) is None:
        return None
    arrivals = placed.with_columns(pl.lit(BUFFER, pl.Int64).alias(BUCKET))
    (part,) = read_slices(
        table, [BUFFER], arrivals=arrivals, requested_keys=arrivals.clear(), due=due, now=now
    )
    return part


def _ends_silently(storage: Storage, now: Times) -> bool:
    """True if all rows are due and nothing is emitted for them."""
    return storage.table.ends_silently and now.time(WATERMARK) >= MAX_TIME


def _with_waiting(storage: Storage, placed: pl.DataFrame) -> list[int]:
    """Returns the buckets of these new arrivals in whose logs earlier arrivals wait."""
    return [bucket for bucket in touched(placed) if storage.sizes.get(bucket, Size()).log]


def _holds_unknown(storage: Storage, now: Times) -> list[int]:
    """Returns all buckets if percentile watermarks are in use for the first time: the index has no histograms of holds
    yet.
    """
    return list(storage.sizes) if now.percentiles and storage.index.holds is None else []


def _overlapping_and_due(storage: Storage, buffer: DueSoonBuffer, now: Times) -> Iterable[int]:
    """Returns the buckets of due-soon rows that are due now and may overlap with rows of their bucket."""
    if buffer.rows.is_empty():
        return ()
    return buffer.overlapping_and(storage.overdue(now))


def _cannot_wait(storage: Storage, placed: pl.DataFrame, now: Times) -> Iterable[int]:
    """Returns the buckets of arrivals that cannot wait: their time has come, or the log of the bucket must not grow."""
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
