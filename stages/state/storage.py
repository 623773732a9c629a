"""The buckets of a table in the store: reads them as the index describes them, replaces them, and appends to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np
import polars as pl

from stages.operator import HOLD, OUTSTANDING_HOLD, StateTable, Table
from stages.parted import together
from stages.state import chunks, directory
from stages.state.buckets import BUCKET, TIMES, Buckets, partition
from stages.state.directory import Directory
from stages.state.due_soon import HOT, MAYBE_OVERLAPS, DueSoonBuffer
from stages.state.index import DEADLINE, Index, Size, histograms, summarize
from stages.state.row_numbers import BucketMask, FrameMask, RowNumbers
from stages.state.store import StateStore
from stages.strategies.histogram import Histogram
from windowing.clocks import Times

LARGE_BYTES: Final = 250_000
"""The size of a bucket's rows in the store from which a step reads slices of it, and writes patches.

A smaller bucket is read and written whole, which takes less time.
"""


@attrs.frozen(eq=False)
class BucketContent:
    """Rows that were read of a bucket, live and deleted ones, with the number of each.

    `live` is true for the live rows of the whole bucket, by row number. The first `base_rows` rows are not from
    patches. `others` has the least of each time, by index column, among the rows that were not read, or an earlier
    time.
    """

    rows: pl.DataFrame
    numbers: RowNumbers
    live: BucketMask
    base_rows: int
    others: Mapping[str, int] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        # Several contents share the flags of one directory.
        self.live.setflags(write=False)

    @property
    def whole(self) -> bool:
        """True if all rows of the bucket were read."""
        return len(self.numbers) == len(self.live)

    @property
    def live_rows(self) -> pl.DataFrame:
        """The live rows among those that were read."""
        return self.rows.filter(self.live[self.numbers])

    def live_positions(self) -> FrameMask:
        """True at the positions of live rows in `rows`; a copy, which the caller may write to."""
        return FrameMask(self.live[self.numbers])

    def without(self, deleted: RowNumbers) -> pl.DataFrame:
        """The live rows, except the deleted ones. All rows must have been read, so that numbers are positions."""
        assert self.whole
        live = self.live.copy()
        live[deleted] = False
        return self.rows.filter(live)


@attrs.frozen(slots=False)
class Storage:
    """The rows and waiting arrivals of a table in the store, as the index of the previous step describes them."""

    stage: str
    kept: StateTable
    store: StateStore
    index: Index

    @property
    def table(self) -> Table:
        """The description of the table's rows."""
        return self.kept.table

    @cached_property
    def sizes(self) -> dict[int, Size]:
        """The sizes of the buckets that exist."""
        return self.index.sizes()

    @cached_property
    def buckets(self) -> Buckets:
        """The placement of rows in buckets."""
        existing = tuple(bucket for bucket in self.sizes if bucket != HOT)
        return Buckets(self.table.keys, self.table.spread, existing)

    def between(self, first: int, last: int) -> list[int]:
        """The buckets that may have rows of these times (us); all buckets if rows are not spread by time."""
        turns = self.buckets.turns(first, last)
        return [bucket for bucket in self.buckets.existing if turns is None or bucket % TIMES in turns]

    def rows(self, buckets: Iterable[int]) -> pl.DataFrame:
        """Reads the live rows of these buckets."""
        return together(
            self.table.no_rows, *(frame for bucket in sorted(buckets) for frame in self._rows(bucket))
        )

    def content(self, bucket: int) -> BucketContent:
        """Reads all rows of a bucket with patches, those that the patches have replaced included."""
        size = self.size(bucket)
        found = chunks.read(self.store, self.stage, bucket, range(size.chunks))
        rows = self._rows_of(found)
        # The numbers in a patch count all rows before it, in the order of chunks.
        live = np.ones(len(rows), dtype=np.bool_)
        for chunk in found:
            if chunk.deleted is not None:
                live[chunk.deleted.to_numpy()] = False
        base_rows = sum(chunk.rows for chunk in found[: size.base])
        return BucketContent(rows, RowNumbers(np.arange(len(rows))), BucketMask(live), base_rows)

    def contents_with(self, bucket: int, keys: pl.DataFrame) -> Iterator[BucketContent]:
        """Reads ever more rows of a bucket, each time including all live rows that have one of these keys.

        First as few chunks as possible, then also the chunks with the least times, then all chunks.
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
        """Reads the arrivals that wait in these buckets, in order of bucket and then of arrival."""
        nothing = self.table.nothing_incoming
        if self.table.visited_by_key:
            return nothing
        frames = [
            frame
            for bucket in sorted(buckets)
            for frame in self._read(
                bucket, range(self.size(bucket).base, self.size(bucket).chunks), nothing.schema
            )
        ]
        return together(nothing, *frames)

    def hot_rows(self, *, needed: bool) -> DueSoonBuffer:
        """Reads the due-soon buffer; an empty one if it is not needed."""
        schema = pl.Schema({**self.table.schema, MAYBE_OVERLAPS: pl.Boolean()})
        frames = self._read(HOT, range(self.size(HOT).base if needed else 0), schema)
        rows = self.buckets.place(pl.concat(frames)) if frames else self.table.no_rows
        return DueSoonBuffer(rows, self.kept)

    def overdue(self, now: Times) -> pl.Expr:
        """True for rows that are due when the clocks are at `now`."""
        # Deadlines are those of the previous step: a deadline that has just passed would be replaced by the next one
        # if it were computed at `now`.
        deadlines = self.kept.deadlines(self.index.times)
        return pl.any_horizontal(deadline <= now.time(clock) for clock, deadline in deadlines.items())

    def replace(
        self, loaded: Collection[int], rows: Mapping[int, pl.DataFrame], hot: pl.DataFrame, now: Times
    ) -> Index:
        """Writes rows by bucket, and hot rows, in place of all that is in the loaded buckets and in the buffer.

        The rows have the column of their bucket. Returns the index afterwards.
        """
        columns = list(self.table.schema)
        written = {bucket: part[columns] for bucket, part in rows.items()}
        if len(hot):
            written[HOT] = hot
        sizes = self._write(written, now)
        for bucket in sorted({*loaded, *written, HOT} & set(self.sizes)):
            self._remove(bucket, sizes.get(bucket, Size()))
        described = [*rows.values()]
        if len(hot) or not described:
            described.append(hot[columns].with_columns(pl.lit(HOT, pl.Int64).alias(BUCKET)))
        touched = {*loaded, *sizes, HOT}
        after = together(*described)
        return self.index.replace(touched, self.summary(after, sizes, now), holds_of(after, now))

    def append(self, index: Index, waiting: pl.DataFrame, now: Times) -> Index:
        """Appends waiting arrivals to the logs of their buckets.

        `index` describes the rows already, without these arrivals. Returns the index afterwards.
        """
        sizes = {}
        columns = list(self.table.incoming)
        for bucket, part in partition(waiting).items():
            sizes[bucket] = self.append_patch(bucket, chunks.Patch(part[columns]), now)
        as_rows = self.kept.as_rows(waiting[columns], now).with_columns(waiting[BUCKET])
        return index.add(self.summary(as_rows, sizes, now), holds_of(as_rows, now))

    def append_patch(self, bucket: int, patch: chunks.Patch, now: Times) -> Size:
        """Writes a patch after the chunks of a bucket; returns the size of the patch."""
        first = self.size(bucket).chunks
        written = chunks.write(self.store, self.stage, bucket, first, patch)
        if self.is_large(self.size(bucket)):
            self._write_entry(bucket, first, patch, written, now)
        return Size(chunks=len(written.rows), log=sum(written.bytes))

    def size(self, bucket: int) -> Size:
        """The size of a bucket; empty if the bucket does not exist."""
        return self.sizes.get(bucket, Size())

    def is_large(self, size: Size) -> bool:
        """True if a step reads slices of a bucket of this size."""
        return self.table.visited_by_key and bool(self.table.keys) and size.bytes >= LARGE_BYTES

    def least_times(self, now: Times) -> dict[str, pl.Expr]:
        """The times of a row whose minima the index has, by index column."""
        hold = pl.min_horizontal(name for name in (HOLD, OUTSTANDING_HOLD) if name in self.table.schema)
        deadlines = self.kept.deadlines(now).items()
        return {"hold": hold, **{DEADLINE + clock: time for clock, time in deadlines}}

    def summary(self, rows: pl.DataFrame, sizes: Mapping[int, Size], now: Times) -> pl.DataFrame:
        """Computes the index rows, one a bucket, for rows that have the column of their bucket."""
        return summarize(rows, self.table, self.kept.deadlines(now), sizes)

    def _rows(self, bucket: int) -> list[pl.DataFrame]:
        size = self.size(bucket)
        if self.table.visited_by_key and size.chunks > size.base:
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
        """Removes the old chunks and directory entries of a bucket beyond those that were rewritten."""
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
    """Computes a histogram of holds by bucket; None if no percentile is in use, since histograms are expensive."""
    return histograms(rows) if now.percentiles else None
