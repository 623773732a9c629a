"""The directory of a large bucket: for each chunk the hashes of its keys and its least times, to find chunks to read.

A bucket is base rows followed by patches. A patch has new rows, and the numbers of the earlier rows that it deletes.
Each write adds its chunks and one directory entry:

    write            first (base rows)     patch                 patch
    chunks           rows/B/0  rows/B/1    rows/B/2              rows/B/3
    row numbers      0 .. 499  500 .. 799  800 .. 809            810 .. 812
    deletes          -                     17 (in chunk 0), 640  803
    directory entry  keys/B/0              keys/B/2              keys/B/3

An entry contains the deleted row numbers, four bytes of the key hash of each row, the bytes of its chunks, and for each
chunk its number of rows and its least times. A step that needs few keys reads the directory first, then only the chunks
that may contain one of these keys: none if all keys are new, few if the keys were written together.
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
"""The least time of a chunk in which that time is null in all rows."""

MOST_CHUNKS: Final = 0.5
"""The share of a bucket's chunks that may contain a key above which all chunks are read at once."""

SAMPLED: Final = 16
"""The first comparison uses one in this many row hashes: it shows cheaply that most chunks must be read."""

_ENTRIES: Final = "entries"


@attrs.frozen(eq=False)
class Directory:
    """The directory of a bucket: a key hash and a live flag for each row, by row number, and least times by chunk.

    `lengths` has the number of rows of each chunk. Rows from number `base_rows` on are from patches. `least` is keyed
    by index column, such as the hold. It includes deleted rows, so it may be earlier than the least of the live rows.
    """

    hashes: npt.NDArray[np.uint32]
    live: BucketMask
    lengths: Sequence[int]
    base_rows: int
    least: Mapping[str, npt.NDArray[np.int64]]

    @classmethod
    def read(cls, store: StateStore, stage: str, bucket: int, size: Size) -> Directory | None:
        """Reads the entries of a bucket of this size. None if an entry is missing or describes other chunks.

        Both happen in state that an earlier version of beamlike wrote.
        """
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
        # An earlier version, without directories, rewrote the chunks but left the entries. Their sizes differ then.
        if len(lengths) != size.chunks or stored != size.bytes + size.log:
            return None
        everything = np.concatenate(hashes)
        live = np.ones(len(everything), dtype=np.bool_)
        live[np.concatenate(deleted)] = False
        times = {name: np.concatenate([each[name] for each in least]) for name in least[0]}
        return cls(everything, BucketMask(live), lengths, sum(lengths[: size.base]), times)

    def chunks_with(self, keys: pl.DataFrame) -> list[int] | None:
        """Returns the numbers of the chunks that may contain a live row with one of these keys; None if most chunks
        may.

        No chunk with such a row is missing. Some chunks may be superfluous, as different keys may have the same hash.
        """
        requested, hashes = pl.Series(_hashes(keys, keys.columns)).implode(), pl.Series(self.hashes)
        for step in (SAMPLED, 1):  # first a sample of the rows, then all of them
            numbers = np.flatnonzero(hashes[::step].is_in(requested).to_numpy()) * step
            live = numbers[self.live[numbers]]
            chunks = np.unique(np.searchsorted(np.cumsum(self.lengths), live, side="right"))
            if len(chunks) > MOST_CHUNKS * len(self.lengths):
                return None
        return [int(chunk) for chunk in chunks]

    def numbers_in(self, chunks: Sequence[int]) -> RowNumbers:
        """Returns the numbers, within the bucket, of all rows in these chunks, chunk by chunk."""
        ends = np.cumsum(self.lengths)
        ranges = [np.arange(ends[chunk] - self.lengths[chunk], ends[chunk]) for chunk in chunks]
        return RowNumbers(np.concatenate([np.arange(0), *ranges]))

    def least_without(self, chunks: Sequence[int]) -> dict[str, tuple[int, int]]:
        """Returns the least times in all chunks except these, as (time, number of the chunk that has it), by index
        column.
        """
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
    """Writes the directory entry of a patch that was written as chunks from number `first` on.

    `times` are the expressions, by index column, of the times whose minima an index contains.
    """
    deleted = np.empty(0, np.uint32) if patch.deleted is None else patch.deleted.to_numpy()
    entries = np.concatenate([deleted, _hashes(patch.rows, keys)]).astype(np.uint32, copy=False)
    facts: dict[str, Any] = {"gone": len(deleted), "rows": written.rows, "bytes": sum(written.bytes)}
    facts["least"] = _least(patch.rows, written.rows, times)
    store.put(stage, _key(bucket, first), encode(pl.DataFrame({_ENTRIES: entries}), facts))


def remove_entries(
    store: StateStore, stage: str, bucket: int, size: Size, *, keep_first: bool = False
) -> None:
    """Removes the directory entries of a bucket that had this size; the entry of its base rows unless `keep_first`."""
    for number in range(size.base, size.chunks):
        store.delete(stage, _key(bucket, number))
    if not keep_first:
        store.delete(stage, _key(bucket, 0))


def _least(rows: pl.DataFrame, lengths: Sequence[int], times: Mapping[str, pl.Expr]) -> dict[str, list[int]]:
    """Returns the least time of each chunk, by index column. `lengths` are the numbers of rows of the chunks."""
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
    """Returns the lower half of each row's key hash. The upper bits are the same for all keys of a bucket."""
    hashes = rows.select(key_hash(keys)).to_series().to_numpy()
    return hashes.astype(np.uint32)


def _key(bucket: int, first: int) -> str:
    return f"keys/{bucket}/{first}"
