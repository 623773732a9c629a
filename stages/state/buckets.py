"""The placement of rows in buckets: by the time at which they are due, and in large buckets by the hash of their key.

The number of a bucket is `part * TIMES + turn`. The turn is the number of a span of time, modulo TIMES. Part 1 has
all keys; parts 2p and 2p + 1 have the two halves of part p, by the next bit of the hash. A row is in the deepest part
that exists for its key:

    turn 5    part 1                                        bucket 133
    turn 6    part 2 (hash 0...)    part 3 (hash 1...)      buckets 262, 390
    turn 7    part 2                part 6      part 7      buckets 263, 775, 903
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, cast

import attrs
import numpy as np
import polars as pl

from stages.frames import partition, repeated
from stages.keys import key_hash
from stages.state_tables import Spread

BUCKET: Final = "__bucket"

TIMES: Final = 128
"""The number of turns, after which bucket numbers repeat: so many that live rows seldom share a bucket by accident."""

LIVE: Final = 32
"""The approximate number of turns that have live rows at the same time."""

SPLIT_BYTES: Final = 16_000_000
"""The size of a bucket in memory (bytes) above which it is divided. It bounds the cost of reading one bucket."""

IN_SLICES: Final = 4
"""The factor by which a bucket may be larger if a step reads only the rows of its keys: each bucket costs a patch."""

_FIRST: Final = pl.Series(BUCKET, [TIMES])
"""The only bucket of a table that is not spread by time, until it is split."""

_DEEPEST: Final = 12
_HASH_BITS: Final = 64


@attrs.frozen
class Buckets:
    """The assignment of a table's rows to buckets, which depends on the numbers of the `existing` buckets.

    `in_slices` is true if a step reads and replaces only some rows of a large bucket.
    """

    keys: tuple[str, ...]
    spread: Spread | None
    existing: tuple[int, ...]
    in_slices: bool = False

    def place(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds the column BUCKET, the number of each row's bucket."""
        if all(_depth(bucket) == 0 for bucket in self.existing):
            if self.spread is None:
                return rows.hstack([repeated(_FIRST, len(rows))])
            times = rows.get_column(self.spread.column)
            least, greatest = cast(int | None, times.min()), cast(int | None, times.max())
            if least is None or greatest is None or least // self._width != greatest // self._width:
                turns = times.to_numpy() // self._width % TIMES
                return rows.hstack([pl.Series(BUCKET, TIMES + turns)])
            only = pl.Series(BUCKET, [TIMES + least // self._width % TIMES])
            return rows.hstack([repeated(only, len(rows))])
        return rows.with_columns(self.number().alias(BUCKET))

    def number(self) -> pl.Expr:
        """Returns an expression for the number of each row's bucket."""
        depth = max((_depth(bucket) for bucket in self.existing), default=0)
        turn = self._turn()
        if depth == 0:
            return TIMES + turn
        prefix = (key_hash(self.keys) // 2 ** (_HASH_BITS - depth)).cast(pl.Int64)
        return pl.lit(self._table(depth)).gather(turn * 2**depth + prefix)

    def turns(self, first: int, last: int) -> frozenset[int] | None:
        """Returns the turns (bucket numbers modulo TIMES) of rows from time `first` to `last` (us, inclusive); None for
        all.
        """
        if self.spread is None or last // self._width - first // self._width >= TIMES:
            return None
        return frozenset(turn % TIMES for turn in range(first // self._width, last // self._width + 1))

    def hashes(self, bucket: int) -> tuple[int, int]:
        """Returns the least and the greatest hash of a key that may be in a bucket."""
        depth = _depth(bucket)
        width = 1 << _HASH_BITS - depth
        first = (bucket // TIMES - (1 << depth)) * width
        return first, first + width - 1

    def split(self, bucket: int, size: int) -> Buckets:
        """Divides a bucket of `size` bytes, if that is too large; returns the new assignment of rows to buckets."""
        depth, most = _depth(bucket), SPLIT_BYTES * (IN_SLICES if self.in_slices else 1)
        more = min(_DEEPEST - depth, (2 * size // most).bit_length() - 1)
        if not self.keys or size <= most or more <= 0:
            return self
        # Part p with n more bits of the hash is parts p * 2**n to (p + 1) * 2**n - 1.
        part, turn = divmod(bucket, TIMES)
        parts = range(part << more, (part + 1) << more)
        others = tuple(other for other in self.existing if other != bucket)
        return attrs.evolve(self, existing=(*others, *(deeper * TIMES + turn for deeper in parts)))

    def _turn(self) -> pl.Expr:
        """Returns an expression for each row's turn: 0 if the table is not spread by time."""
        if self.spread is None:
            return pl.lit(0, pl.Int64)
        return pl.col(self.spread.column) // self._width % TIMES

    @property
    def _width(self) -> int:
        assert self.spread is not None
        return width(self.spread)

    def _table(self, depth: int) -> pl.Series:
        """Returns the bucket number for each turn and hash prefix of `depth` bits, at position `turn * 2**depth +
        prefix`.
        """
        table = np.repeat(np.arange(TIMES, dtype=np.int64) + TIMES, 2**depth).reshape(TIMES, 2**depth)
        for bucket in sorted(self.existing, key=_depth):  # a deeper part overwrites the one that it divides
            part, turn = divmod(bucket, TIMES)
            width = 2 ** (depth - _depth(bucket))
            first = (part - 2 ** _depth(bucket)) * width
            table[turn, first : first + width] = bucket
        return pl.Series(table.ravel())


def width(spread: Spread) -> int:
    """Returns the span of time (us) whose rows are in one bucket, a multiple of `spread.step`."""
    return -(-spread.live // LIVE // spread.step) * spread.step


def _depth(bucket: int) -> int:
    return (bucket // TIMES).bit_length() - 1


def split_by_bucket(placed: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """Divides rows by their column BUCKET, in ascending order of buckets."""
    if (only := single_bucket(placed)) is not None:
        return {only: placed}
    parts = placed.partition_by(BUCKET, as_dict=True)
    return {bucket: parts[bucket,] for (bucket,) in sorted(parts)}


def inside(placed: pl.DataFrame, buckets: Collection[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divides rows with a column BUCKET into (rows in these buckets, other rows)."""
    if (only := single_bucket(placed)) is not None:
        return (placed, placed.clear()) if only in buckets else (placed.clear(), placed)
    return partition(placed, pl.Series(np.isin(placed[BUCKET].to_numpy(), list(buckets))))


def touched(placed: pl.DataFrame) -> list[int]:
    """Returns the bucket numbers in the column BUCKET, each once, in ascending order."""
    only = single_bucket(placed)
    return cast(list[int], np.unique(placed[BUCKET].to_numpy()).tolist()) if only is None else [only]


def single_bucket(placed: pl.DataFrame) -> int | None:
    """Returns the bucket number of all rows; None if there are several or no rows. Small batches often have one
    bucket.
    """
    least = placed[BUCKET].min()
    return cast(int, least) if least is not None and least == placed[BUCKET].max() else None
