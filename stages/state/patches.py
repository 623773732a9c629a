"""Patches: the new versions of the rows of bucket slices, written instead of their buckets.

Of the bucket in the drawing of `stages.state.slices`, a step has loaded rows 6 and 11. Its new rows are the next patch:
rows 14, 15, ..., which deletes rows 6 and 11.

Invariants:
- A row keeps its number until the bucket is rewritten, so a patch may delete by number.
- The index row of a bucket stays exact: its counts lose the rows of the slice and gain the rows of the patch, and its
  minima are the least of the remainder and the patch. Further rows of the remainder are read only to find its minima.
- A bucket is rewritten, and split, when reading its patches costs more than a rewrite: `RowCounts.worth_rewriting`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
import polars as pl

from stages.frames import concat_nonempty
from stages.state.buckets import BUCKET
from stages.state.chunks import Patch
from stages.state.index import COUNTS, SIZES, Index, Size, folded
from stages.state.lookup import Requested
from stages.state.slices import BucketSlice, placed_in
from stages.state.storage import Storage, holds_of
from stages.strategies.histogram import merge_histograms
from windowing.clocks import Times

MOST_PATCHES: Final = 16
"""A bucket is rewritten if patches have added this many chunks more than its rows need: each chunk costs a read."""

_NUMBER: Final = "__number"


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


def large(storage: Storage, buckets: Iterable[int]) -> frozenset[int]:
    """Returns the buckets that are so large that a step reads slices of them."""
    return frozenset(bucket for bucket in buckets if storage.is_large(storage.size(bucket)))


def rows_with(storage: Storage, buckets: Iterable[int], keys: pl.DataFrame) -> pl.DataFrame:
    """Reads the rows and waiting arrivals that are in these buckets and have one of these keys."""
    # Of large buckets, only rows that may have one of the keys are put together.
    buckets = list(buckets)
    large = [bucket for bucket in buckets if storage.is_searched(bucket)]
    small = sorted({*buckets} - {*large})
    requested = Requested.of(keys)
    found = storage.rows_among(large, requested)
    parts = concat_nonempty(storage.rows(small), storage.waiting(small), *found)
    matching = parts.join(keys, on=keys.columns, how="semi", nulls_equal=True)
    return storage.not_overdue(matching) if large else matching  # small buckets have no overdue rows


def write_patches(storage: Storage, index: Index, updates: Sequence[Update], now: Times) -> Index:
    """Writes a patch for each update, and returns the new index. `index` must be up to date for all other buckets."""
    updates = [update for update in updates if not update.nothing]
    if not updates:
        return index
    written = pl.concat([placed_in(update.new, update.bucket) for update in updates])
    facts, sizes, first = storage.described(written, now), dict[int, Size](), 0
    for update in updates:
        own = facts.between(first, first + len(update.new))
        sizes[update.bucket] = storage.append_patch(
            update.bucket, update.patch, now, update.old.directory, own
        )
        first += len(update.new)
    summary = _summary(storage, updates, written, sizes, now)
    holds = holds_of(written, now)
    if holds is not None:
        remaining = {update.bucket: update.old.remainder.holds for update in updates}
        holds = {bucket: merge_histograms(remaining[bucket], holds.get(bucket, {})) for bucket in remaining}
    return index.replace(sizes, summary, holds)


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
        pl.concat([update.old.remainder.index_row for update in updates]),
    ]
    return folded(pl.concat(frames, how="diagonal"))
