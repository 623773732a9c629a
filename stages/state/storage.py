"""The buckets of a stage in its store, as its index describes them: what is in them, and how it is replaced."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.operator import HOLD, OUTSTANDING_HOLD, Kept, Table
from stages.parted import together
from stages.state import chunks, directory
from stages.state.buckets import BUCKET, TIMES, Buckets, partition
from stages.state.directory import Directory
from stages.state.due_soon import NEAR, STALE, DueSoon
from stages.state.index import DEADLINE, Index, Size, histograms, summarize
from stages.state.store import StateStore
from stages.strategies.histogram import Histogram
from windowing.clocks import Times

LARGE_BYTES: Final = 250_000
"""Of the rows of a bucket, in the store: a smaller one is looked at and written as a whole, which takes less time."""


@attrs.frozen
class Content:
    """Rows of a bucket with their `numbers`: those that are live, and those that patches have replaced.

    `live` says of all rows of the bucket, in their order, which they are. The first `base` are no patches'. `others`
    has the least of each of the times that the index has of a bucket, of the rows that are not here, or an earlier one.
    """

    rows: pl.DataFrame
    numbers: npt.NDArray[np.intp]
    live: npt.NDArray[np.bool_]
    base: int
    others: Mapping[str, int] = attrs.field(factory=dict)

    @property
    def whole(self) -> bool:
        """Whether all rows of the bucket are here."""
        return len(self.numbers) == len(self.live)

    @property
    def live_rows(self) -> pl.DataFrame:
        """The rows that are live."""
        return self.rows.filter(self.live[self.numbers])


@attrs.frozen(slots=False)
class Storage:
    """What the store has of a table of the stage of this name when a step begins."""

    stage: str
    kept: Kept
    store: StateStore
    index: Index

    @property
    def table(self) -> Table:
        """What is to be known of its rows."""
        return self.kept.table

    @cached_property
    def sizes(self) -> dict[int, Size]:
        """The buckets that there are."""
        return self.index.sizes()

    @cached_property
    def buckets(self) -> Buckets:
        """Where rows belong."""
        existing = tuple(bucket for bucket in self.sizes if bucket != NEAR)
        return Buckets(self.table.keys, self.table.spread, existing)

    def between(self, first: int, last: int) -> list[int]:
        """The buckets in which rows of these times (us) are, in a table that is spread by time."""
        turns = self.buckets.turns(first, last)
        return [bucket for bucket in self.buckets.existing if turns is None or bucket % TIMES in turns]

    def rows(self, buckets: Iterable[int]) -> pl.DataFrame:
        """The rows in these buckets."""
        return together(
            self.table.no_rows, *(frame for bucket in sorted(buckets) for frame in self._rows(bucket))
        )

    def content(self, bucket: int) -> Content:
        """The rows of a bucket of a table with patches, those among them that these have replaced."""
        size = self.size(bucket)
        found = chunks.read(self.store, self.stage, bucket, range(size.chunks))
        rows = self._rows_of(found)
        live = np.ones(len(rows), dtype=np.bool_)
        for chunk in found:
            if chunk.gone is not None:
                live[chunk.gone.to_numpy()] = False
        return Content(rows, np.arange(len(rows)), live, sum(chunk.rows for chunk in found[: size.base]))

    def contents_with(self, bucket: int, keys: pl.DataFrame) -> Iterator[Content]:
        """Rows among which are all that have one of these keys, as few as possible; then more; then all of them."""
        known = Directory.read(self.store, self.stage, bucket, self.size(bucket))
        if known is not None and (numbers := known.chunks_with(keys)) is not None:
            yield self._some(bucket, known, numbers)
            earliest = {chunk for _, chunk in known.least_but(numbers).values()}
            yield self._some(bucket, known, sorted({*numbers, *earliest}))
        yield self.content(bucket)

    def _some(self, bucket: int, known: Directory, numbers: Sequence[int]) -> Content:
        rows = self._rows_of(chunks.read(self.store, self.stage, bucket, numbers))
        others = {name: least for name, (least, _) in known.least_but(numbers).items()}
        return Content(rows, known.numbers_in(numbers), known.live, known.base, others)

    def waiting(self, buckets: Iterable[int]) -> pl.DataFrame:
        """The arrivals that wait in these buckets, in the order in which they came."""
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

    def near(self, *, wanted: bool) -> DueSoon:
        """The rows that are due soon, if they are wanted; else none of them."""
        schema = pl.Schema({**self.table.schema, STALE: pl.Boolean()})
        frames = self._read(NEAR, range(self.size(NEAR).base if wanted else 0), schema)
        return DueSoon(self.buckets.place(pl.concat(frames)) if frames else self.table.no_rows, self.kept)

    def overdue(self, now: Times) -> pl.Expr:
        """Whether a row is due when the clocks stand so."""
        # Deadlines are those of the time before: at that of now, what has just passed waits for the next one.
        deadlines = self.kept.deadlines(self.index.times)
        return pl.any_horizontal(deadline <= now.time(clock) for clock, deadline in deadlines.items())

    def replace(
        self, looked: Collection[int], rows: Mapping[int, pl.DataFrame], near: pl.DataFrame, now: Times
    ) -> Index:
        """Has these rows, placed in their bucket, in place of what is in these, and those that are due soon."""
        columns = list(self.table.schema)
        parts = {bucket: part[columns] for bucket, part in rows.items()}
        if len(near):
            parts[NEAR] = near
        sizes = self._write(parts, now)
        for bucket in sorted({*looked, *parts, NEAR} & set(self.sizes)):
            self._remove(bucket, sizes.get(bucket, Size()))
        described = [*rows.values()]
        if len(near) or not described:
            described.append(near[columns].with_columns(pl.lit(NEAR, pl.Int64).alias(BUCKET)))
        touched = {*looked, *sizes, NEAR}
        left = together(*described)
        return self.index.replace(touched, self.summary(left, sizes, now), holds_of(left, now))

    def append(self, index: Index, waiting: pl.DataFrame, now: Times) -> Index:
        """Puts arrivals, with their bucket, beside its rows; `index` describes the rows already."""
        sizes = {}
        columns = list(self.table.incoming)
        for bucket, part in partition(waiting).items():
            sizes[bucket] = self.beside(bucket, chunks.Patch(part[columns]), now)
        alone = self.kept.alone(waiting[columns], now).with_columns(waiting[BUCKET])
        return index.add(self.summary(alone, sizes, now), holds_of(alone, now))

    def beside(self, bucket: int, patch: chunks.Patch, now: Times) -> Size:
        """Puts this beside what there is in a bucket; gives what that takes."""
        first = self.size(bucket).chunks
        written = chunks.write(self.store, self.stage, bucket, first, patch)
        if self.is_large(self.size(bucket)):
            self._note(bucket, first, patch, written, now)
        return Size(chunks=len(written.rows), log=sum(written.bytes))

    def size(self, bucket: int) -> Size:
        """What a bucket takes."""
        return self.sizes.get(bucket, Size())

    def is_large(self, size: Size) -> bool:
        """Whether a step is shown only what it needs of a bucket of this size."""
        return self.table.visited_by_key and bool(self.table.keys) and size.bytes >= LARGE_BYTES

    def least_times(self, now: Times) -> dict[str, pl.Expr]:
        """The times of a row, by the column of the index that has the least of a bucket's."""
        hold = pl.min_horizontal(name for name in (HOLD, OUTSTANDING_HOLD) if name in self.table.schema)
        deadlines = self.kept.deadlines(now).items()
        return {"hold": hold, **{DEADLINE + clock: time for clock, time in deadlines}}

    def summary(self, rows: pl.DataFrame, sizes: Mapping[int, Size], now: Times) -> pl.DataFrame:
        """What the index says of rows, with their bucket."""
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
                self._note(bucket, 0, patch, written, now)
        return sizes

    def _remove(self, bucket: int, now: Size) -> None:
        """Removes what is left of a bucket that was written anew and takes so much `now`."""
        before = self.size(bucket)
        chunks.remove(self.store, self.stage, bucket, range(now.chunks, before.chunks))
        if self.is_large(before):
            directory.forget(self.store, self.stage, bucket, before, but_first=self.is_large(now))

    def _note(
        self, bucket: int, first: int, patch: chunks.Patch, written: chunks.Written, now: Times
    ) -> None:
        keys, times = self.table.keys, self.least_times(now)
        directory.note(self.store, self.stage, bucket, first, patch, written, keys, times)

    def _rows_of(self, found: Iterable[chunks.Chunk]) -> pl.DataFrame:
        frames = chunks.unpack(found, self.table.schema, self.table.missing)
        return pl.concat([self.table.no_rows, *frames])


def holds_of(rows: pl.DataFrame, now: Times) -> dict[int, Histogram] | None:
    """Histograms of holds cost as much as they are long, so they are made only where somebody looks at them."""
    return histograms(rows) if now.percentiles else None
