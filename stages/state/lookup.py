"""Searches rows by the hash of their key: in the entries of a directory, and in chunks that were decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.keys import hashed
from stages.state.buckets import BUCKET
from stages.state.chunks import Chunk, unpack
from stages.state.row_numbers import Positions

Hashes = npt.NDArray[np.uint32]

INDEX_BYTES: Final = 16
"""The approximate number of bytes in memory for each row of an index."""

_BITS: Final = 32  # of a hash
_MOST_BITS: Final = 24
_OFTEN: Final = 8
"""Hashes are sorted if they are more than the requested ones times this; otherwise it is faster to look at each."""


@attrs.define(eq=False)
class HashIndex:
    """The key hashes of some rows, in their order. Many are sorted when they are searched for the second time.

    Hashes are distributed evenly. So a table with the place of the first hash for each value of the leading bits leaves
    one hash or two to look at:

        sorted hashes    03 0f 4a 8b 8c f1
        leading bits     00    01 10    11
        first place      0     2  3     5  (6)

    To sort them takes longer than one search, and hashes that no store remembers are searched once.
    """

    hashes: Hashes
    _searched: bool = attrs.field(default=False, init=False)
    _sorted: _Sorted | None = attrs.field(default=None, init=False)

    @property
    def size(self) -> int:
        """The approximate number of bytes in memory, sorted hashes and their table included."""
        return INDEX_BYTES * len(self.hashes)

    def find(self, requested: Hashes) -> Positions:
        """Returns the positions of the rows that have one of these hashes, which are sorted and distinct."""
        if len(self.hashes) > _OFTEN * len(requested):
            if self._searched:
                self._sorted = self._sorted or _Sorted.of(self.hashes)
                return self._sorted.find(requested)
            self._searched = True
        return _unsorted(self.hashes, requested)


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
    return dict(zip(buckets[starts].tolist(), parts, strict=False))


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


def chunks_among(
    found: Sequence[Chunk],
    requested: Hashes,
    keys: Sequence[str],
    schema: pl.Schema,
    missing: Mapping[str, pl.Expr],
) -> list[Chunk]:
    """Returns the chunks with only the rows whose key has one of these hashes. `schema` is that of the rows."""
    numbers = _index(found, keys, schema, missing).find(requested)
    parts = divided(numbers, [chunk.rows for chunk in found])
    return [found[number].at(positions) for number, positions in parts]


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
