"""Pairs of rows with equal keys and event times within a distance, found by two binary searches per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from windowing.columns import EVENT_TIME

PIECE: Final = 1_000_000
"""The number of pairs that are made at a time: a single key may have any number of pairs."""

Places = npt.NDArray[np.int64]


def pairs(
    left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str], first: pl.Expr, last: pl.Expr
) -> Iterator[tuple[Places, Places]]:
    """Yields row numbers in `left` and in `right` of the pairs with `first <= right time <= last`.

    `first` and `last` are times (us) of a left row. A key with a null in it matches nothing. Each piece has at most
    about a million pairs, unless one row has more.
    """
    if left.is_empty() or right.is_empty():
        return
    known, numbers = _numbered(pl.concat([left.select(keys), right.select(keys)]), keys)
    left_key, right_key = numbers[: len(left)], numbers[len(left) :]
    asked = np.flatnonzero(known[: len(left)])
    wanted = np.zeros(int(numbers.max()) + 1, dtype=np.bool_)
    wanted[left_key[asked]] = True
    usable = np.flatnonzero(known[len(left) :] & wanted[right_key])
    times = right[EVENT_TIME].to_numpy()[usable]
    # A number that orders by key, then time: where a time is among all of them takes the place of the time.
    distinct = _distinct(times)
    width = len(distinct) + 1
    rows = right_key[usable] * width + np.searchsorted(distinct, times)
    order = np.argsort(rows, kind="stable")
    places, sorted_rows = usable[order], rows[order]
    bounds = left.select(first.alias("first"), last.alias("last")).to_numpy()[asked]
    base = left_key[asked] * width
    begin = np.searchsorted(sorted_rows, base + np.searchsorted(distinct, bounds[:, 0], "left"), "left")
    end = np.searchsorted(sorted_rows, base + np.searchsorted(distinct, bounds[:, 1], "right") - 1, "right")
    yield from _expanded(asked, begin, np.maximum(end, begin), places)


def _numbered(rows: pl.DataFrame, keys: Sequence[str]) -> tuple[npt.NDArray[np.bool_], Places]:
    """(for each row whether its key has no null, a number that is the same for equal keys)."""
    known = rows.select(pl.all_horizontal(pl.col(key).is_not_null() for key in keys)).to_series()
    # A single column is ranked eight times as fast as a struct of it.
    key = pl.col(keys[0]) if len(keys) == 1 else pl.struct(keys)
    numbers = rows.select(key.rank("dense").fill_null(0).cast(pl.Int64)).to_series()
    return known.to_numpy(), numbers.to_numpy()


def _distinct(times: Places) -> Places:
    """The distinct times in order; many times as fast as `numpy.unique`, which hashes."""
    ordered = np.sort(times)
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    distinct: Places = ordered[first]
    return distinct


def _expanded(asked: Places, first: Places, last: Places, places: Places) -> Iterator[tuple[Places, Places]]:
    """Yields every pair of rows with their partners, which are those from first to last, in pieces."""
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
        yield np.repeat(asked[part], lengths), places[np.repeat(first[part], lengths) + offsets]
        begin = end
