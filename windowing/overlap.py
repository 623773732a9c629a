"""Finds rows whose windows merge with others, without merging them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from windowing.columns import WINDOW_COLUMNS
from windowing.windows import RUN, WindowFn

_ROW: Final = "__row"


def meets(rows: pl.DataFrame, others: pl.DataFrame, windows: WindowFn, keys: Sequence[str]) -> pl.Series:
    """True for rows that are in one run with some of the others when all are merged.

    One sort: to compare the windows of each key in pairs is quadratic for a key with many.
    """
    mine = rows.select(*keys, *WINDOW_COLUMNS).with_row_index(_ROW)
    mine, theirs = _of_shared_keys(mine, others.select(*keys, *WINDOW_COLUMNS), list(keys))
    merged = windows.merge(pl.concat([theirs, mine], how="diagonal"), keys)
    with_others = merged.filter(pl.col(_ROW).is_null())[RUN].unique()
    hit = merged.filter(pl.col(RUN).is_in(with_others.implode()))[_ROW].drop_nulls()
    return pl.int_range(len(rows), dtype=pl.UInt32, eager=True).is_in(hit.implode())


def in_company(rows: pl.DataFrame, more: pl.DataFrame, windows: WindowFn, keys: Sequence[str]) -> pl.Series:
    """True for rows whose run contains another row, of these or of `more`, when all are merged."""
    narrow = [frame.select(*keys, *WINDOW_COLUMNS) for frame in (rows, more)]
    merged = windows.merge(pl.concat(narrow).with_row_index(_ROW), keys)
    run = pl.col(RUN)
    shared = merged.filter((run == run.shift()).fill_null(False) | (run == run.shift(-1)).fill_null(False))
    return pl.int_range(len(rows), dtype=pl.UInt32, eager=True).is_in(shared[_ROW].implode())


def _of_shared_keys(
    left: pl.DataFrame, right: pl.DataFrame, keys: list[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of either whose key is in both, so that few rows are sorted if most keys are in one only."""
    if not keys:
        return left, right
    if len(left) < len(right):  # a join makes a table of its right side, and looks up the left one
        return _of_shared_keys(right, left, keys)[::-1]
    left = left.join(right, on=keys, how="semi", nulls_equal=True)
    return left, right.join(left, on=keys, how="semi", nulls_equal=True)
