"""Masks of the rows whose windows would merge with other rows, computed without merging them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from windowing.columns import WINDOW_COLUMNS
from windowing.windows import RUN, WindowFn

_ROW: Final = "__row"


def merges_with(
    rows: pl.DataFrame, others: pl.DataFrame, windows: WindowFn, keys: Sequence[str]
) -> pl.Series:
    """Returns a mask of the rows that would become one window with any of `others`, if all windows of each key were
    merged.
    """
    # One sort of all windows: comparing the windows of a key in pairs would be quadratic.
    own = rows.select(*keys, *WINDOW_COLUMNS).with_row_index(_ROW)
    own, theirs = _of_shared_keys(own, others.select(*keys, *WINDOW_COLUMNS), list(keys))
    merged = windows.merge(pl.concat([theirs, own], how="diagonal"), keys)
    with_others = merged.filter(pl.col(_ROW).is_null())[RUN].unique()
    hit = merged.filter(pl.col(RUN).is_in(with_others.implode()))[_ROW].drop_nulls()
    return pl.int_range(len(rows), dtype=pl.UInt32, eager=True).is_in(hit.implode())


def merges_with_any(
    rows: pl.DataFrame, more: pl.DataFrame, windows: WindowFn, keys: Sequence[str]
) -> pl.Series:
    """Returns a mask of the rows that would become one window with any other row, of `rows` or of `more`."""
    narrow = [frame.select(*keys, *WINDOW_COLUMNS) for frame in (rows, more)]
    merged = windows.merge(pl.concat(narrow).with_row_index(_ROW), keys)
    run = pl.col(RUN)
    shared = merged.filter((run == run.shift()).fill_null(False) | (run == run.shift(-1)).fill_null(False))
    return pl.int_range(len(rows), dtype=pl.UInt32, eager=True).is_in(shared[_ROW].implode())


def _of_shared_keys(
    left: pl.DataFrame, right: pl.DataFrame, keys: list[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the rows of both frames whose key is in both, so that no other rows need to be sorted."""
    if not keys:
        return left, right
    if len(left) < len(right):  # a join builds a hash table of its right side
        return _of_shared_keys(right, left, keys)[::-1]
    left = left.join(right, on=keys, how="semi", nulls_equal=True)
    return left, right.join(left, on=keys, how="semi", nulls_equal=True)
