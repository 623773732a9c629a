"""Searches rows by the hash of their key: in the entries of a directory, and in chunks that were decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final
from weakref import ref

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.keys import hashed
from stages.state.buckets import BUCKET
from stages.state.chunks import Chunk, gathered, unpack
from stages.state.row_numbers import Positions

Hashes = npt.NDArray[np.uint32]

INDEX_BYTES: Final = 16
"""The approximate number of bytes in memory for each row of an index."""

_BITS: Final = 32  # of a hash
_MOST_BITS: Final = 24
_OFTEN: Final = 8
"""Hashes are sorted if they are more than the requested ones times this; otherwise it is faster to look at each."""

_SETTLED: Final = 8
"""The number of searches from which an index may be in a block."""
_MEMBERS: Final = 8
"""The number of indices from which they are made to a block."""
_LONGEST: Final = 4_000_000
"""The approximate number of hashes of a block at most, which bounds the time for which a step sorts them."""


@attrs.define(eq=False)
class HashIndex:
    """The key hashes of some rows, in their order. Many are sorted when they are searched for the second time.

    Hashes are distributed evenly. So a table with the place of the first hash for each value of the leading bits leaves
    one hash or two to look at:

        sorted hashes    03 0f 4a 8b 8c f1
        leading bits     00    01 10    11
        first place      0     2  3     5  (6)

    To sort them takes longer than one search, and hashes that no store remembers are searched once.

    `block` is the block of which the index is a member, if any; it has the sorted hashes then.
    """

    hashes: Hashes
    block: Block | None = attrs.field(default=None, init=False)
    _searches: int = attrs.field(default=0, init=False)
    _sorted: _Sorted | None = attrs.field(default=None, init=False)

    @property
    def size(self) -> int:
        """The approximate number of bytes in memory, sorted hashes and their table included."""
        return INDEX_BYTES * len(self.hashes)

    def find(self, requested: Hashes) -> Positions:
        """Returns the positions of the rows that have one of these hashes, which are sorted and distinct."""
        self._searches += 1
        if self._searches > 1 and len(self.hashes) > _OFTEN * len(requested):
            self._sorted = self._sorted or _Sorted.of(self.hashes)
            return self._sorted.find(requested)
        return _unsorted(self.hashes, requested)

    @property
    def settled(self) -> bool:
        """True if the index has been searched so often that its rows will probably not be rewritten soon."""
        return self._searches >= _SETTLED

    def join(self, block: Block) -> None:
        """Becomes a member of a block."""
        self.block, self._sorted = block, None


@attrs.frozen(eq=False)
class Block:
    """The hashes of several indices, sorted together, so that one search finds the rows of all.

    Buckets by time have the same keys, so each of them is searched for all requested hashes. Buckets other than the
    newest ones seldom change.

    An index whose rows were rewritten is no longer searched. The block only notices that it is gone.
    """

    members: Sequence[ref[HashIndex]]
    ends: npt.NDArray[np.intp]
    sorted: _Sorted

    @classmethod
    def of(cls, indices: Sequence[HashIndex]) -> Block:
        """Creates a block with these indices as its members."""
        ends = np.cumsum([len(index.hashes) for index in indices])
        hashes = np.concatenate([index.hashes for index in indices])
        block = cls([ref(index) for index in indices], ends, _Sorted.of(hashes))
        for index in indices:
            index.join(block)
        return block

    @property
    def length(self) -> int:
        """The number of hashes."""
        return int(self.ends[-1])

    @property
    def worn(self) -> bool:
        """True if less than half of the hashes are those of an index that still exists."""
        alive = [index for member in self.members if (index := member()) is not None]
        return 2 * sum(len(index.hashes) for index in alive) < self.length

    def find(self, requested: Hashes) -> dict[HashIndex, Positions]:
        """Returns the positions of the rows with one of these hashes, which are sorted and distinct, by index."""
        found = self.sorted.find(requested)
        parts = np.split(found, np.searchsorted(found, self.ends)[:-1])
        starts = np.append(0, self.ends[:-1])
        return {
            index: Positions(part - start)
            for member, part, start in zip(self.members, parts, starts, strict=True)
            if (index := member()) is not None
        }


def find_each(indices: Sequence[HashIndex], asked: Sequence[Hashes], requested: Hashes) -> list[Positions]:
    """Returns for each index the positions of the rows that have one of the hashes asked of it, and perhaps of others
    that have one of all `requested` ones.
    """
    _form_blocks(indices, len(requested))
    found = dict[HashIndex, Positions]()
    for block in {index.block for index in indices if index.block is not None}:
        if block.length > _OFTEN * len(requested):
            found |= block.find(requested)
    return [
        found[index] if index in found else index.find(own) for index, own in zip(indices, asked, strict=True)
    ]


def _form_blocks(indices: Sequence[HashIndex], requested: int) -> None:
    """Dissolves blocks that are worn, and makes blocks of settled indices as soon as there are enough of them."""
    for index in indices:
        if index.block is not None and index.block.worn:
            index.block = None
    single = [index for index in indices if index.block is None and index.settled]
    while len(single) >= _MEMBERS:
        count = max(2, int(np.searchsorted(np.cumsum([len(index.hashes) for index in single]), _LONGEST)))
        if sum(len(index.hashes) for index in single[:count]) > _OFTEN * requested:
            Block.of(single[:count])
        single = single[count:]


def _unsorted(hashes: Hashes, requested: Hashes) -> Positions:
    """Finds hashes by a table that has, for each value of the leading bits, whether it is that of a requested hash."""
    shift = np.uint32(_BITS - min(_MOST_BITS, len(requested).bit_length() + 5))
    flags = np.zeros(1 << _BITS - int(shift), np.bool_)
    flags[requested >> shift] = True
    positions = np.flatnonzero(flags[hashes >> shift])
    found = hashes[positions]
    places = np.searchsorted(requested, found)
    return Positions(positions[requested[np.minimum(places, len(requested) - 1)] == found])


@attrs.frozen(eq=False)
class _Sorted:
    """Sorted hashes with their positions. `starts` has, for each value of the leading bits, the place of the first."""

    hashes: Hashes
    positions: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.uint32]
    shift: np.uint32

    @classmethod
    def of(cls, hashes: Hashes) -> _Sorted:
        order = np.argsort(hashes)
        bits = max(1, len(hashes).bit_length() - 1)
        shift = np.uint32(_BITS - bits)
        counts = np.bincount((hashes >> shift).astype(np.intp), minlength=1 << bits)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
        return cls(hashes[order], order.astype(np.uint32), starts, shift)

    def find(self, requested: Hashes) -> Positions:
        """Returns the ascending positions of the hashes that are among the requested ones, which are distinct."""
        leading = (requested >> self.shift).astype(np.intp)
        first, last = self.starts[leading], self.starts[leading + 1]
        some = np.flatnonzero(last > first)
        first, counts = first[some].astype(np.intp), (last[some] - first[some]).astype(np.intp)
        # The ranges first, first + 1, ..., first + count - 1 of all requested hashes, one after the other.
        starts = np.repeat(first - (np.cumsum(counts) - counts), counts)
        places = starts + np.arange(len(starts))
        same = self.hashes[places] == np.repeat(requested[some], counts)
        return Positions(np.sort(self.positions[places[same]]).astype(np.intp))


def lower_hashes(rows: pl.DataFrame, keys: Sequence[str]) -> Hashes:
    """Returns the lower half of each row's key hash. The upper bits are the same for all keys of a bucket."""
    return hashed(rows, keys).to_numpy().astype(np.uint32)


