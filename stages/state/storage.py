"""The buckets of a stage in its store, as its index describes them: what is in them, and how it is replaced."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

import attrs
import polars as pl

from stages.operator import Kept, Table
from stages.parted import together
from stages.progress.watermarks import Times
from stages.state import chunks
from stages.state.buckets import BUCKET, TIMES, Buckets, partition
from stages.state.due_soon import NEAR, STALE, DueSoon
from stages.state.index import Index, Size, histograms, summarize
from stages.state.store import StateStore
from stages.strategies.histogram import Histogram


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
        schema = self.table.schema
        frames = [
            frame
            for bucket in sorted(buckets)
            for frame in self._read(bucket, range(self._size(bucket).base), schema)
        ]
        return together(self.table.no_rows, *frames)

    def waiting(self, buckets: Iterable[int]) -> pl.DataFrame:
        """The arrivals that wait in these buckets, in the order in which they came."""
        schema = self.table.incoming
        frames = [
            frame
            for bucket in sorted(buckets)
            for frame in self._read(bucket, range(self._size(bucket).base, self._size(bucket).chunks), schema)
        ]
        return together(self.table.nothing_incoming, *frames)

    def near(self, *, wanted: bool) -> DueSoon:
        """The rows that are due soon, if they are wanted; else none of them."""
        schema = pl.Schema({**self.table.schema, STALE: pl.Boolean()})
        frames = self._read(NEAR, range(self._size(NEAR).base if wanted else 0), schema)
        return DueSoon(self.buckets.place(pl.concat(frames)) if frames else self.table.no_rows, self.kept)

    def replace(
        self, looked: Collection[int], rows: Mapping[int, pl.DataFrame], near: pl.DataFrame, now: Times
    ) -> Index:
        """Has these rows, placed in their bucket, in place of what is in these, and those that are due soon."""
        columns = list(self.table.schema)
        parts = {bucket: part[columns] for bucket, part in rows.items()}
        if len(near):
            parts[NEAR] = near
        sizes = self._write(parts)
        for bucket in sorted({*looked, *parts, NEAR} & set(self.sizes)):
            gone = range(sizes.get(bucket, Size()).chunks, self.sizes[bucket].chunks)
            chunks.remove(self.store, self.stage, bucket, gone)
        described = [*rows.values()]
        if len(near) or not described:
            described.append(near[columns].with_columns(pl.lit(NEAR, pl.Int64).alias(BUCKET)))
        touched = {*looked, *sizes, NEAR}
        left = together(*described)
        return self.index.replace(touched, self._summary(left, sizes, now), _holds(left, now))

    def append(self, index: Index, waiting: pl.DataFrame, now: Times) -> Index:
        """Puts arrivals, with their bucket, beside its rows; `index` describes the rows already."""
        sizes = {}
        columns = list(self.table.incoming)
        for bucket, part in partition(waiting).items():
            written = chunks.write(self.store, self.stage, bucket, self._size(bucket).chunks, part[columns])
            sizes[bucket] = Size(chunks=len(written), log=sum(written))
        alone = self.kept.alone(waiting[columns], now).with_columns(waiting[BUCKET])
        return index.add(self._summary(alone, sizes, now), _holds(alone, now))

    def _size(self, bucket: int) -> Size:
        return self.sizes.get(bucket, Size())

    def _read(self, bucket: int, numbers: Iterable[int], schema: pl.Schema) -> list[pl.DataFrame]:
        return chunks.read(self.store, self.stage, bucket, numbers, schema, self.table.missing)

    def _write(self, parts: Mapping[int, pl.DataFrame]) -> dict[int, Size]:
        sizes = {}
        for bucket, part in parts.items():
            written = chunks.write(self.store, self.stage, bucket, 0, part)
            sizes[bucket] = Size(len(written), len(written), sum(written))
        return sizes

    def _summary(self, rows: pl.DataFrame, sizes: Mapping[int, Size], now: Times) -> pl.DataFrame:
        return summarize(rows, self.table, self.kept.deadlines(now), sizes)


def _holds(rows: pl.DataFrame, now: Times) -> dict[int, Histogram] | None:
    """Histograms of holds cost as much as they are long, so they are made only where somebody looks at them."""
    return histograms(rows) if now.percentiles else None
