"""Append-only tables: sorted runs of chunks that are looked up by key, as in a log-structured merge tree.

    index, a row per chunk    bucket 9        bucket 10       bucket 11       bucket 12
    run, level                9, level 1      9, level 1      10, level 0     11, level 0
    least .. greatest key     a .. k          k .. z          c .. q          b .. b

Each step appends a run. Eight runs of one level are merged into one run of the next level, if it is at most
LARGE_BYTES. So a lookup searches few runs, even after many small steps. A chunk is read if a requested key is between
its least and greatest key. Keys that grow with time, such as ids, are near each other: a lookup of new ids reads no
old chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np
import polars as pl

from stages.frames import concat_nonempty
from stages.keys import key_text
from stages.state import chunks
from stages.state.buckets import BUCKET
from stages.state.index import Index, Size
from stages.state.lookup import Searched, chunks_among, lower_hashes
from stages.state.store import StateStore
from stages.state.summary import summarize
from stages.state_tables import AppendTable, StateTable
from windowing.clocks import Times

RUN: Final = "run"
LEVEL: Final = "level"
LEAST: Final = "least"
GREATEST: Final = "greatest"
"""The index columns of a chunk: its run, the level of the run (the number of merges), its least and greatest key."""

FAN: Final = 8
"""The number of runs of one level that are merged at a time."""
LARGE_BYTES: Final = 64_000_000
"""The size in the store (bytes) above which runs are not merged."""

FEW_OF: Final = 8
"""Rows are found by their hashes if at most one in this many rows of a chunk may have a requested key."""

_PHYSICAL: Final = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)


@attrs.frozen(slots=False)
class Runs:
    """The sorted runs of an append-only table. In the index, each chunk is a bucket of its own."""

    stage: str
    state_table: StateTable[AppendTable]
    store: StateStore
    index: Index

    @property
    def table(self) -> AppendTable:
        """The description of the append-only table."""
        return self.state_table.table

    @cached_property
    def sizes(self) -> dict[int, Size]:
        """The sizes of the existing chunks by bucket number."""
        return self.index.sizes()

    def everything(self) -> pl.DataFrame:
        """Reads all rows of the table."""
        return self._read(self._chunks[BUCKET].to_list())

    def lookup(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Reads the rows that have one of these keys. A null key matches no row."""
        requested = keys.drop_nulls()
        if requested.is_empty() or not self.sizes:
            return self.table.no_rows
        own, placed = self._keys, requested.with_columns(self._place.alias(LEAST)).sort(LEAST)
        hashes, sorted_keys = lower_hashes(placed, own), placed[LEAST]
        known = self._chunks.filter(pl.col(LEAST).is_not_null())
        # The requested keys in the range of a chunk are between the places of its two ends among the sorted keys.
        first = sorted_keys.search_sorted(known[LEAST], side="left")
        last = sorted_keys.search_sorted(known[GREATEST], side="right")
        parts = [self.table.no_rows]
        for bucket, rows, start, end in zip(known[BUCKET], known["rows"], first, last, strict=True):
            if FEW_OF * (end - start) > rows:
                parts.append(self._read([bucket]).join(requested, on=own, how="semi"))
            elif start < end:
                found, asked = self._chunks_of(bucket), np.unique(hashes[start:end])
                searched = [Searched(found, asked)]
                some = chunks_among(searched, asked, own, self.table.schema, self.table.missing)
                parts += chunks.unpack(some, self.table.schema, self.table.missing)
        return pl.concat(parts).join(requested, on=own, how="semi")

    def append(self, rows: pl.DataFrame, now: Times) -> Index:
        """Writes rows as a new run, merges small runs, and returns the new index."""
        if rows.is_empty():
            return self.index
        index = self._written(self.index, rows, 0, now)
        while merged := self._mergeable(index):
            index = self._merged(index, merged, now)
        return index

    @property
    def _keys(self) -> list[str]:
        return list(self.table.keys)

    @property
    def _place(self) -> pl.Expr:
        """The expression by which a run is sorted: the first key column, as an integer or as text."""
        key = self._keys[0]
        dtype = self.table.schema[key]
        if dtype in _PHYSICAL or dtype.is_temporal():
            return pl.col(key).to_physical().cast(pl.Int64)
        return key_text(key)

    @property
    def _chunks(self) -> pl.DataFrame:
        return _known(self.index)

    def _chunks_of(self, bucket: int) -> list[chunks.Chunk]:
        return chunks.read(self.store, self.stage, bucket, range(self.sizes[bucket].base), again=True)

    def _read(self, buckets: Sequence[int]) -> pl.DataFrame:
        frames = []
        for bucket in sorted(buckets):
            frames += chunks.unpack(self._chunks_of(bucket), self.table.schema, self.table.missing)
        return concat_nonempty(self.table.no_rows, *frames)

    def _written(self, index: Index, rows: pl.DataFrame, level: int, now: Times) -> Index:
        """Writes rows as a new run of the level `level`, and returns the new index."""
        known = _known(index)
        first, run = _next(known[BUCKET]), _next(known[RUN])
        placed = rows.with_columns(self._place.alias(LEAST)).sort(LEAST, nulls_last=True)
        pieces, sizes = chunks.pieces_of(rows, self.store), {}
        bucket = pl.lit(first) + pl.int_range(pl.len()) * max(1, pieces) // max(1, len(rows))
        placed = placed.with_columns(bucket.cast(pl.Int64).alias(BUCKET))
        for (number,), part in placed.partition_by(BUCKET, as_dict=True, maintain_order=True).items():
            patch = chunks.Patch(part.drop(BUCKET, LEAST))
            written = chunks.write(self.store, self.stage, number, 0, patch)
            sizes[number] = Size.of_rows(written)
        zones = placed.group_by(BUCKET).agg(
            pl.col(LEAST).min(),
            pl.col(LEAST).max().alias(GREATEST),
            pl.lit(run).alias(RUN),
            pl.lit(level).alias(LEVEL),
        )
        summary = summarize(placed.drop(LEAST), self.table, self.state_table.deadlines(now), sizes)
        described = summary.join(zones, on=BUCKET)
        return attrs.evolve(index, buckets=pl.concat([known, described], how="diagonal_relaxed").sort(BUCKET))

    def _mergeable(self, index: Index) -> list[int]:
        """Returns the numbers of the FAN newest runs, if they have one level and are small enough to merge; otherwise
        empty.
        """
        runs = (
            _known(index).group_by(RUN).agg(pl.col(LEVEL).first(), pl.col("bytes").sum()).sort(RUN).tail(FAN)
        )
        alike = len(runs) == FAN and runs[LEVEL].n_unique() == 1 and runs["bytes"].sum() <= LARGE_BYTES
        return runs[RUN].to_list() if alike else []

    def _merged(self, index: Index, runs: Sequence[int], now: Times) -> Index:
        """Merges runs into one run of the next level, and returns the new index."""
        inside = pl.col(RUN).is_in(list(runs))
        old, others = index.buckets.filter(inside), index.buckets.filter(~inside)
        rows = attrs.evolve(self, index=index)._read(old[BUCKET].to_list())
        # The new run has bucket numbers of its own, so it does not overwrite chunks of the old ones.
        left = self.state_table.merged(rows)
        merged = self._written(index, left, int(old[LEVEL][0]) + 1, now)
        for bucket, count in old.select(BUCKET, "chunks").iter_rows():
            chunks.remove(self.store, self.stage, bucket, range(count))
        new = merged.buckets.filter(~pl.col(BUCKET).is_in(index.buckets[BUCKET].implode()))
        return attrs.evolve(merged, buckets=pl.concat([others, new], how="diagonal_relaxed").sort(BUCKET))


def _next(numbers: pl.Series) -> int:
    """Returns the first unused number, of a run or bucket: the greatest of these numbers plus 1; 1 if there are
    none.
    """
    return (numbers.max() or 0) + 1  # type: ignore[operator,return-value]


def _known(index: Index) -> pl.DataFrame:
    """Returns the index rows of the chunks. Adds the columns of runs if they are missing, as in the index of an empty
    table.
    """
    if LEAST in index.buckets.columns:
        return index.buckets
    nothing = {RUN: pl.Int64(), LEVEL: pl.Int64(), LEAST: pl.Null(), GREATEST: pl.Null()}
    return index.buckets.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in nothing.items())