@attrs.frozen(slots=False, eq=False)
class Requested:
    """The keys that a step searches for: `keys` has a row for each, and `hashes` the sorted hashes of all 64 bits."""

    keys: pl.DataFrame
    hashes: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, keys: pl.DataFrame) -> Requested:
        return cls(keys, np.sort(hashed(keys, keys.columns).to_numpy()))

    @property
    def columns(self) -> list[str]:
        """The names of the key columns."""
        return self.keys.columns

    @cached_property
    def all(self) -> Hashes:
        """The lower halves of all hashes, sorted and distinct."""
        return _distinct(self.hashes)

    def between(self, first: int, last: int) -> Hashes:
        """Returns the lower halves of the hashes from `first` to `last`, sorted and distinct."""
        start = np.searchsorted(self.hashes, np.uint64(first), side="left")
        end = np.searchsorted(self.hashes, np.uint64(last), side="right")
        return self.all if end - start == len(self.hashes) else _distinct(self.hashes[start:end])


def _distinct(hashes: npt.NDArray[np.uint64]) -> Hashes:
    lower: Hashes = np.sort(hashes.astype(np.uint32))
    return lower[np.append(lower[1:] != lower[:-1], True)] if len(lower) else lower


def hashes_by_bucket(placed: pl.DataFrame, keys: Sequence[str]) -> dict[int, Hashes]:
    """Returns the lower halves of the key hashes of each bucket, sorted and distinct. Rows have the column BUCKET."""
    both = placed[BUCKET].to_numpy().astype(np.uint64) << np.uint64(32) | lower_hashes(placed, keys)
    both.sort()
    both = both[np.diff(both, prepend=~both[:1]) != 0]
    buckets = both >> np.uint64(32)
    starts = np.flatnonzero(np.diff(buckets, prepend=~buckets[:1]))
    parts = np.split(both.astype(np.uint32), starts[1:])
    # The number of the due-soon buffer is negative.
    numbers = buckets[starts].astype(np.uint32).view(np.int32).tolist()
    return dict(zip(numbers, parts, strict=False))


