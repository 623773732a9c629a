"""The placement of rows in buckets: by the time at which they are due, and in large buckets by the hash of their key.

The number of a bucket is `part * TIMES + turn`. The turn follows from the time. Part 1 has all keys; parts 2p and
2p + 1 have the two halves of part p, by the next bit of the hash. A row is in the deepest part that exists for its key:

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

from stages.keys import key_hash
from stages.operator import Spread
from stages.parted import parted

BUCKET: Final = "__bucket"

TIMES: Final = 128
"""The number of buckets by time, used in turn, so that live rows of different times are seldom in one bucket."""

LIVE: Final = 32
"""The approximate number of them that have live rows."""

SPLIT_BYTES: Final = 16_000_000
"""The size of a bucket, in memory, above which it is divided, so that the work of a step for one bucket is bounded."""

_DEEPEST: Final = 12
_HASH_BITS: Final = 64


@attrs.frozen
class Buckets:
    """The placement of a table's rows, by the numbers of its existing buckets."""

    keys: tuple[str, ...]
    spread: Spread | None
    existing: tuple[int, ...]

    def place(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds the column of the bucket number."""
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
        """The turns of rows with times from `first` to `last` (us); None if they are all turns."""
        if self.spread is None or last // self._width - first // self._width >= TIMES:
            return None
        return frozenset(turn % TIMES for turn in range(first // self._width, last // self._width + 1))

    def split(self, bucket: int, size: int) -> Buckets:
        """Replaces a bucket of `size` bytes by the parts into which it is divided; `self` if it is not too large."""
        depth = _depth(bucket)
        more = min(_DEEPEST - depth, (2 * size // SPLIT_BYTES).bit_length() - 1)
        if not self.keys or size <= SPLIT_BYTES or more <= 0:
            return self
        part, turn = divmod(bucket, TIMES)
        parts = range(part << more, (part + 1) << more)
        others = tuple(other for other in self.existing if other != bucket)
        return attrs.evolve(self, existing=(*others, *(deeper * TIMES + turn for deeper in parts)))

    def _turn(self) -> pl.Expr:
        """The turn of each row: by time if keys are due at common times, otherwise 0."""
        if self.spread is None:
            return pl.lit(0, pl.Int64)
        return pl.col(self.spread.column) // self._width % TIMES

    @property
    def _width(self) -> int:
        """The length of a turn (us), a multiple of the step of the times."""
        assert self.spread is not None
        return -(-self.spread.live // LIVE // self.spread.step) * self.spread.step

    def _table(self, depth: int) -> pl.Series:
        """The bucket of each turn and hash prefix of `depth` bits."""
        table = np.repeat(np.arange(TIMES, dtype=np.int64) + TIMES, 2**depth).reshape(TIMES, 2**depth)
        for bucket in sorted(self.existing, key=_depth):  # a deeper part overwrites the one that it divides
            part, turn = divmod(bucket, TIMES)
            width = 2 ** (depth - _depth(bucket))
            first = (part - 2 ** _depth(bucket)) * width
            table[turn, first : first + width] = bucket
        return pl.Series(table.ravel())


def _depth(bucket: int) -> int:
    return (bucket // TIMES).bit_length() - 1


def partition(placed: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """Divides placed rows by bucket, in the order of buckets."""
    if (only := _only(placed)) is not None:
        return {only: placed}
    parts = placed.partition_by(BUCKET, as_dict=True)
    return {bucket: parts[bucket,] for (bucket,) in sorted(parts)}


def inside(placed: pl.DataFrame, buckets: Collection[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divides placed rows into (those in these buckets, the others)."""
    if (only := _only(placed)) is not None:
        return (placed, placed.clear()) if only in buckets else (placed.clear(), placed)
    return parted(placed, placed[BUCKET].is_in(list(buckets)))


def touched(placed: pl.DataFrame) -> list[int]:
    """The buckets of placed rows."""
    only = _only(placed)
    return placed[BUCKET].unique().sort().to_list() if only is None else [only]


def _only(placed: pl.DataFrame) -> int | None:
    """The bucket of all rows; None if there are several. In a small batch, rows often have one bucket."""
    least = placed[BUCKET].min()
    return cast(int, least) if least is not None and least == placed[BUCKET].max() else None
