"""Bucket slices and patches: a step reads some rows of a large bucket, and writes their new versions as a patch.

The row numbers of a bucket with two patches; `x` is a deleted row:

    base rows                      patch            patch
    0 1 x 3 4 x 6 7 8 9            10 11 x          13
                                   deletes 2, 5     deletes 12

    slice        6, 11             live rows of keys that arrivals have, or of keys with a row that is due
    requested    3                 live rows of further keys that the step requested: read, not written back
    remainder    0 1 4 7 8 ...     the other live rows: read only if they are in a chunk with rows of the slice

The step writes back new rows for the slice. They are the next patch: rows 14, 15, ..., which deletes rows 6 and 11.

Invariants:
- A row keeps its number until the bucket is rewritten, so a patch may delete by number.
- The index row of a bucket stays exact: its counts lose the rows of the slice and gain the rows of the patch, and its
  minima are the least of the remainder and the patch. Further rows of the remainder are read only to find its minima.
- A bucket is rewritten, and split, when reading its patches costs more than a rewrite: `RowCounts.worth_rewriting`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np
import polars as pl

from stages.frames import concat_nonempty, rows_at
from stages.state.buckets import BUCKET, split_by_bucket
from stages.state.chunks import Patch
from stages.state.directory import NEVER, Directory
from stages.state.index import COUNTS, SIZES, Index, Size, folded
from stages.state.lookup import Requested
from stages.state.row_numbers import FrameMask, Positions, RowNumbers
from stages.state.storage import BucketContent, Storage, holds_of
from stages.strategies.histogram import Histogram, merge_histograms
from windowing.clocks import Times

MOST_PATCHES: Final = 16
"""A bucket is rewritten if patches have added this many chunks more than its rows need: each chunk costs a read."""

MOST_DELETED: Final = 0.5
"""A bucket is rewritten if it has more deleted rows than its base rows times this."""
MOST_ROWS: Final = 8.0
"""A bucket is rewritten if it has more rows, deleted ones included, than its base rows times this."""

SEARCHED_BYTES: Final = 64_000
"""The size of a bucket in the store (bytes) from which rows with some keys are found by their hashes."""

_NUMBER: Final = "__number"
_POSITION: Final = "__place"


@attrs.frozen(kw_only=True)
class RowCounts:
    """The numbers of rows of a bucket: `base` without patches, `total` with patches, and `deleted` ones among both."""

    base: int
    total: int
    deleted: int

    @classmethod
    def of(cls, content: BucketContent) -> RowCounts:
        total = len(content.live)
        return cls(base=content.base_rows, total=total, deleted=total - int(np.count_nonzero(content.live)))

    @property
    def live(self) -> int:
        return self.total - self.deleted

    def after(self, *, written: int, deleted: int) -> RowCounts:
        """Returns the counts after a patch with `written` rows that deletes `deleted` rows."""
        return attrs.evolve(self, total=self.total + written, deleted=self.deleted + deleted)

    @property
    def worth_rewriting(self) -> bool:
        """True if the bucket should be rewritten, because it has too many deleted rows or too many rows in patches."""
        return self.deleted > MOST_DELETED * self.base or self.total > MOST_ROWS * self.base


@attrs.frozen(eq=False, kw_only=True)
class Remainder:
    """The live rows of a bucket that are not in a slice, as summarized for the index.

    Attributes:
        index_row: The minima of the rows as index columns: the least hold with its owner, and the least deadlines.
        holds: The histogram of their holds; empty if no percentile watermark is in use.
        rows: The rows themselves, if all were read and the bucket may need a rewrite; otherwise None.
    """

    index_row: pl.DataFrame
    holds: Histogram
    rows: pl.DataFrame | None


@attrs.frozen(eq=False, kw_only=True)
class BucketSlice:
    """A bucket slice: the live rows of one bucket that a step has loaded, to be replaced by its output.

    Attributes:
        bucket: The number of the bucket.
        rows: The rows of the slice.
        numbers: The row numbers of the slice.
        requested: Further rows that the step only reads. They stay in the bucket.
        counts: The row counts of the bucket before the step.
        remainder: The other live rows.
        directory: The directory of the bucket, if it was read.
    """

    bucket: int
    rows: pl.DataFrame
    numbers: RowNumbers
    requested: pl.DataFrame
    counts: RowCounts
    remainder: Remainder
    directory: Directory | None

    @property
    def all(self) -> bool:
        """True if the slice has all rows of the bucket that are not deleted."""
        return len(self.rows) == self.counts.live


@attrs.frozen(eq=False)
class Update:
    """The replacement of a bucket slice by new rows."""

    old: BucketSlice
    new: pl.DataFrame

    @property
    def bucket(self) -> int:
        return self.old.bucket

    @property
    def nothing(self) -> bool:
        """True if the update does not change the bucket."""
        return self.old.rows.is_empty() and self.new.is_empty()

    def must_rewrite(self, storage: Storage) -> bool:
        """True if the bucket must be rewritten instead of patched."""
        if self.nothing:
            return False
        size = storage.size(self.bucket)
        counts = self.old.counts.after(written=len(self.new), deleted=len(self.old.rows))
        # A rewrite saves only the chunks beyond those that the patched rows need anyway.
        needed = size.base * size.log // max(1, size.bytes)
        return self.old.all or counts.worth_rewriting or size.chunks - size.base - needed >= MOST_PATCHES

    def everything(self, storage: Storage) -> pl.DataFrame:
        """Returns all live rows of the bucket after the update. Reads the bucket if necessary."""
        if self.old.all:
            return self.new
        remainder = self.old.remainder.rows
        if remainder is None:
            remainder = storage.content(self.bucket).without(self.old.numbers)
        return pl.concat([remainder, self.new])

    @property
    def patch(self) -> Patch:
        """The patch that adds the new rows and deletes the old ones."""
        return Patch(self.new, pl.Series(_NUMBER, self.old.numbers, dtype=pl.UInt32))


@attrs.frozen(eq=False)
class _Wanted:
    """The description of the rows of a bucket that a step needs.

    `keys` are the keys of arrivals, `requested` further keys whose rows are only read. `due` is an expression, true
    for rows that are due; None if, according to the index, no row of the bucket is due.
    """

    keys: pl.DataFrame
    requested: pl.DataFrame
    due: pl.Expr | None

    @property
    def all_keys(self) -> pl.DataFrame:
        return concat_nonempty(self.keys, self.requested)


@attrs.frozen(eq=False)
class _Slicer:
    """The reader of a bucket slice, the rows that a step needs of one large bucket. The step moves clocks to `now`."""

    storage: Storage
    bucket: int
    wanted: _Wanted
    now: Times

    def slice(self) -> BucketSlice:
        """Reads the slice, and further chunks of the bucket until the minima of the remaining rows are known."""
        storage, bucket, wanted = self.storage, self.bucket, self.wanted
        everything = wanted.due is not None or bool(self.now.percentiles)
        content = (
            storage.content(bucket)
            if everything
            else storage.content_with(bucket, Requested.of(wanted.all_keys))
        )
        positions, requested = self._positions(content)
        counts, remaining = RowCounts.of(content), content.live_positions()
        if content.whole and counts.after(written=0, deleted=len(positions)).worth_rewriting:
            # The slice becomes all live rows. Requested rows are among them, and must not be returned twice.
            positions, requested = Positions(np.flatnonzero(remaining)), Positions(requested[:0])
        remaining[positions] = False
        rows, numbers = rows_at(content.rows, positions), RowNumbers(content.numbers[positions])
        grown = counts.after(written=len(wanted.keys), deleted=len(positions))
        return BucketSlice(
            bucket=bucket,
            rows=rows,
            numbers=numbers,
            requested=rows_at(content.rows, requested),
            counts=counts,
            remainder=Remainder(
                index_row=self._index_row(content, rows, numbers),
                holds=self._holds(content, remaining),
                # The rows are kept only if a rewrite is likely. Otherwise a rewrite reads the bucket again.
                rows=content.rows.filter(remaining) if grown.worth_rewriting and content.whole else None,
            ),
            directory=content.directory,
        )

    def _positions(self, content: BucketContent) -> tuple[Positions, Positions]:
        """Returns the positions of (live rows whose key has an arrival or a due row, other live rows of requested
        keys).
        """
        live, keys, requested = content.live_positions(), self.wanted.keys, self.wanted.requested
        if self.wanted.due is not None:
            # If one row of a key is due, the step needs all rows of the key.
            over = content.rows.filter(self.wanted.due.fill_null(False), pl.lit(pl.Series(live)))
            keys = pl.concat([keys, over.select(keys.columns)])
        numbered = content.rows.select(keys.columns).with_row_index(_POSITION)
        on: dict[str, Any] = {"on": keys.columns, "nulls_equal": True, "maintain_order": "left"}
        found = numbered.join(pl.concat([keys, requested]), how="semi", **on)
        found = found.filter(live[found[_POSITION].to_numpy()])
        if requested.is_empty():
            return Positions(found[_POSITION].to_numpy()), Positions(np.arange(0))
        mine, others = found.join(keys, how="semi", **on), found.join(keys, how="anti", **on)
        return Positions(mine[_POSITION].to_numpy()), Positions(others[_POSITION].to_numpy())

    def _index_row(self, content: BucketContent, loaded: pl.DataFrame, numbers: RowNumbers) -> pl.DataFrame:
        """Returns the least hold and deadlines of the remaining rows, as an index row.

        `loaded` are the rows of the slice, and `numbers` their row numbers.
        """
        storage, bucket = self.storage, self.bucket
        times = storage.least_times(self.now)
        known = storage.index.buckets.filter(pl.col(BUCKET) == bucket).drop(*SIZES, *COUNTS)
        before = known.row(0, named=True)
        first = loaded.select(time.min().alias(name) for name, time in times.items()).row(0, named=True)
        # The index is exact. If no row of the slice has one of its minima, the remainder has all of them.
        if all(time is None or time > before[name] for name, time in first.items()):
            return known
        remaining = content.live.copy()
        remaining[numbers] = False
        # The last one has all rows of the bucket.
        return next(
            found
            for read in storage.with_earliest(bucket, content)
            if _is_least(found := self._least(read.rows, FrameMask(remaining[read.numbers])), read.others)
        )

    def _least(self, rows: pl.DataFrame, among: FrameMask) -> pl.DataFrame:
        """Returns the least hold and deadlines of some rows, as an index row."""
        times = self.storage.least_times(self.now)
        flag = pl.lit(pl.Series(among))
        places = rows.select(pl.when(flag).then(time).arg_min().alias(name) for name, time in times.items())
        least = rows[sorted({place for place in places.row(0) if place is not None})]
        found = self.storage.summary(placed_in(least, self.bucket), {self.bucket: Size()}, self.now)
        return found.drop(*SIZES, *COUNTS)

    def _holds(self, content: BucketContent, remaining: FrameMask) -> Histogram:
        if not self.now.percentiles:
            return {}
        held = holds_of(placed_in(content.rows.filter(remaining), self.bucket), self.now)
        return (held or {}).get(self.bucket, {})


def _is_least(found: pl.DataFrame, others: Mapping[str, int]) -> bool:
    """True if each minimum of the index row `found` is at most the time in `others` for the same index column."""
    here = found.row(0, named=True) if len(found) else dict.fromkeys(others)
    return all(
        least == NEVER or ((time := here[name]) is not None and time <= least)
        for name, least in others.items()
    )


def large(storage: Storage, buckets: Iterable[int]) -> frozenset[int]:
    """Returns the buckets that are so large that a step reads slices of them."""
    return frozenset(bucket for bucket in buckets if storage.is_large(storage.size(bucket)))


def read_slices(
    storage: Storage,
    buckets: Collection[int],
    *,
    arrivals: pl.DataFrame,
    requested_keys: pl.DataFrame,
    due: Collection[int],
    now: Times,
) -> tuple[BucketSlice, ...]:
    """Reads a slice of each of these buckets.

    `arrivals` and `requested_keys` have the column BUCKET. `due` are the buckets in which a row is due at `now`.
    """
    if not buckets:
        return ()
    columns = [*storage.table.keys, BUCKET]
    reached, requested = split_by_bucket(arrivals[columns]), split_by_bucket(requested_keys[columns])
    nothing, overdue = requested_keys[columns].clear(), storage.overdue(now)
    return tuple(
        _Slicer(
            storage,
            bucket,
            _Wanted(
                reached.get(bucket, nothing).drop(BUCKET),
                requested.get(bucket, nothing).drop(BUCKET),
                overdue if bucket in due else None,
            ),
            now,
        ).slice()
        for bucket in sorted(buckets)
    )


def rows_with(storage: Storage, buckets: Iterable[int], keys: pl.DataFrame) -> pl.DataFrame:
    """Reads the rows and waiting arrivals that are in these buckets and have one of these keys."""
    # Of large buckets, only rows that may have one of the keys are put together.
    buckets = list(buckets)
    large = [bucket for bucket in buckets if storage.size(bucket).total >= SEARCHED_BYTES]
    small = sorted({*buckets} - {*large})
    requested = Requested.of(keys)
    found = [storage.rows_with(bucket, requested) for bucket in large]
    parts = concat_nonempty(storage.rows(small), storage.waiting(small), *found)
    return parts.join(keys, on=keys.columns, how="semi", nulls_equal=True)


def write_patches(storage: Storage, index: Index, updates: Sequence[Update], now: Times) -> Index:
    """Writes a patch for each update, and returns the new index. `index` must be up to date for all other buckets."""
    updates = [update for update in updates if not update.nothing]
    if not updates:
        return index
    sizes = {
        update.bucket: storage.append_patch(update.bucket, update.patch, now, update.old.directory)
        for update in updates
    }
    written = pl.concat([placed_in(update.new, update.bucket) for update in updates])
    summary = _summary(storage, updates, written, sizes, now)
    holds = holds_of(written, now)
    if holds is not None:
        remaining = {update.bucket: update.old.remainder.holds for update in updates}
        holds = {bucket: merge_histograms(remaining[bucket], holds.get(bucket, {})) for bucket in remaining}
    return index.replace(sizes, summary, holds)


def placed_in(rows: pl.DataFrame, bucket: int) -> pl.DataFrame:
    """Adds the column BUCKET to rows: the number of their bucket, which is the same for all."""
    return rows.with_columns(pl.lit(bucket, pl.Int64).alias(BUCKET))


def _summary(
    storage: Storage,
    updates: Sequence[Update],
    written: pl.DataFrame,
    sizes: Mapping[int, Size],
    now: Times,
) -> pl.DataFrame:
    """Computes the index rows of the updated buckets; `written` are the new rows, `sizes` the sizes of the patches."""
    nothing = dict.fromkeys(sizes, Size())
    deleted = pl.concat([placed_in(update.old.rows, update.bucket) for update in updates])
    before = storage.index.buckets.filter(pl.col(BUCKET).is_in(list(sizes)))
    added = [(bucket, *attrs.astuple(size)) for bucket, size in sizes.items()]
    # Sizes and counts are sums: before + patch - deleted rows + written rows. Only the last two frames have the
    # columns of minima, so these are computed from the rows that were written and the remainder.
    frames = [
        before.select(BUCKET, *SIZES, *COUNTS),
        pl.DataFrame(added, schema=[BUCKET, *SIZES], orient="row"),
        storage.summary(deleted, nothing, now).select(BUCKET, -pl.col(COUNTS)),
        storage.summary(written, nothing, now).drop(SIZES),
        *(update.old.remainder.index_row for update in updates),
    ]
    return folded(pl.concat(frames, how="diagonal"))
