"""The buckets of a table in the store: reads, replaces and appends to them, and keeps the index exact."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np
import polars as pl

from stages.frames import concat_nonempty
from stages.operator import HOLD, OUTSTANDING_HOLD
from stages.state import chunks, directory
from stages.state.buckets import BUCKET, TIMES, Buckets, split_by_bucket
from stages.state.directory import Directory
from stages.state.due_soon import BUFFER, MAYBE_OVERLAPS, DueSoonBuffer
from stages.state.index import DEADLINE, Index, Size, histograms
from stages.state.row_numbers import BucketMask, FrameMask, RowNumbers
from stages.state.store import StateStore
from stages.state.summary import summarize
from stages.state_tables import BucketTable, StateTable
from stages.strategies.histogram import Histogram
from windowing.clocks import Times

LARGE_BYTES: Final = 250_000
"""The size of a bucket's base rows in the store (bytes) from which a step reads slices and writes patches.

A smaller bucket is read and written whole, which is faster.
"""


@attrs.frozen(eq=False)
class BucketContent:
    """The rows of some or all chunks of a bucket.

    Attributes:
        rows: The rows of the chunks that were read, deleted rows included.
        numbers: The row number of each of them.
        live: A flag for each row of the whole bucket, false for deleted rows.
        base_rows: The number of base rows. Rows with this number or a greater one are from patches.
        others: A lower bound, by index column, of the least time among the rows that were not read.
    """

    rows: pl.DataFrame
    numbers: RowNumbers
    live: BucketMask
    base_rows: int
    others: Mapping[str, int] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        # Several contents may share the flags of one directory.
        self.live.setflags(write=False)

    @property
    def whole(self) -> bool:
        """True if all chunks of the bucket were read."""
        return len(self.numbers) == len(self.live)

    @property
    def live_rows(self) -> pl.DataFrame:
        """The rows that were read, without deleted ones."""
        return self.rows.filter(self.live[self.numbers])

    def live_positions(self) -> FrameMask:
        """Returns a mask of `rows`, true for live rows. It is a copy, which the caller may change."""
        return FrameMask(self.live[self.numbers])

    def without(self, deleted: RowNumbers) -> pl.DataFrame:
        """Returns the live rows of the bucket without the rows `deleted`. All chunks must have been read."""
        assert self.whole  # so row numbers are positions
        live = self.live.copy()
        live[deleted] = False
        return self.rows.filter(live)


@attrs.frozen(slots=False)
class Storage:
    """Access to the rows and waiting arrivals of a table in the store. `index` is that of the previous step."""

    stage: str
    state_table: StateTable[BucketTable]
    store: StateStore
    index: Index

    @property
    def table(self) -> BucketTable:
        """The description of the table: its kind, columns and keys."""
        return self.state_table.table

    @cached_property
    def sizes(self) -> dict[int, Size]:
        """The sizes of the existing buckets by number."""
        return self.index.sizes()

    @cached_property
    def buckets(self) -> Buckets:
        """The assignment of rows to the existing buckets of the table."""
        existing = tuple(bucket for bucket in self.sizes if bucket != BUFFER)
        return Buckets(self.table.keys, self.table.spread, existing)

    def between(self, first: int, last: int) -> list[int]:
        """Returns the buckets that may have rows with times from `first` to `last` (us, inclusive).

        These are all buckets if the table is not spread by time.
        """
        turns = self.buckets.turns(first, last)
        return [bucket for bucket in self.buckets.existing if turns is None or bucket % TIMES in turns]

    def rows(self, buckets: Iterable[int]) -> pl.DataFrame:
        """Reads the live rows of these buckets."""
        return concat_nonempty(
            self.table.no_rows, *(frame for bucket in sorted(buckets) for frame in self._rows(bucket))
        )

    def content(self, bucket: int) -> BucketContent:
        """Reads all rows of a bucket, including the rows that its patches have deleted."""
        size = self.size(bucket)
        found = chunks.read(self.store, self.stage, bucket, range(size.chunks))
        rows = self._rows_of(found)
        # A row number is a position among the rows of all chunks, in the order of chunks.
        live = np.ones(len(rows), dtype=np.bool_)
        for chunk in found:
            if chunk.deleted is not None:
                live[chunk.deleted.to_numpy()] = False
        base_rows = sum(chunk.rows for chunk in found[: size.base])
        return BucketContent(rows, RowNumbers(np.arange(len(rows))), BucketMask(live), base_rows)

    def contents_with(self, bucket: int, keys: pl.DataFrame) -> Iterator[BucketContent]:
        """Reads more and more of a bucket. Each content has all live rows with one of these keys.

        The first content has as few chunks as possible. The second also has the chunks with the least times, the last
        one all chunks. Without a directory, or if most chunks are needed, only the last one is read.
        """
        known = Directory.read(self.store, self.stage, bucket, self.size(bucket))
        if known is not None and (numbers := known.chunks_with(keys)) is not None:
            yield self._some(bucket, known, numbers)
            earliest = {chunk for _, chunk in known.least_without(numbers).values()}
            yield self._some(bucket, known, sorted({*numbers, *earliest}))
        yield self.content(bucket)

    def _some(self, bucket: int, known: Directory, numbers: Sequence[int]) -> BucketContent:
        rows = self._rows_of(chunks.read(self.store, self.stage, bucket, numbers))
        others = {name: least for name, (least, _) in known.least_without(numbers).items()}
        return BucketContent(rows, known.numbers_in(numbers), known.live, known.base_rows, others)

    def waiting(self, buckets: Iterable[int]) -> pl.DataFrame:
        """Reads the waiting arrivals of these buckets, by bucket and in order of arrival."""
        nothing = self.table.nothing_incoming
        if self.table.patched:
            return nothing
        frames = [
            frame
            for bucket in sorted(buckets)
            for frame in self._read(
                bucket, range(self.size(bucket).base, self.size(bucket).chunks), nothing.schema
            )
        ]
        return concat_nonempty(nothing, *frames)

    def due_soon_buffer(self, *, needed: bool) -> DueSoonBuffer:
        """Reads the due-soon buffer; if it is not `needed`, returns an empty one without reading."""
        if not needed or not self.size(BUFFER).base:
            return DueSoonBuffer(self.table.no_rows, self.state_table)
        schema = pl.Schema({**self.table.schema, MAYBE_OVERLAPS: pl.Boolean()})
        frames = self._read(BUFFER, range(self.size(BUFFER).base), schema)
        rows = self.buckets.place(pl.concat(frames)) if frames else self.table.no_rows
        return DueSoonBuffer(rows, self.state_table)

    def overdue(self, now: Times) -> pl.Expr:
        """Returns an expression that is true for rows that are due when the clocks are at `now`."""
        # A deadline is the next time after a given one. Computed at `now`, it would skip a time that has just passed;
        # so it is computed at the times of the previous step.
        deadlines = self.state_table.deadlines(self.index.times)
        return pl.any_horizontal(deadline <= now.time(clock) for clock, deadline in deadlines.items())

    def replace(
        self, loaded: Collection[int], rows: Mapping[int, pl.DataFrame], due_soon: pl.DataFrame, now: Times
    ) -> Index:
        """Replaces the content of the `loaded` buckets and of the due-soon buffer, and returns the new index.

        `rows` are keyed by bucket number, and have the column BUCKET. `due_soon` is the new content of the buffer.
        """
        columns = list(self.table.schema)
        written = {bucket: part[:, columns] for bucket, part in rows.items()}
        if len(due_soon):
            written[BUFFER] = due_soon
        sizes = self._write(written, now)
        for bucket in sorted({*loaded, *written, BUFFER} & set(self.sizes)):
            self._remove(bucket, sizes.get(bucket, Size()))
        described = [*rows.values()]
        if len(due_soon) or not described:
            described.append(due_soon[:, columns].with_columns(pl.lit(BUFFER, pl.Int64).alias(BUCKET)))
        touched = {*loaded, *sizes, BUFFER}
        after = concat_nonempty(*described)
        return self.index.replace(touched, self.summary(after, sizes, now), holds_of(after, now))

    def append(self, index: Index, waiting: pl.DataFrame, now: Times) -> Index:
        """Appends waiting arrivals to the logs of their buckets, and returns the new index.

        `index` must be up to date for everything except these arrivals.
        """
        sizes = {}
        columns = list(self.table.incoming)
        for bucket, part in split_by_bucket(waiting).items():
            sizes[bucket] = self.append_patch(bucket, chunks.Patch(part[:, columns]), now)
        as_rows = self.state_table.as_rows(waiting[:, columns], now).with_columns(waiting[BUCKET])
        return index.add(self.summary(as_rows, sizes, now), holds_of(as_rows, now))

    def append_patch(self, bucket: int, patch: chunks.Patch, now: Times) -> Size:
        """Writes a patch after the last chunk of a bucket, and returns the size of the patch."""
        first = self.size(bucket).chunks
        written = chunks.write(self.store, self.stage, bucket, first, patch)
        if self.is_large(self.size(bucket)):
            self._write_entry(bucket, first, patch, written, now)
        return Size(chunks=len(written.rows), log=sum(written.bytes))

    def size(self, bucket: int) -> Size:
        """Returns the size of a bucket in the store; 0 chunks and bytes if the bucket does not exist."""
        return self.sizes.get(bucket, Size())

    def is_large(self, size: Size) -> bool:
        """True if a bucket of this size is so large that a step reads slices of it instead of all rows."""
        return self.table.patched and bool(self.table.keys) and size.bytes >= LARGE_BYTES

    def least_times(self, now: Times) -> dict[str, pl.Expr]:
        """Returns the expressions, by index column, of the times whose minima the index has: hold and deadlines."""
        hold = pl.min_horizontal(name for name in (HOLD, OUTSTANDING_HOLD) if name in self.table.schema)
        deadlines = self.state_table.deadlines(now).items()
        return {"hold": hold, **{DEADLINE + clock: time for clock, time in deadlines}}

    def summary(self, rows: pl.DataFrame, sizes: Mapping[int, Size], now: Times) -> pl.DataFrame:
        """Computes an index row for each bucket in the column BUCKET of `rows`."""
        return summarize(rows, self.table, self.state_table.deadlines(now), sizes)

    def _rows(self, bucket: int) -> list[pl.DataFrame]:
        size = self.size(bucket)
        if self.table.patched and size.chunks > size.base:
            return [self.content(bucket).live_rows]
        return self._read(bucket, range(size.base), self.table.schema)

    def _read(self, bucket: int, numbers: Iterable[int], schema: pl.Schema) -> list[pl.DataFrame]:
        found = chunks.read(self.store, self.stage, bucket, numbers)
        return chunks.unpack(found, schema, self.table.missing)

    def _write(self, parts: Mapping[int, pl.DataFrame], now: Times) -> dict[int, Size]:
        sizes = {}
        for bucket, part in parts.items():
            patch = chunks.Patch(part)
            written = chunks.write(self.store, self.stage, bucket, 0, patch)
            sizes[bucket] = Size.of_rows(written)
            if self.is_large(sizes[bucket]):
                self._write_entry(bucket, 0, patch, written, now)
        return sizes

    def _remove(self, bucket: int, rewritten: Size) -> None:
        """Removes the chunks and directory entries of a bucket that a rewrite to size `rewritten` did not overwrite."""
        before = self.size(bucket)
        chunks.remove(self.store, self.stage, bucket, range(rewritten.chunks, before.chunks))
        if self.is_large(before):
            keep_first = self.is_large(rewritten)
            directory.remove_entries(self.store, self.stage, bucket, before, keep_first=keep_first)

    def _write_entry(
        self, bucket: int, first: int, patch: chunks.Patch, written: chunks.Written, now: Times
    ) -> None:
        directory.write_entry(
            self.store,
            self.stage,
            bucket,
            first,
            patch=patch,
            written=written,
            keys=self.table.keys,
            times=self.least_times(now),
        )

    def _rows_of(self, found: Iterable[chunks.Chunk]) -> pl.DataFrame:
        frames = chunks.unpack(found, self.table.schema, self.table.missing)
        return pl.concat([self.table.no_rows, *frames])


def holds_of(rows: pl.DataFrame, now: Times) -> dict[int, Histogram] | None:
    """Computes histograms of holds by bucket; None if no percentile watermark is in use, since that is expensive."""
    return histograms(rows) if now.percentiles else None
