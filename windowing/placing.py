"""Assignment of windows to elements, which may have windows already."""

from __future__ import annotations

from typing import Final, cast

import polars as pl

from windowing.columns import WINDOW_START
from windowing.custom import CustomWindows, spread
from windowing.windows import WindowFn

_ROW: Final = "__row"


def place(elements: pl.DataFrame, windows: WindowFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Assigns windows to elements. Returns (a row for each element and window, the elements in no window).

    Elements may have their window already, or a list of custom windows.
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
