"""Assignment of windows: a row for each window that an element is in, and the elements that are in none."""

from __future__ import annotations

from typing import Final, cast

import polars as pl

from windowing.columns import WINDOW_START
from windowing.custom import CustomWindows, spread
from windowing.windows import WindowFn

_ROW: Final = "__row"


def place(elements: pl.DataFrame, windows: WindowFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(a row per (element, window), the elements in no window).

    Elements may have their window already, or a list of windows from a user's function.
    """
    if isinstance(elements.schema.get(WINDOW_START), pl.List):
        nowhere = elements.filter(pl.col(WINDOW_START).is_null())
        return spread(cast(CustomWindows, windows), elements), nowhere
    if WINDOW_START in elements.columns:
        return elements, elements.clear()
    if not windows.gaps:
        return windows.assign(elements), elements.clear()
    placed = windows.assign(elements.with_row_index(_ROW))
    inside = pl.int_range(len(elements), dtype=pl.UInt32, eager=True).is_in(placed[_ROW].implode())
    return placed.drop(_ROW), elements.filter(~inside)
