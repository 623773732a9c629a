"""Searches rows by the hash of their key: in the entries of a directory, and in chunks that were decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.keys import hashed
from stages.state.chunks import Chunk, unpack
from stages.state.row_numbers import Positions

Hashes = npt.NDArray[np.uint32]


@attrs.define(eq=False)
class HashIndex:
    """The key hashes of some rows, in their order. They are sorted when they are searched for the second time.

    To sort them takes longer than one search, and hashes that no store remembers are searched once.
    """

    hashes: Hashes
    _searched: bool = attrs.field(default=False, init=False)
    _sorted: tuple[Hashes, Hashes] | None = attrs.field(default=None, init=False)

    def find(self, requested: Hashes) -> Positions:
        """Returns the positions of the rows that have one of these hashes, which are sorted and distinct."""
        if not self._searched:
            self._searched = True
            found = pl.Series(self.hashes).is_in(pl.Series(requested).implode())
            return Positions(np.flatnonzero(found.to_numpy()))
        if self._sorted is None:
            order = np.argsort(self.hashes, kind="stable")
            self._sorted = self.hashes[order], order.astype(np.uint32)
        hashes, positions = self._sorted
        first = np.searchsorted(hashes, requested, side="left")
        counts = np.searchsorted(hashes, requested, side="right") - first
        # The ranges first, first + 1, ..., first + count - 1 of all requested hashes, one after the other.
        starts = np.repeat(first - (np.cumsum(counts) - counts), counts)
        return Positions(np.sort(positions[starts + np.arange(counts.sum())]).astype(np.intp))


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


def rows_among(
    found: Sequence[Chunk],
    requested: Hashes,
    keys: Sequence[str],
    schema: pl.Schema,
    missing: Mapping[str, pl.Expr],
) -> list[pl.DataFrame]:
    """Returns the rows of chunks whose key has one of these hashes, as frames with this schema."""
    numbers = _index(found, keys, schema, missing).find(requested)
    parts = divided(numbers, [chunk.rows for chunk in found])
    return unpack((found[number].at(positions) for number, positions in parts), schema, missing)


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
