"""The allowed lateness: when a window is collected, and when an element is in time, as expressions."""

from __future__ import annotations

from typing import Final

import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_END
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME

_LEAST: Final = -(2**63)


def collection(end: int, allowed_lateness: int) -> int:
    """Returns the watermark (us) at which a window with this end is collected: the end plus the allowed lateness (us).

    It is at most the end of the global window, which the end of input closes.
    """
    return min(end, GLOBAL_WINDOW_END - allowed_lateness) + allowed_lateness


def collected_at(allowed_lateness: int, end: pl.Expr | None = None) -> pl.Expr:
    """Returns an expression for the `collection` time (us) of each row. `end` is by default the end of the row's
    window.
    """
    ends = pl.col(WINDOW_END) if end is None else end
    return ends.clip(upper_bound=GLOBAL_WINDOW_END - allowed_lateness) + allowed_lateness


def is_collected(ends: pl.Series, watermark: int, allowed_lateness: int) -> pl.Series:
    """Returns a mask of the windows with these ends (us) that are collected at a watermark (us)."""
    return ends <= last_collected(watermark, allowed_lateness)


def last_collected(watermark: int, allowed_lateness: int) -> int:
    """Returns the greatest end (us) of a window that is collected at a watermark (us)."""
    if watermark >= GLOBAL_WINDOW_END:
        return GLOBAL_WINDOW_END
    # The same as a comparison of the `collection` times, without computing them.
    return max(watermark - allowed_lateness, _LEAST)


def in_time(watermark: int, allowed_lateness: int) -> pl.Expr:
    """Returns an expression that is true for elements at most the allowed lateness (us) behind a watermark (us)."""
    return pl.col(EVENT_TIME) >= max(watermark, MIN_TIME + allowed_lateness) - allowed_lateness
