"""The directory of a large bucket: key hashes and least times of its rows, by which a step finds the chunks to read.

A bucket is base rows and, in the order in which they were written, patches: rows, and the numbers of the rows before
them that they delete. Each write adds its chunks and one directory entry:

    write            first (base rows)     patch                 patch
    chunks           rows/B/0  rows/B/1    rows/B/2              rows/B/3
    row numbers      0 .. 499  500 .. 799  800 .. 809            810 .. 812
    deletes          -                     17 (in chunk 0), 640  803
    directory entry  keys/B/0              keys/B/2              keys/B/3

An entry contains the deleted numbers, four bytes of the key hash of each row, and for each chunk its length, its size
in bytes and its least times. A step that needs few keys reads the directory first, and then only the chunks that may
contain one of them: no chunk if all keys are new, and few if the keys arrived together and so are stored together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.keys import key_hash
from stages.state.chunks import Patch, Written
from stages.state.index import Size
from stages.state.row_numbers import BucketMask, RowNumbers
from stages.state.store import StateStore, decode, encode

NEVER: Final = 2**63 - 1
"""The least time of a chunk in which no row has that time."""

MOST_CHUNKS: Final = 0.5
"""The share of a bucket's chunks above which all of them are read, so that none is read twice."""

SAMPLED: Final = 16
"""One in this many rows is looked up first."""

_ENTRIES: Final = "entries"


@attrs.frozen(eq=False)
class Directory:
    """Key hashes and liveness of all rows of a bucket, by row number, and the least times of each chunk.

    `lengths` has the number of rows of each chunk. The first `base_rows` rows are not from patches. `least` is keyed by
    the index column of a time and includes deleted rows, so it may be earlier than the least time of the live rows.
    """

    hashes: npt.NDArray[np.uint32]
    live: BucketMask
    lengths: Sequence[int]
    base_rows: int
    least: Mapping[str, npt.NDArray[np.int64]]

    @classmethod
    def read(cls, store: StateStore, stage: str, bucket: int, size: Size) -> Directory | None:
        """Reads the entries of a bucket; None if one is missing (earlier versions) or describes other chunks."""
        hashes, deleted, lengths, stored, least = [], [], list[int](), 0, []
        while len(lengths) < size.chunks:
            value = store.get(stage, _key(bucket, len(lengths)))
            if value is None:
                return None
            entries, facts = decode(value)
            numbers = entries[_ENTRIES].to_numpy()
            deleted.append(numbers[: facts["gone"]])
            hashes.append(numbers[facts["gone"] :])
            lengths += facts["rows"]
            stored += facts["bytes"]
            least.append(facts["least"])
        # A version that does not know entries leaves them when it rewrites the chunks. Their sizes differ then.
        if len(lengths) != size.chunks or stored != size.bytes + size.log:
            return None
        everything = np.concatenate(hashes)
        live = np.ones(len(everything), dtype=np.bool_)
        live[np.concatenate(deleted)] = False
        times = {name: np.concatenate([each[name] for each in least]) for name in least[0]}
        return cls(everything, BucketMask(live), lengths, sum(lengths[: size.base]), times)

    def chunks_with(self, keys: pl.DataFrame) -> list[int] | None:
        """The chunks that may contain live rows with one of these keys; None if they are most of the chunks.

        No chunk with such a row is left out. Different keys may have the same hash.
        """
        requested, hashes = pl.Series(_hashes(keys, keys.columns)).implode(), pl.Series(self.hashes)
        for step in (SAMPLED, 1):  # if the keys are in most chunks, a sample of the rows shows it
            numbers = np.flatnonzero(hashes[::step].is_in(requested).to_numpy()) * step
            live = numbers[self.live[numbers]]
            chunks = np.unique(np.searchsorted(np.cumsum(self.lengths), live, side="right"))
            if len(chunks) > MOST_CHUNKS * len(self.lengths):
                return None
        return [int(chunk) for chunk in chunks]

    def numbers_in(self, chunks: Sequence[int]) -> RowNumbers:
        """The numbers of the rows in these chunks."""
        ends = np.cumsum(self.lengths)
        ranges = [np.arange(ends[chunk] - self.lengths[chunk], ends[chunk]) for chunk in chunks]
        return RowNumbers(np.concatenate([np.arange(0), *ranges]))

    def least_without(self, chunks: Sequence[int]) -> dict[str, tuple[int, int]]:
        """The least of each time in the other chunks, as (time, number of its chunk), by index column."""
        others = np.setdiff1d(np.arange(len(self.lengths)), chunks)
        if not len(others):
            return {}
        first = {name: others[values[others].argmin()] for name, values in self.least.items()}
        return {name: (int(self.least[name][chunk]), int(chunk)) for name, chunk in first.items()}


def write_entry(
    store: StateStore,
    stage: str,
    bucket: int,
    first: int,
    *,
    patch: Patch,
    written: Written,
    keys: Sequence[str],
    times: Mapping[str, pl.Expr],
) -> None:
    """Writes the entry of a patch that was written as chunks from number `first` on.

    `times` are the expressions of the times whose minima the index has, by index column.
    """
    deleted = np.empty(0, np.uint32) if patch.deleted is None else patch.deleted.to_numpy()
    entries = np.concatenate([deleted, _hashes(patch.rows, keys)]).astype(np.uint32, copy=False)
    facts: dict[str, Any] = {"gone": len(deleted), "rows": written.rows, "bytes": sum(written.bytes)}
    facts["least"] = _least(patch.rows, written.rows, times)
    store.put(stage, _key(bucket, first), encode(pl.DataFrame({_ENTRIES: entries}), facts))


def remove_entries(
    store: StateStore, stage: str, bucket: int, size: Size, *, keep_first: bool = False
) -> None:
    """Removes the entries of a bucket that had this size; `keep_first` keeps the entry of its first write."""
    for number in range(size.base, size.chunks):
        store.delete(stage, _key(bucket, number))
    if not keep_first:
        store.delete(stage, _key(bucket, 0))


def _least(rows: pl.DataFrame, lengths: Sequence[int], times: Mapping[str, pl.Expr]) -> dict[str, list[int]]:
    """The least of each time in each chunk, by index column."""
    found = rows.select(time.fill_null(NEVER).alias(name) for name, time in times.items())
    ends = np.cumsum(lengths)
    return {
        values.name: [
            int(values.to_numpy()[end - length : end].min(initial=NEVER))
            for end, length in zip(ends, lengths, strict=True)
        ]
        for values in found
    }


def _hashes(rows: pl.DataFrame, keys: Sequence[str]) -> npt.NDArray[np.uint32]:
    """The half of the key hashes that does not decide the bucket of a key."""
    hashes = rows.select(key_hash(keys)).to_series().to_numpy()
    return hashes.astype(np.uint32)  # the lower half


def _key(bucket: int, first: int) -> str:
    return f"keys/{bucket}/{first}"
