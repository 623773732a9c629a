"""Placing rows of state in buckets: by when they are due, and as a bucket grows, by the hash of their key.

The number of a bucket is `part * TIMES + turn`. Part 1 has all keys; parts 2p and 2p + 1 have the two halves of part p,
by the next bit of the hash. A row is in the deepest part that there is for its key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, cast

import attrs
import numpy as np
import polars as pl

from stages.keys import key_hash
from stages.operator import Spread
from stages.parted import parted

BUCKET: Final = "__bucket"

TIMES: Final = 128
"""Buckets by time, taken in turn: live rows of different times seldom meet in one, and there are never more."""

LIVE: Final = 32
"""About how many of them have live rows."""

SPLIT_BYTES: Final = 16_000_000
"""A bucket whose rows take more, in memory, is divided: what a step does for one bucket stays within bounds."""

_DEEPEST: Final = 12
_HASH_BITS: Final = 64


@attrs.frozen
class Buckets:
    """The buckets of a table, of which these exist."""

    keys: tuple[str, ...]
    spread: Spread | None
    existing: tuple[int, ...]

    def place(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with the number of their bucket."""
        return rows.with_columns(self.number().alias(BUCKET))

    def number(self) -> pl.Expr:
        """The number of the bucket of each row."""
        depth = max((_depth(bucket) for bucket in self.existing), default=0)
        turn = self._turn()
        if depth == 0:
            return TIMES + turn
        prefix = (key_hash(self.keys) // 2 ** (_HASH_BITS - depth)).cast(pl.Int64)
        return pl.lit(self._table(depth)).gather(turn * 2**depth + prefix)

    def turns(self, first: int, last: int) -> frozenset[int] | None:
        """The turns of rows of these times (us); None for all of them."""
        if self.spread is None or last // self._width - first // self._width >= TIMES:
            return None
        return frozenset(turn % TIMES for turn in range(first // self._width, last // self._width + 1))

    def split(self, bucket: int, size: int) -> Buckets:
        """With the parts that a bucket of this size in bytes is divided into, in its place, if it is too large."""
        depth = _depth(bucket)
        more = min(_DEEPEST - depth, (2 * size // SPLIT_BYTES).bit_length() - 1)
        if not self.keys or size <= SPLIT_BYTES or more <= 0:
            return self
        part, turn = divmod(bucket, TIMES)
        parts = range(part << more, (part + 1) << more)
        others = tuple(other for other in self.existing if other != bucket)
        return attrs.evolve(self, existing=(*others, *(deeper * TIMES + turn for deeper in parts)))

    def _turn(self) -> pl.Expr:
        """Rows that are due at the same times for all keys are spread by these, others only by key."""
        if self.spread is None:
            return pl.lit(0, pl.Int64)
        return pl.col(self.spread.column) // self._width % TIMES

    @property
    def _width(self) -> int:
        """How long a turn is (us)."""
        assert self.spread is not None
        return -(-self.spread.live // LIVE // self.spread.step) * self.spread.step

    def _table(self, depth: int) -> pl.Series:
        """The bucket of each (turn, prefix of that many bits)."""
        table = np.repeat(np.arange(TIMES, dtype=np.int64) + TIMES, 2**depth).reshape(TIMES, 2**depth)
        for bucket in sorted(self.existing, key=_depth):
            part, turn = divmod(bucket, TIMES)
            width = 2 ** (depth - _depth(bucket))
            first = (part - 2 ** _depth(bucket)) * width
            table[turn, first : first + width] = bucket
        return pl.Series(table.ravel())


def _depth(bucket: int) -> int:
    return (bucket // TIMES).bit_length() - 1


def partition(placed: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """Placed rows by bucket, in the order of buckets."""
    if (only := _only(placed)) is not None:
        return {only: placed}
    parts = placed.partition_by(BUCKET, as_dict=True)
    return {bucket: parts[bucket,] for (bucket,) in sorted(parts)}


def inside(placed: pl.DataFrame, buckets: Collection[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(the placed rows in these buckets, the others)."""
    if (only := _only(placed)) is not None:
        return (placed, placed.clear()) if only in buckets else (placed.clear(), placed)
    return parted(placed, placed[BUCKET].is_in(list(buckets)))


def touched(placed: pl.DataFrame) -> list[int]:
    """The buckets of these rows."""
    only = _only(placed)
    return placed[BUCKET].unique().sort().to_list() if only is None else [only]


def _only(placed: pl.DataFrame) -> int | None:
    """The bucket, if all rows are in one, as they often are in a small batch."""
    least = placed[BUCKET].min()
    return cast(int, least) if least is not None and least == placed[BUCKET].max() else None
