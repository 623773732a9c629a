"""Rows that are only added, and found by key: sorted runs of chunks, whose least and greatest keys the index has.

What comes in a step is a run of its own. Eight runs of about a size become one of the next size, as long as that is
not large, so that a key is looked for in few runs however small the steps are. A chunk is read where a key that is
asked for may be in it: keys that grow with time, as ids do, lie together, and old ones are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import polars as pl

from stages.keys import key_text
from stages.sizes import size_of
from stages.state import chunks
from stages.state.buckets import BUCKET
from stages.state.index import Index, Size, summarize
from stages.state.storage import Storage
from windowing.clocks import Times

RUN: Final = "run"
LEVEL: Final = "level"
LEAST: Final = "least"
GREATEST: Final = "greatest"
"""Of a chunk: its run, how often that was merged, and between which keys its rows are."""

FAN: Final = 8
LARGE_BYTES: Final = 64_000_000
"""Runs that would together be larger in the store stay as they are."""

_PHYSICAL: Final = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)


@attrs.frozen
class Runs:
    """The chunks of a table whose rows are found by key; each is a bucket of its own in the index."""

    storage: Storage

    def everything(self) -> pl.DataFrame:
        """All rows."""
        return self._read(self._chunks[BUCKET].to_list())

    def find(self, keys: pl.DataFrame) -> pl.DataFrame:
        """The rows that have one of these keys; null is none."""
        asked = keys.drop_nulls()
        if asked.is_empty() or not self.storage.sizes:
            return self.storage.table.no_rows
        own, sorted_keys = self._keys, asked.select(self._place).to_series().unique().sort()
        known = self._chunks.filter(pl.col(LEAST).is_not_null())
        first = sorted_keys.search_sorted(known[LEAST], side="left")
        last = sorted_keys.search_sorted(known[GREATEST], side="right")
        found = known.filter(first < last)[BUCKET]
        parts = [self._read([bucket]).join(asked, on=own, how="semi") for bucket in found]
        return pl.concat([self.storage.table.no_rows, *parts])

    def add(self, rows: pl.DataFrame, now: Times) -> Index:
        """With these rows, the index after it."""
        if rows.is_empty():
            return self.storage.index
        index = self._written(self.storage.index, rows, 0, now)
        while merged := self._mergeable(index):
            index = self._merged(index, merged, now)
        return index

    @property
    def _keys(self) -> list[str]:
        return list(self.storage.table.keys)

    @property
    def _place(self) -> pl.Expr:
        """By what rows of a run are sorted, as a whole number or text: the first key."""
        key = self._keys[0]
        dtype = self.storage.table.schema[key]
        if dtype in _PHYSICAL or dtype.is_temporal():
            return pl.col(key).to_physical().cast(pl.Int64)
        return key_text(key)

    @property
    def _chunks(self) -> pl.DataFrame:
        return _known(self.storage.index)

    def _read(self, buckets: Sequence[int]) -> pl.DataFrame:
        return self.storage.rows(buckets)

    def _written(self, index: Index, rows: pl.DataFrame, level: int, now: Times) -> Index:
        """A new run."""
        storage, known = self.storage, _known(index)
        first, run = _next(known[BUCKET]), _next(known[RUN])
        placed = rows.with_columns(self._place.alias(LEAST)).sort(LEAST, nulls_last=True)
        pieces, sizes = -(-size_of(rows) // chunks.CHUNK_BYTES), {}
        bucket = pl.lit(first) + pl.int_range(pl.len()) * max(1, pieces) // max(1, len(rows))
        placed = placed.with_columns(bucket.cast(pl.Int64).alias(BUCKET))
        for (number,), part in placed.partition_by(BUCKET, as_dict=True, maintain_order=True).items():
            written = chunks.write(
                storage.store, storage.stage, number, 0, chunks.Patch(part.drop(BUCKET, LEAST))
            )
            sizes[number] = Size.of_rows(written)
        zones = placed.group_by(BUCKET).agg(
            pl.col(LEAST).min(),
            pl.col(LEAST).max().alias(GREATEST),
            pl.lit(run).alias(RUN),
            pl.lit(level).alias(LEVEL),
        )
        summary = summarize(placed.drop(LEAST), storage.table, storage.kept.deadlines(now), sizes)
        described = summary.join(zones, on=BUCKET)
        return attrs.evolve(index, buckets=pl.concat([known, described], how="diagonal_relaxed").sort(BUCKET))

    def _mergeable(self, index: Index) -> list[int]:
        """The newest runs, if as many of a size as can become one."""
        runs = (
            _known(index).group_by(RUN).agg(pl.col(LEVEL).first(), pl.col("bytes").sum()).sort(RUN).tail(FAN)
        )
        alike = len(runs) == FAN and runs[LEVEL].n_unique() == 1 and runs["bytes"].sum() <= LARGE_BYTES
        return runs[RUN].to_list() if alike else []

    def _merged(self, index: Index, runs: Sequence[int], now: Times) -> Index:
        """With one run in the place of these."""
        inside = pl.col(RUN).is_in(list(runs))
        gone, left = index.buckets.filter(inside), index.buckets.filter(~inside)
        storage = attrs.evolve(self.storage, index=index)
        rows = storage.rows(gone[BUCKET].to_list())
        merged = self._written(index, rows, int(gone[LEVEL][0]) + 1, now)
        for bucket, count in gone.select(BUCKET, "chunks").iter_rows():
            chunks.remove(storage.store, storage.stage, bucket, range(count))
        new = merged.buckets.filter(~pl.col(BUCKET).is_in(index.buckets[BUCKET].implode()))
        return attrs.evolve(merged, buckets=pl.concat([left, new], how="diagonal_relaxed").sort(BUCKET))


def _next(numbers: pl.Series) -> int:
    """The number after these, which count from 1."""
    return (numbers.max() or 0) + 1  # type: ignore[operator,return-value]


def _known(index: Index) -> pl.DataFrame:
    """The chunks; an index in which nothing has been put yet does not say which keys they have."""
    if LEAST in index.buckets.columns:
        return index.buckets
    nothing = {RUN: pl.Int64(), LEVEL: pl.Int64(), LEAST: pl.Null(), GREATEST: pl.Null()}
    return index.buckets.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in nothing.items())
