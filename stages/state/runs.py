"""Rows that are only appended, and looked up by key: runs of chunks sorted by key, as in a log-structured merge tree.

    index, a row per chunk    bucket 9        bucket 10       bucket 11       bucket 12
    run, level                9, level 1      9, level 1      10, level 0     11, level 0
    least .. greatest key     a .. k          k .. z          c .. q          b .. b

Each step appends a run. Eight runs of one level become one run of the next level, unless that would be large, so a key
is looked up in few runs even if steps are small. A chunk is read if a requested key is between its least and greatest
key. Keys that grow with time, as ids do, are stored together, so a lookup of new ones reads no old chunks.
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
"""The index columns of a chunk: its run, how often that was merged, and its least and greatest key."""

FAN: Final = 8
LARGE_BYTES: Final = 64_000_000
"""The size in the store above which runs are not merged."""

_PHYSICAL: Final = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)


@attrs.frozen
class Runs:
    """The sorted runs of a table. Each chunk is a bucket of its own in the index."""

    storage: Storage

    def everything(self) -> pl.DataFrame:
        """Reads all rows."""
        return self._read(self._chunks[BUCKET].to_list())

    def lookup(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Reads the rows that have one of these keys; a null matches nothing."""
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

    def append(self, rows: pl.DataFrame, now: Times) -> Index:
        """Writes rows as a new run, and merges runs; returns the index afterwards."""
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
        """The sort key of the rows in a run: the first key column, as an integer or as text."""
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
        """Writes a new run; returns the index afterwards."""
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
        """The numbers of the newest runs, if they are eight of one level that may be merged; otherwise empty."""
        runs = (
            _known(index).group_by(RUN).agg(pl.col(LEVEL).first(), pl.col("bytes").sum()).sort(RUN).tail(FAN)
        )
        alike = len(runs) == FAN and runs[LEVEL].n_unique() == 1 and runs["bytes"].sum() <= LARGE_BYTES
        return runs[RUN].to_list() if alike else []

    def _merged(self, index: Index, runs: Sequence[int], now: Times) -> Index:
        """Merges runs into one of the next level; returns the index afterwards."""
        inside = pl.col(RUN).is_in(list(runs))
        old, others = index.buckets.filter(inside), index.buckets.filter(~inside)
        storage = attrs.evolve(self.storage, index=index)
        rows = storage.rows(old[BUCKET].to_list())
        merged = self._written(index, rows, int(old[LEVEL][0]) + 1, now)
        for bucket, count in old.select(BUCKET, "chunks").iter_rows():
            chunks.remove(storage.store, storage.stage, bucket, range(count))
        new = merged.buckets.filter(~pl.col(BUCKET).is_in(index.buckets[BUCKET].implode()))
        return attrs.evolve(merged, buckets=pl.concat([others, new], how="diagonal_relaxed").sort(BUCKET))


def _next(numbers: pl.Series) -> int:
    """The next number; numbers begin at 1."""
    return (numbers.max() or 0) + 1  # type: ignore[operator,return-value]


def _known(index: Index) -> pl.DataFrame:
    """The index rows of chunks. The index of an empty table lacks the columns of runs, which are added here."""
    if LEAST in index.buckets.columns:
        return index.buckets
    nothing = {RUN: pl.Int64(), LEVEL: pl.Int64(), LEAST: pl.Null(), GREATEST: pl.Null()}
    return index.buckets.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in nothing.items())
