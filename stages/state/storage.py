"""The buckets of a table in the store: reads, replaces and appends to them, and keeps the index exact."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.frames import concat_nonempty
from stages.operator import HOLD, OUTSTANDING_HOLD
from stages.state import chunks, directory, lookup
from stages.state.buckets import BUCKET, TIMES, Buckets, split_by_bucket, width
from stages.state.content import BucketContent, Search, numbers_found
from stages.state.directory import NEVER, Described, Directory
from stages.state.due_soon import BUFFER, DueSoonBuffer, DueSoonTable
from stages.state.index import DEADLINE, Index, Size, histograms
from stages.state.lookup import Hashes, Requested, Searched, chunks_among, divided, lower_hashes
from stages.state.row_numbers import BucketMask, Positions, RowNumbers
from stages.state.store import StateStore
from stages.state.summary import summarize
from stages.state_tables import BucketTable, StateTable, TimeTable
from stages.strategies.histogram import Histogram
from windowing.clocks import Times

LARGE_BYTES: Final = 50_000
"""The size of a bucket's base rows in the store (bytes) from which a step reads slices and writes patches.

A smaller bucket is read and written whole, which is faster.
"""

LARGE_BUFFER_BYTES: Final = 1_000_000
"""The size of the due-soon buffer's base rows in the store (bytes) from which a step reads slices of it.

