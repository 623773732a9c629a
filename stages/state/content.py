"""The rows of a bucket that a step has read, and what it needs to find others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
import polars as pl

from stages.state import chunks
from stages.state.directory import Directory
from stages.state.lookup import Hashes, find_each
from stages.state.row_numbers import BucketMask, FrameMask, RowNumbers

MOST_ROWS: Final = 0.5
"""The share of a bucket's rows that may be needed above which all are read at once."""


@attrs.frozen(eq=False)
class BucketContent:
    """Some or all rows of a bucket.

    Attributes:
        rows: The rows that were read, which may include deleted ones.
        numbers: The row number of each of them.
        live: A flag for each row of the whole bucket, false for deleted rows.
        base_rows: The number of base rows. Rows with this number or a greater one are from patches.
        directory: The directory of the bucket, if not all rows were read.
        chunks: The chunks that were read then, by number.
        needed: True if all rows were read because most of them are needed.
    """

    rows: pl.DataFrame
    numbers: RowNumbers
    live: BucketMask
    base_rows: int
    directory: Directory | None = None
    chunks: Mapping[int, chunks.Chunk] = attrs.field(factory=dict)
    needed: bool = False

    def __attrs_post_init__(self) -> None:
        # Several contents may share the flags of one directory.
        self.live.setflags(write=False)

    @property
    def whole(self) -> bool:
        """True if all rows of the bucket were read."""
        return len(self.numbers) == len(self.live)

    @property
    def live_rows(self) -> pl.DataFrame:
        """The rows that were read, without deleted ones."""
        live = self.live[self.numbers]
        return self.rows if live.all() else self.rows.filter(live)

    def live_positions(self) -> FrameMask:
        """Returns a mask of `rows`, true for live rows. It is a copy, which the caller may change."""
        return FrameMask(self.live[self.numbers])

    def without(self, deleted: RowNumbers) -> pl.DataFrame:
        """Returns the live rows of the bucket without the rows `deleted`. All rows must have been read."""
        assert self.whole  # so row numbers are positions
        live = self.live.copy()
        live[deleted] = False
        return self.rows.filter(live)


@attrs.frozen(eq=False)
class Search:
    """A search for the rows of a bucket whose keys have one of these hashes.

    Attributes:
        directory: The directory of the bucket; None if all of its rows must be read.
        hashes: The lower halves of the hashes, sorted and distinct; None if most rows are needed.
        held: The chunks of the bucket that have been read, by number.
    """

    directory: Directory | None
    hashes: Hashes | None
    held: Mapping[int, chunks.Chunk] = attrs.field(factory=dict)


def numbers_found(searches: Sequence[Search], requested: Hashes | None = None) -> Iterator[RowNumbers | None]:
    """Yields for each search the numbers of the live rows that may have one of its keys; None if all rows should be
    read.

    No such row is missing. Some rows may be superfluous, as different keys may have the same hash. With all hashes of
    the searches as `requested`, many buckets are searched at once, and rows may also have a key of another search.
    """
    parts = [
        (entry.index, one.hashes)
        for one in searches
        if one.directory is not None and one.hashes is not None
        for entry in one.directory.entries
    ]
    if requested is None:
        found = [index.find(hashes) for index, hashes in parts]
    else:
        found = find_each([index for index, _ in parts], [hashes for _, hashes in parts], requested)
    positions = iter(found)
    for one in searches:
        if one.directory is None or one.hashes is None:
            yield None
            continue
        numbers = one.directory.numbers_at([next(positions) for _ in one.directory.entries])
        yield None if len(numbers) > MOST_ROWS * len(one.directory.live) else numbers
