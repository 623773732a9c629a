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

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.state.chunks import Patch, Written
from stages.state.index import Size
from stages.state.lookup import Hashes, HashIndex
from stages.state.row_numbers import BucketMask, Positions, RowNumbers
from stages.state.store import StateStore, decode, encode

NEVER: Final = 2**63 - 1
"""The least time of a chunk in which that time is null in all rows."""

FAN: Final = 4
"""The number of patches of about the same number of rows that are merged into one."""

_ENTRIES: Final = "entries"


@attrs.frozen(eq=False)
class Entry:
    """The part of a directory that describes the chunks of one write.

    Attributes:
        index: A key hash for each row.
        deleted: The row numbers that the write deletes.
        rows: The number of rows of each chunk.
        stored: The bytes of all of these chunks in the store.
        least: The least times of each chunk, by index column.
    """

    index: HashIndex
    deleted: npt.NDArray[np.uint32]
    rows: Sequence[int]
    stored: int
    least: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, value: bytes) -> Entry:
        """Decodes a value that `write_entry` put into the store."""
        entries, facts = decode(value)
        numbers, gone = entries[_ENTRIES].to_numpy(), facts["gone"]
        return cls(HashIndex(numbers[gone:]), numbers[:gone], facts["rows"], facts["bytes"], facts["least"])

    @property
    def length(self) -> int:
        """The number of rows."""
        return len(self.index.hashes)

    @property
    def size(self) -> int:
        """The approximate number of bytes in memory."""
        return self.index.size + self.deleted.nbytes


@attrs.frozen(slots=False, eq=False)
class Directory:
    """The directory of a bucket: key hashes by write, a live flag for each row number, and least times by chunk.

    `lengths` has the number of rows of each chunk. Rows from number `base_rows` on are from patches. `least` is keyed
    by index column, such as the hold. It includes deleted rows, so it may be earlier than the least of the live rows.
    """

    entries: Sequence[Entry]
    live: BucketMask
    lengths: Sequence[int]
    base_rows: int
    least: Mapping[str, npt.NDArray[np.int64]]

    @classmethod
    def read(cls, store: StateStore, stage: str, bucket: int, size: Size) -> Directory | None:
        """Reads the entries of a bucket of this size. None if an entry is missing or describes other chunks.

        Both happen in state that an earlier version of beamlike wrote.
        """
        entries, chunks = list[Entry](), 0
        while chunks < size.chunks:
            entry = store.decoded(stage, _key(bucket, chunks), Entry.of)
            if entry is None:
                return None
            entries.append(entry)
            chunks += len(entry.rows)
        # An earlier version, without directories, rewrote the chunks but left the entries. Their sizes differ then.
        if chunks != size.chunks or sum(entry.stored for entry in entries) != size.bytes + size.log:
            return None
        live = np.ones(sum(entry.length for entry in entries), dtype=np.bool_)
        live[np.concatenate([entry.deleted for entry in entries])] = False
        lengths = [rows for entry in entries for rows in entry.rows]
        least = {name: np.concatenate([entry.least[name] for entry in entries]) for name in entries[0].least}
        return cls(entries, BucketMask(live), lengths, sum(lengths[: size.base]), least)

    def numbers_at(self, positions: Iterable[Positions]) -> RowNumbers:
        """Returns the numbers of the live rows at these positions among the rows of each entry."""
        found, first = [np.arange(0)], 0
        for entry, here in zip(self.entries, positions, strict=True):
            found.append(first + here)
            first += entry.length
        numbers = np.concatenate(found)
        return RowNumbers(numbers[self.live[numbers]])

    def hashes_at(self, numbers: RowNumbers) -> Hashes:
        """Returns the key hashes of these rows, whose numbers are ascending."""
        starts = np.cumsum([0, *(entry.length for entry in self.entries)])
        parts = np.split(numbers, np.searchsorted(numbers, starts[1:-1]))
        return np.concatenate(
            [
                entry.index.hashes[part - start]
                for entry, part, start in zip(self.entries, parts, starts, strict=False)
            ]
        )

    def mergeable(self, rows: int) -> int:
        """Returns the number of patches, counted from the last, to merge with the next one, which has so many rows.

        A row is rewritten as often as its patch has grown by the factor `FAN`, and so many patches of each size remain.
        """
        merged, patches = 0, self.entries[1:]
        while True:
            size = FAN * (rows + sum(entry.length for entry in patches[len(patches) - merged :]))
            alike = merged
            while alike < len(patches) and patches[-1 - alike].length < size:
                alike += 1
            if alike - merged < FAN - 1:
                return merged
            merged = alike

    @cached_property
    def ends(self) -> npt.NDArray[np.intp]:
        """For each chunk, the number of the row after its last one."""
        return np.cumsum(self.lengths)


@attrs.frozen(eq=False)
class Described:
    """The facts of rows that a directory contains: the hashes of their keys, and their times by index column."""

    hashes: Hashes
    times: Mapping[str, npt.NDArray[np.int64]]

    def between(self, first: int, last: int) -> Described:
        """Returns the facts of the rows from position `first` to `last` (exclusive)."""
        return Described(
            self.hashes[first:last], {name: values[first:last] for name, values in self.times.items()}
        )


def write_entry(
    store: StateStore, stage: str, bucket: int, first: int, patch: Patch, written: Written, facts: Described
) -> None:
    """Writes the directory entry of a patch that was written as chunks from number `first` on."""
    deleted = np.empty(0, np.uint32) if patch.deleted is None else patch.deleted.to_numpy()
    entries = np.concatenate([deleted, facts.hashes]).astype(np.uint32, copy=False)
    about: dict[str, Any] = {"gone": len(deleted), "rows": written.rows, "bytes": sum(written.bytes)}
    about["least"] = {name: _least(values, written.rows) for name, values in facts.times.items()}
    store.put(stage, _key(bucket, first), encode(pl.DataFrame({_ENTRIES: entries}), about))


def remove_entries(
    store: StateStore, stage: str, bucket: int, size: Size, *, keep_first: bool = False
) -> None:
    """Removes the directory entries of a bucket that had this size; the entry of its base rows unless `keep_first`."""
    for number in range(size.base, size.chunks):
        store.delete(stage, _key(bucket, number))
    if not keep_first:
        store.delete(stage, _key(bucket, 0))


def remove_later_entries(
    store: StateStore, stage: str, bucket: int, first: int, entries: Sequence[Entry]
) -> None:
    """Removes the entries of adjacent writes, except the first one, whose chunks are numbered from `first` on."""
    for entry in entries[:-1]:
        first += len(entry.rows)
        store.delete(stage, _key(bucket, first))


def _least(times: npt.NDArray[np.int64], lengths: Sequence[int]) -> list[int]:
    """Returns the least time of each chunk. `lengths` are the numbers of rows of the chunks."""
    ends = np.cumsum(lengths)
    return [
        int(times[end - length : end].min(initial=NEVER)) for end, length in zip(ends, lengths, strict=True)
    ]


def _key(bucket: int, first: int) -> str:
    return f"keys/{bucket}/{first}"
