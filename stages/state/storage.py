"""The buckets of a stage in its store, as its index describes them: what is in them, and how it is replaced."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

import attrs
import numpy as np
import numpy.typing as npt
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


@attrs.frozen
class Content:
    """The rows of a bucket in their order: those that are `live`, and those that patches have replaced.

    The first `base` are no patches'.
    """

    rows: pl.DataFrame
    live: npt.NDArray[np.bool_]
    base: int


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
        rows = pl.concat(chunks.unpack(found, self.table.schema, self.table.missing) or [self.table.no_rows])
        live = np.ones(len(rows), dtype=np.bool_)
        for chunk in found:
            if chunk.gone is not None:
                live[chunk.gone.to_numpy()] = False
        return Content(rows, live, sum(chunk.rows for chunk in found[: size.base]))

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
        sizes = self._write(parts)
        for bucket in sorted({*looked, *parts, NEAR} & set(self.sizes)):
            gone = range(sizes.get(bucket, Size()).chunks, self.sizes[bucket].chunks)
            chunks.remove(self.store, self.stage, bucket, gone)
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
            sizes[bucket] = self.beside(bucket, chunks.Patch(part[columns]))
        alone = self.kept.alone(waiting[columns], now).with_columns(waiting[BUCKET])
        return index.add(self.summary(alone, sizes, now), holds_of(alone, now))

    def beside(self, bucket: int, patch: chunks.Patch) -> Size:
        """Puts this beside what there is in a bucket; gives what that takes."""
        written = chunks.write(self.store, self.stage, bucket, self.size(bucket).chunks, patch)
        return Size(chunks=len(written), log=sum(written))

    def size(self, bucket: int) -> Size:
        """What a bucket takes."""
        return self.sizes.get(bucket, Size())

    def summary(self, rows: pl.DataFrame, sizes: Mapping[int, Size], now: Times) -> pl.DataFrame:
        """What the index says of rows, with their bucket."""
        return summarize(rows, self.table, self.kept.deadlines(now), sizes)

    def _rows(self, bucket: int) -> list[pl.DataFrame]:
        size = self.size(bucket)
        if self.table.visited_by_key and size.chunks > size.base:
            content = self.content(bucket)
            return [content.rows.filter(content.live)]
        return self._read(bucket, range(size.base), self.table.schema)

    def _read(self, bucket: int, numbers: Iterable[int], schema: pl.Schema) -> list[pl.DataFrame]:
        found = chunks.read(self.store, self.stage, bucket, numbers)
        return chunks.unpack(found, schema, self.table.missing)

    def _write(self, parts: Mapping[int, pl.DataFrame]) -> dict[int, Size]:
        sizes = {}
        for bucket, part in parts.items():
            written = chunks.write(self.store, self.stage, bucket, 0, chunks.Patch(part))
            sizes[bucket] = Size(len(written), len(written), sum(written))
        return sizes


def holds_of(rows: pl.DataFrame, now: Times) -> dict[int, Histogram] | None:
    """Histograms of holds cost as much as they are long, so they are made only where somebody looks at them."""
    return histograms(rows) if now.percentiles else None