A smaller buffer is read and written whole, which is faster.
"""

SEARCHED_BYTES: Final = 64_000
"""The size of a bucket in the store (bytes) from which rows with some keys are found by their hashes."""

_FEW: Final = 4
"""The number of buckets that are summarized one by one."""


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
    def live_rows(self) -> dict[int, int]:
        """The number of live rows of the existing buckets by number."""
        return dict(self.index.buckets.select(BUCKET, "rows").rows())

    @cached_property
    def least(self) -> dict[int, dict[str, int]]:
        """The least times of the live rows before the step (us), by bucket and index column, without nulls."""
        columns = [BUCKET, *self.least_times(self.index.times)]
        rows = self.index.buckets[:, columns].iter_rows(named=True)
        return {
            row.pop(BUCKET): {name: time for name, time in row.items() if time is not None} for row in rows
        }

    @cached_property
    def buckets(self) -> Buckets:
        """The assignment of rows to the existing buckets of the table."""
        existing = tuple(bucket for bucket in self.sizes if bucket != BUFFER)
        return Buckets(self.table.keys, self.table.spread, existing, self.table.patched)

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
        found = self._read_again(bucket, range(size.chunks))
        rows = self.rows_of(found)
        # A row number is a position among the rows of all chunks, in the order of chunks.
        live = np.ones(len(rows), dtype=np.bool_)
        for chunk in found:
            if chunk.deleted is not None:
                live[chunk.deleted.to_numpy()] = False
        base_rows = sum(chunk.rows for chunk in found[: size.base])
        return BucketContent(rows, RowNumbers(np.arange(len(rows))), BucketMask(live), base_rows)

    def directory(self, bucket: int) -> Directory | None:
        """Reads the directory of a bucket; None if it has none that describes its chunks."""
        return Directory.read(self.store, self.stage, bucket, self.size(bucket))

    def contents_with(
        self, searches: Mapping[int, Search], requested: Hashes | None = None
    ) -> dict[int, BucketContent]:
        """Reads the live rows of buckets that have one of the hashes of a search, and perhaps others.

        Without a directory, or if most rows are needed, all rows of a bucket are read. `requested` are all hashes of
        the searches, sorted and distinct, if rows that have one of another search may be read as well.
        """
        numbers = dict(zip(searches, numbers_found([*searches.values()], requested), strict=True))
        held, selected = dict[int, Mapping[int, chunks.Chunk]](), list[tuple[chunks.Chunk, Positions]]()
        for bucket, search in searches.items():
            if search.directory is not None and (found := numbers[bucket]) is not None:
                parts = dict(divided(found, search.directory.lengths))
                missing = [chunk for chunk in parts if chunk not in search.held]
                read = self._read_again(bucket, missing)
                held[bucket] = {**search.held, **dict(zip(missing, read, strict=True))}
                selected += ((held[bucket][chunk], positions) for chunk, positions in parts.items())
        # The rows of all buckets are put together at once.
        rows, contents = self.rows_of(chunks.gathered(selected)).rechunk(), dict[int, BucketContent]()
        for bucket, search in searches.items():
            known, found = search.directory, numbers[bucket]
            if known is None or found is None:
                contents[bucket] = attrs.evolve(self.content(bucket), needed=known is not None)
                continue
            here, rows = rows.head(len(found)), rows.slice(len(found))
            contents[bucket] = BucketContent(here, found, known.live, known.base_rows, known, held[bucket])
        return contents

    def chunk(self, bucket: int, number: int) -> chunks.Chunk:
        """Reads a chunk of a bucket."""
        (found,) = self._read_again(bucket, [number])
        return found

    def rows_among(self, buckets: Sequence[int], requested: Requested) -> list[pl.DataFrame]:
        """Reads the rows and waiting arrivals of these buckets that may have one of the requested keys."""
        table, own = self.table, requested.columns == list(self.table.keys)
        hashes = {
            bucket: requested.between(*self.buckets.hashes(bucket)) if own else requested.all
            for bucket in buckets
        }
        if table.patched:
            known = {bucket: self.directory(bucket) if own else None for bucket in buckets}
            searches = {bucket: Search(known[bucket], hashes[bucket]) for bucket in buckets}
            return [content.live_rows for content in self.contents_with(searches, requested.all).values()]
        base, log = list[Searched](), list[Searched]()
        for bucket in buckets:
            size = self.size(bucket)
            found = self._read_again(bucket, range(size.chunks))
            for first, last in lookup.searched_together(size.base, size.chunks):
                parts = base if last <= size.base else log
                parts.append(Searched(found[first:last], hashes[bucket]))
        return [
            rows
            for searched, schema in ((base, table.schema), (log, table.incoming))
            for rows in chunks.unpack(
                chunks_among(searched, requested.all, requested.columns, schema, table.missing),
                schema,
                table.missing,
            )
        ]

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
        return DueSoonBuffer(self.buckets.place(self.due_soon.rows([BUFFER])), self.state_table)

    @cached_property
    def due_soon(self) -> Storage:
        """Access to the due-soon rows."""
        return Storage(self.stage, DueSoonTable(self.state_table), self.store, self.index)

    def due(self, now: Times) -> list[int]:
        """Returns the buckets to load because a row is due, without large ones that may keep overdue rows for now."""
        due = self.index.due(now)
        large = {bucket for bucket in due if self.is_searched(bucket)} if self._overstay else ()
        if not large:
            return due
        # A row that holds the watermark is removed at once.
        held = self.index.buckets.filter(pl.col("hold").is_not_null())[BUCKET]
        stay = {*large}.difference(held, self.index.due(now.back(self._overstay)))
        return [bucket for bucket in due if bucket not in stay]

    def not_overdue(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Leaves out rows that were due in earlier steps and that their bucket still has."""
        if not self._overstay or rows.is_empty():
            return rows
        return rows.filter(~self.overdue(self.index.times).fill_null(False))

    @cached_property
    def _overstay(self) -> int:
        """The time (us) for which a large bucket may keep overdue rows. Most rows of a bucket are due in this time."""
        table = self.table
        return min(table.overstay, width(table.spread)) if isinstance(table, TimeTable) else 0

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
        # Few large buckets are summarized faster one by one than as groups.
        parts = [part for part in described if len(part)] if len(described) <= _FEW else []
        summary = concat_nonempty(*(self.summary(part, sizes, now) for part in parts or [after]))
        return self.index.replace(touched, summary, holds_of(after, now))

    def append(self, index: Index, waiting: pl.DataFrame, now: Times) -> Index:
        """Appends waiting arrivals to the logs of their buckets, and returns the new index.

        `index` must be up to date for everything except these arrivals.
        """
        sizes = {}
        columns, parts = list(self.table.incoming), split_by_bucket(waiting)
        for bucket, part in parts.items():
            patch, first = chunks.Patch(part[:, columns]), self.size(bucket).chunks
            # Logs of several buckets are seldom read soon.
            written = chunks.write(self.store, self.stage, bucket, first, patch, soon=len(parts) == 1)
            sizes[bucket] = Size(chunks=len(written.rows), log=sum(written.bytes))
        as_rows = self.state_table.as_rows(waiting[:, columns], now).with_columns(waiting[BUCKET])
        return index.add(self.summary(as_rows, sizes, now), holds_of(as_rows, now))

    def append_patch(
        self,
        bucket: int,
        patch: chunks.Patch,
        now: Times,
        known: Directory | None = None,
        facts: Described | None = None,
    ) -> Size:
        """Writes a patch after the last chunk of a bucket, and returns by how much the bucket has grown.

        If the directory is `known`, the patch is merged with earlier ones as soon as there are several of its size.
        `facts` are those of the rows of the patch, which a large bucket needs.
        """
        before = self.size(bucket)
        merged = known.entries[len(known.entries) - known.mergeable(len(patch.rows)) :] if known else []
        if merged:
            replaced = range(before.chunks - sum(len(entry.rows) for entry in merged), before.chunks)
            patch = self._joined(self._read_again(bucket, replaced), patch)
            facts = self.described(patch.rows, now)
            first, log = replaced[0], sum(entry.stored for entry in merged)
        else:
            first, log = before.chunks, 0
        written = chunks.write(self.store, self.stage, bucket, first, patch)
        if merged:
            chunks.remove(self.store, self.stage, bucket, range(first + len(written.rows), before.chunks))
            directory.remove_later_entries(self.store, self.stage, bucket, first, merged)
        if facts is not None and self.is_large(before):
            directory.write_entry(self.store, self.stage, bucket, first, patch, written, facts)
        return Size(chunks=first + len(written.rows) - before.chunks, log=sum(written.bytes) - log)

    def _joined(self, earlier: Sequence[chunks.Chunk], patch: chunks.Patch) -> chunks.Patch:
        """Returns one patch with the rows of several in their order, so that each row keeps its number."""
        deleted = [chunk.deleted for chunk in earlier if chunk.deleted is not None]
        if patch.deleted is not None:
            deleted.append(patch.deleted)
        return chunks.Patch(pl.concat([self.rows_of(earlier), patch.rows]), pl.concat(deleted))

    def size(self, bucket: int) -> Size:
        """Returns the size of a bucket in the store; 0 chunks and bytes if the bucket does not exist."""
        return self.sizes.get(bucket, Size())

    def is_large(self, size: Size) -> bool:
        """True if a bucket of this size is so large that a step reads slices of it instead of all rows."""
        least = LARGE_BUFFER_BYTES if isinstance(self.state_table, DueSoonTable) else LARGE_BYTES
        return self.table.patched and bool(self.table.keys) and size.bytes >= least

    def is_searched(self, bucket: int) -> bool:
        """True if a bucket is so large that rows with some keys are found in it by their hashes."""
        return self.size(bucket).total >= SEARCHED_BYTES

    def least_times(self, now: Times) -> dict[str, pl.Expr]:
        """Returns the expressions, by index column, of the times whose minima the index has: hold and deadlines."""
        hold = pl.min_horizontal(name for name in (HOLD, OUTSTANDING_HOLD) if name in self.table.schema)
        deadlines = self.state_table.deadlines(now).items()
        return {"hold": hold, **{DEADLINE + clock: time for clock, time in deadlines}}

    @cached_property
    def time_columns(self) -> frozenset[str]:
        """The columns on which these times depend."""
        times = self.least_times(self.index.times).values()
        return frozenset(name for time in times for name in time.meta.root_names())

    def times_of(self, rows: pl.DataFrame, now: Times) -> dict[str, npt.NDArray[np.int64]]:
        """Computes the times whose minima the index has, by index column; NEVER for null."""
        times = (time.fill_null(NEVER).alias(name) for name, time in self.least_times(now).items())
        return {column.name: column.to_numpy() for column in rows.select(times)}

    def described(self, rows: pl.DataFrame, now: Times) -> Described:
        """Returns the facts of rows that a directory contains."""
        return Described(lower_hashes(rows, self.table.keys), self.times_of(rows, now))

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

    def _read_again(self, bucket: int, numbers: Iterable[int]) -> list[chunks.Chunk]:
        return chunks.read(self.store, self.stage, bucket, numbers, again=True)

    def _write(self, parts: Mapping[int, pl.DataFrame], now: Times) -> dict[int, Size]:
        sizes = {}
        for bucket, part in parts.items():
            patch = chunks.Patch(part)
            written = chunks.write(self.store, self.stage, bucket, 0, patch)
            sizes[bucket] = Size.of_rows(written)
            if self._of(bucket).is_large(sizes[bucket]):
                facts = self.described(part, now)
                directory.write_entry(self.store, self.stage, bucket, 0, patch, written, facts)
        return sizes

    def _remove(self, bucket: int, rewritten: Size) -> None:
        """Removes the chunks and directory entries of a bucket that a rewrite to size `rewritten` did not overwrite."""
        before = self.size(bucket)
        chunks.remove(self.store, self.stage, bucket, range(rewritten.chunks, before.chunks))
        if self._of(bucket).is_large(before):
            keep_first = self._of(bucket).is_large(rewritten)
            directory.remove_entries(self.store, self.stage, bucket, before, keep_first=keep_first)

    def _of(self, bucket: int) -> Storage:
        """Returns the access to the table that has the rows of a bucket."""
        return self.due_soon if bucket == BUFFER and not self.table.patched else self

    def rows_of(self, found: Iterable[chunks.Chunk]) -> pl.DataFrame:
        """Returns the rows of these chunks."""
        frames = chunks.unpack(found, self.table.schema, self.table.missing)
        return pl.concat([self.table.no_rows, *frames])


def holds_of(rows: pl.DataFrame, now: Times) -> dict[int, Histogram] | None:
    """Computes histograms of holds by bucket; None if no percentile watermark is in use, since that is expensive."""
    return histograms(rows) if now.percentiles else None