def searched_together(base: int, chunks: int) -> Iterator[tuple[int, int]]:
    """Divides the chunks of a bucket into ranges that are searched together: `base` ones, and ranges of the log.

    Those of the log have different powers of two as lengths. So few change when a chunk is appended.
    """
    first = base
    if first:
        yield 0, first
    while rest := chunks - first:
        length = 1 << rest.bit_length() - 1
        yield first, first + length
        first += length


def divided(numbers: npt.NDArray[np.intp], lengths: Sequence[int]) -> Iterator[tuple[int, Positions]]:
    """Divides ascending numbers of rows by chunk, as (number of the chunk, positions within it).

    `lengths` are the numbers of rows of the chunks. Chunks without such a row are left out.
    """
    ends = np.cumsum(lengths)
    bounds = np.searchsorted(numbers, ends)
    first = 0
    for chunk in np.flatnonzero(np.diff(bounds, prepend=0)).tolist():
        yield chunk, Positions(numbers[first : bounds[chunk]] - (int(ends[chunk]) - lengths[chunk]))
        first = int(bounds[chunk])


@attrs.frozen(eq=False)
class Searched:
    """Adjacent chunks of a bucket that are searched together for the rows whose keys have one of these hashes."""

    chunks: Sequence[Chunk]
    hashes: Hashes


def chunks_among(
    searched: Sequence[Searched],
    requested: Hashes,
    keys: Sequence[str],
    schema: pl.Schema,
    missing: Mapping[str, pl.Expr],
) -> list[Chunk]:
    """Returns the chunks with only the rows whose key has one of the hashes searched for in them, and perhaps others.

    `requested` are all of these hashes, and `schema` is that of the rows.
    """
    indices = [_index(one.chunks, keys, schema, missing) for one in searched]
    found = find_each(indices, [one.hashes for one in searched], requested)
    return gathered(
        (one.chunks[number], positions)
        for one, numbers in zip(searched, found, strict=True)
        for number, positions in divided(numbers, [chunk.rows for chunk in one.chunks])
    )


def _index(
    found: Sequence[Chunk], keys: Sequence[str], schema: pl.Schema, missing: Mapping[str, pl.Expr]
) -> HashIndex:
    """Returns the index of these chunks, which the first of them keeps for as long as it is remembered."""
    kept, name = found[0].indices, tuple(keys)
    last, index = kept.get(name, (None, None))
    if last is found[-1] and isinstance(index, HashIndex):
        return index
    columns = pl.Schema({key: schema[key] for key in keys})
    rows = unpack((chunk.only(keys) for chunk in found), columns, missing)
    index = HashIndex(np.concatenate([lower_hashes(part, keys) for part in rows]))
    kept[name] = found[-1], index
    return index
