"""Pairs of rows with equal keys and event times within a distance, found by two binary searches a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from windowing.columns import EVENT_TIME

PIECE: Final = 1_000_000
"""About how many pairs are made at a time: one key may have any number of them."""

Places = npt.NDArray[np.int64]


def pairs(
    left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str], first: pl.Expr, last: pl.Expr
) -> Iterator[tuple[Places, Places]]:
    """Places in `left` and in `right` of the pairs with `first <= right time <= last`, two times (us) of a left row.

    A key with a null in it matches nothing. They come in pieces of some million pairs.
    """
    if left.is_empty() or right.is_empty():
        return
    both = pl.concat([left.select(keys), right.select(keys)])
    known = both.select(pl.all_horizontal(pl.col(key).is_not_null() for key in keys)).to_series().to_numpy()
    numbers = both.select(pl.struct(keys).rank("dense")).to_series().to_numpy().astype(np.int64)
    left_key, right_key = numbers[: len(left)], numbers[len(left) :]
    usable = np.flatnonzero(known[len(left) :])
    times = right[EVENT_TIME].to_numpy()[usable]
    order = np.lexsort((times, right_key[usable]))
    places = usable[order]
    # A number that orders by key, then time: where a time is among all of them takes the place of the time.
    distinct = np.unique(times)
    width = len(distinct) + 1
    sorted_rows = right_key[places] * width + np.searchsorted(distinct, right[EVENT_TIME].to_numpy()[places])
    asked = np.flatnonzero(known[: len(left)])
    bounds = left.select(first.alias("first"), last.alias("last")).to_numpy()[asked]
    base = left_key[asked] * width
    begin = np.searchsorted(sorted_rows, base + np.searchsorted(distinct, bounds[:, 0], "left"), "left")
    end = np.searchsorted(sorted_rows, base + np.searchsorted(distinct, bounds[:, 1], "right") - 1, "right")
    yield from _expanded(asked, begin, np.maximum(end, begin), places)


def _expanded(asked: Places, first: Places, last: Places, places: Places) -> Iterator[tuple[Places, Places]]:
    """Of rows whose partners are those from first to last: every pair, in pieces."""
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
