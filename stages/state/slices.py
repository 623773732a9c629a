"""Bucket slices: the rows of large buckets that a step reads, those of all buckets at once.

The row numbers of a bucket with two patches; `x` is a deleted row:

    base rows                      patch            patch
    0 1 x 3 4 x 6 7 8 9            10 11 x          13
                                   deletes 2, 5     deletes 12

    slice        6, 11             live rows of keys that arrivals have, or of keys with a row that is due
    requested    3                 live rows of further keys that the step requested: read, not written back
    remainder    0 1 4 7 8 ...     the other live rows: read only if they are in a chunk with rows of the slice

Random keys are in all buckets, a few of them in each. So a query is made for the rows of all buckets, not for each:
only the directories are searched bucket by bucket. The step writes back new rows for the slices, as
`stages.state.patches` explains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.frames import concat_nonempty, repeated, rows_at
from stages.state.buckets import BUCKET
from stages.state.content import BucketContent, Search
from stages.state.directory import NEVER, Directory
from stages.state.earliest import DueRows, Remaining, due_rows, earliest
from stages.state.index import COUNTS, SIZES, Size
from stages.state.lookup import Hashes, hashes_by_bucket
from stages.state.row_numbers import BucketMask, FrameMask, Positions, RowNumbers
from stages.state.storage import Storage, holds_of
from stages.strategies.histogram import Histogram
from windowing.clocks import Times

MOST_DELETED: Final = 0.5
"""A bucket is rewritten if it has more deleted rows than its base rows times this."""
MOST_ROWS: Final = 8.0
"""A bucket is rewritten if it has more rows, deleted ones included, than its base rows times this."""

_POSITION: Final = "__place"
_NO_HASHES: Final = np.empty(0, np.uint32)
_NO_POSITIONS: Final = Positions(np.empty(0, np.intp))


@attrs.frozen(kw_only=True)
class RowCounts:
    """The numbers of rows of a bucket: `base` without patches, `total` with patches, and `deleted` ones among both."""

    base: int
    total: int
    deleted: int

    @classmethod
    def of(cls, content: BucketContent) -> RowCounts:
        return cls._of(content.base_rows, content.live)

    @classmethod
    def described(cls, directory: Directory) -> RowCounts:
        return cls._of(directory.base_rows, directory.live)

    @classmethod
    def _of(cls, base: int, live: BucketMask) -> RowCounts:
        return cls(base=base, total=len(live), deleted=len(live) - int(np.count_nonzero(live)))

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
class _Chosen:
    """The rows of a bucket that are in its slice, by their positions in `content`, and the requested ones."""

    content: BucketContent
    positions: Positions
    requested: Positions

    @cached_property
    def rows(self) -> pl.DataFrame:
        rows = self.content.rows
        return rows if len(self.positions) == len(rows) else rows_at(rows, self.positions)

    @property
    def numbers(self) -> RowNumbers:
        return RowNumbers(self.content.numbers[self.positions])

    @property
    def all(self) -> bool:
        """True if these are known to be all rows of the bucket that are not deleted."""
        return self.content.whole and len(self.positions) == np.count_nonzero(self.content.live)

    @classmethod
    def all_live(cls, content: BucketContent) -> _Chosen:
        """Chooses all rows that were read and are not deleted."""
        return cls(content, Positions(np.flatnonzero(content.live_positions())), _NO_POSITIONS)


@attrs.frozen(eq=False)
class _Slicer:
    """The reader of the slices of a step, which moves the clocks to `now`.

    Attributes:
        storage: The table.
        now: The clocks after the step.
        arrivals: The keys of arrivals, with the column BUCKET.
        requested: Further keys whose rows are only read, with the column BUCKET.
        due: The buckets in which a row is due, according to the index.
    """

    storage: Storage
    now: Times
    arrivals: pl.DataFrame
    requested: pl.DataFrame
    due: Collection[int]

    def slices(self, buckets: Sequence[int]) -> Iterator[BucketSlice]:
        """Reads a slice of each of these buckets."""
        chosen = self._chosen(self._contents(buckets))
        index_rows = self._index_rows({bucket: one for bucket, one in chosen.items() if not one.all})
        nothing = self.storage.index.buckets.clear()
        return (self._slice(bucket, one, index_rows.get(bucket, nothing)) for bucket, one in chosen.items())

    def _slice(self, bucket: int, chosen: _Chosen, index_row: pl.DataFrame) -> BucketSlice:
        content, remaining = chosen.content, chosen.content.live_positions()
        remaining[chosen.positions] = False
        counts = RowCounts.of(content)
        grown = counts.after(written=self._arriving.get(bucket, 0), deleted=len(chosen.positions))
        return BucketSlice(
            bucket=bucket,
            rows=chosen.rows,
            numbers=chosen.numbers,
            requested=rows_at(content.rows, chosen.requested),
            counts=counts,
            remainder=Remainder(
                index_row=index_row,
                holds=self._holds(bucket, content, remaining),
                # The rows are kept only if a rewrite is likely. Otherwise a rewrite reads the bucket again.
                rows=content.rows.filter(remaining) if grown.worth_rewriting and content.whole else None,
            ),
            directory=content.directory,
        )

    @cached_property
    def _arriving(self) -> dict[int, int]:
        """The number of arrivals of each bucket."""
        buckets, counts = np.unique(self.arrivals[BUCKET].to_numpy(), return_counts=True)
        return dict(zip(buckets.tolist(), counts.tolist(), strict=True))

    @cached_property
    def _overdue(self) -> pl.Expr:
        return self.storage.overdue(self.now).fill_null(False)

    def _contents(self, buckets: Sequence[int]) -> dict[int, BucketContent]:
        """Reads the rows of the buckets that are needed, and perhaps others."""
        storage = self.storage
        known = {each: None if self.now.percentiles else storage.directory(each) for each in buckets}
        found = {bucket: each for bucket, each in known.items() if each is not None and bucket in self.due}
        due = due_rows(storage, found, self.now)
        hashes = hashes_by_bucket(concat_nonempty(self.arrivals, self.requested), storage.table.keys)
        return storage.contents_with(
            {
                bucket: _search(directory, hashes.get(bucket, _NO_HASHES), due.get(bucket))
                for bucket, directory in known.items()
            }
        )

    def _chosen(self, contents: Mapping[int, BucketContent]) -> dict[int, _Chosen]:
        """Chooses the rows of each slice, and the rows that are only read."""
        only_read = {*self.requested[BUCKET]}
        mixed = {
            bucket: content
            for bucket, content in contents.items()
            if bucket in only_read or (content.whole and not content.needed)
        }
        matching, chosen = self._matching(mixed), dict[int, _Chosen]()
        for bucket, content in contents.items():
            if bucket not in mixed:  # most rows are needed, or each may have one of the keys of the slice
                chosen[bucket] = _Chosen.all_live(content)
                continue
            positions, requested = matching[bucket]
            deleted = RowCounts.of(content).after(written=0, deleted=len(positions))
            if content.whole and deleted.worth_rewriting:
                # The slice becomes all live rows. Requested rows are among them, and must not be returned twice.
                chosen[bucket] = _Chosen.all_live(content)
            else:
                chosen[bucket] = _Chosen(content, positions, requested)
        return chosen

    def _matching(self, contents: Mapping[int, BucketContent]) -> dict[int, tuple[Positions, Positions]]:
        """Returns, for each bucket, the positions of (live rows whose key has an arrival or a due row, other live rows
        of requested keys).
        """
        if not contents:
            return {}
        names = list(self.storage.table.keys)
        live = {bucket: content.live_positions() for bucket, content in contents.items()}
        # If one row of a key is due, the step needs all rows of the key.
        due_keys = (
            placed_in(content.rows.filter(self._overdue, pl.lit(pl.Series(live[bucket])))[:, names], bucket)
            for bucket, content in contents.items()
            if bucket in self.due
        )
        keys = concat_nonempty(self.arrivals, *due_keys)
        placed = pl.concat([placed_in(one.rows[:, names], bucket) for bucket, one in contents.items()])
        numbered = placed.with_row_index(_POSITION).filter(np.concatenate([*live.values()]))
        on: dict[str, Any] = {"on": [*names, BUCKET], "nulls_equal": True, "maintain_order": "left"}
        mine = numbered.join(keys, how="semi", **on)[_POSITION].to_numpy()
        others = np.arange(0)
        if len(self.requested):
            found = numbered.join(self.requested, how="semi", **on)[_POSITION].to_numpy()
            others = np.setdiff1d(found, mine, assume_unique=True)
        lengths = [len(one.rows) for one in contents.values()]
        both = zip(_divided(mine, lengths), _divided(others, lengths), strict=True)
        return dict(zip(contents, both, strict=True))

    def _index_rows(self, chosen: Mapping[int, _Chosen]) -> dict[int, pl.DataFrame]:
        """Returns, for each bucket, the least hold and deadlines of the rows that are not in its slice: an index row,
        or an empty frame if there are no such rows.
        """
        if not chosen:
            return {}
        storage, buckets = self.storage, list(chosen)
        known = storage.index.buckets.drop(*SIZES, *COUNTS)
        places = dict(zip(known[BUCKET].to_list(), range(len(known)), strict=True))
        before = known[[places[bucket] for bucket in buckets]]
        rows = pl.concat([one.rows for one in chosen.values()])
        lengths = [len(one.rows) for one in chosen.values()]
        same = np.ones(len(buckets), np.bool_)
        # The index is exact. If no row of the slice has one of its minima, the remainder has all of them.
        for name, times in storage.times_of(rows, self.now).items():
            least = _least(times, lengths)
            same &= (least == NEVER) | (least > before[name].fill_null(NEVER).to_numpy())
        others = [bucket for bucket, unchanged in zip(buckets, same, strict=True) if not unchanged]
        changed = known.clear()
        if others:
            remaining = {bucket: _remaining(chosen[bucket]) for bucket in others}
            nothing = dict.fromkeys(others, Size())
            changed = storage.summary(earliest(storage, remaining, self.now), nothing, self.now)
            changed = changed.drop(*SIZES, *COUNTS)
        rows_of = pl.concat([before.filter(same), changed])
        found = dict(zip(rows_of[BUCKET].to_list(), range(len(rows_of)), strict=True))
        return {bucket: rows_of[(place := found.get(bucket, len(rows_of))) : place + 1] for bucket in buckets}

    def _holds(self, bucket: int, content: BucketContent, remaining: FrameMask) -> Histogram:
        if not self.now.percentiles:
            return {}
        held = holds_of(placed_in(content.rows.filter(remaining), bucket), self.now)
        return (held or {}).get(bucket, {})


def _search(directory: Directory | None, hashes: Hashes, due: DueRows | None) -> Search:
    """Returns the search for the rows whose keys have one of these hashes, or a due row."""
    if directory is None or due is None:
        return Search(directory, hashes)
    counts = RowCounts.described(directory)
    if counts.after(written=0, deleted=len(due.numbers)).worth_rewriting:
        # The bucket will be rewritten, so the other rows of the keys need not be found.
        return Search(directory, None)
    return Search(directory, np.union1d(hashes, directory.hashes_at(due.numbers)), due.chunks)


def _remaining(chosen: _Chosen) -> Remaining:
    """Returns the live rows of a bucket that are not in its slice."""
    remaining = chosen.content.live.copy()
    remaining[chosen.numbers] = False
    return Remaining(chosen.content, BucketMask(remaining))


def _least(times: npt.NDArray[np.int64], lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    """Returns the least time of each bucket, whose rows are adjacent; NEVER for a bucket without rows."""
    counts = np.array(lengths)
    least = np.full(len(counts), NEVER, np.int64)
    some = np.flatnonzero(counts)
    if len(some):
        least[some] = np.minimum.reduceat(times, (np.cumsum(counts) - counts)[some])
    return least


def _divided(numbers: npt.NDArray[Any], lengths: Sequence[int]) -> Iterator[Positions]:
    """Divides ascending numbers of rows by bucket, and yields for each bucket the positions among its rows."""
    ends = np.cumsum(lengths)
    parts = np.split(numbers.astype(np.intp), np.searchsorted(numbers, ends)[:-1])
    for part, end, length in zip(parts, ends, lengths, strict=True):
        yield Positions(part - (int(end) - length))


def placed_in(rows: pl.DataFrame, bucket: int) -> pl.DataFrame:
    """Adds the column BUCKET to rows: the number of their bucket, which is the same for all."""
    return rows.hstack([repeated(pl.Series(BUCKET, [bucket]), len(rows))])


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
    slicer = _Slicer(storage, now, arrivals[:, columns], requested_keys[:, columns], due)
    return tuple(slicer.slices(sorted(buckets)))
