"""Pairs of rows with equal keys and event times within bounds, found by two binary searches for each row.

right rows, sorted by key number * width + position of their time among the distinct times

    key 0             key 1                     key 2
    r3  r0  r7        r1  r4  r5  r2            r6
                          ^-------^
              begin: first right row with time >= first, end: last one with time <= last, for a left row of key 1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from windowing.columns import EVENT_TIME

PIECE: Final = 1_000_000
"""The approximate number of pairs that are yielded at a time, so that a key with very many pairs fits into memory."""

RowNumbers = npt.NDArray[np.int64]


def pairs(
    left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str], first: pl.Expr, last: pl.Expr
) -> Iterator[tuple[RowNumbers, RowNumbers]]:
    """Yields the pairs with `first <= right time <= last`, as row positions in `left` and in `right`.

    `first` and `last` are expressions over left rows (us). Keys with a null match nothing. Pairs are yielded in pieces
    of about `PIECE` pairs; all pairs of a left row are in one piece.
    """
    if left.is_empty() or right.is_empty():
        return
    known, numbers = _numbered(pl.concat([left.select(keys), right.select(keys)]), keys)
    left_key, right_key = numbers[: len(left)], numbers[len(left) :]
    with_key = np.flatnonzero(known[: len(left)])
    needed_keys = np.zeros(int(numbers.max()) + 1, dtype=np.bool_)
    needed_keys[left_key[with_key]] = True
    usable = np.flatnonzero(known[len(left) :] & needed_keys[right_key])
    times = right[EVENT_TIME].to_numpy()[usable]
    # Key number and position of the time among all distinct times, in one integer: it sorts by key, then time.
    distinct = _distinct(times)
    width = len(distinct) + 1
    rows = right_key[usable] * width + np.searchsorted(distinct, times)
    order = np.argsort(rows, kind="stable")
    places, sorted_rows = usable[order], rows[order]
    bounds = left.select(first.alias("first"), last.alias("last")).to_numpy()[with_key]
    base = left_key[with_key] * width
    begin = np.searchsorted(sorted_rows, base + np.searchsorted(distinct, bounds[:, 0], "left"), "left")
    end = np.searchsorted(sorted_rows, base + np.searchsorted(distinct, bounds[:, 1], "right") - 1, "right")
    yield from _expanded(with_key, begin, np.maximum(end, begin), places)


def _numbered(rows: pl.DataFrame, keys: Sequence[str]) -> tuple[npt.NDArray[np.bool_], RowNumbers]:
    """Returns a mask of the rows whose key has no null, and for each row a number that identifies its key."""
    known = rows.select(pl.all_horizontal(pl.col(key).is_not_null() for key in keys)).to_series()
    # The rank of a column is eight times as fast as that of a struct with one field.
    key = pl.col(keys[0]) if len(keys) == 1 else pl.struct(keys)
    numbers = rows.select(key.rank("dense").fill_null(0).cast(pl.Int64)).to_series()
    return known.to_numpy(), numbers.to_numpy()


def _distinct(times: RowNumbers) -> RowNumbers:
    """Returns the distinct times, sorted. Many times as fast as `numpy.unique`, which hashes."""
    ordered = np.sort(times)
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    distinct: RowNumbers = ordered[first]
    return distinct


def _expanded(
    with_key: RowNumbers, first: RowNumbers, last: RowNumbers, places: RowNumbers
) -> Iterator[tuple[RowNumbers, RowNumbers]]:
    """Yields, in pieces, each row `with_key[i]` with each of its partners `places[first[i]:last[i]]`."""
    counts = last - first
    found = np.flatnonzero(counts)
    ends = np.cumsum(counts[found])
    begin = 0
    while begin < len(found):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + PIECE, "right")))
        part = found[begin:end]
        lengths = counts[part]
        offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        yield np.repeat(with_key[part], lengths), places[np.repeat(first[part], lengths) + offsets]
        begin = end
