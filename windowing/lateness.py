"""The allowed lateness: when a window is collected, and when an element is in time, as expressions over columns."""

from __future__ import annotations

import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_END
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME


def collection(end: int, allowed_lateness: int) -> int:
    """The watermark (us) at which a window with this end is collected: the allowed lateness (us) later.

    At the latest, that is the end of the global window, which the end of input closes.
    """
    return min(end, GLOBAL_WINDOW_END - allowed_lateness) + allowed_lateness


def collected_at(allowed_lateness: int, end: pl.Expr | None = None) -> pl.Expr:
    """The `collection` time of each row, by the end of its window, or by another time."""
    ends = pl.col(WINDOW_END) if end is None else end
    return ends.clip(upper_bound=GLOBAL_WINDOW_END - allowed_lateness) + allowed_lateness


def in_time(watermark: int, allowed_lateness: int) -> pl.Expr:
    """True if the time of an element is at most the allowed lateness (us) behind a watermark (us)."""
    return pl.col(EVENT_TIME) >= max(watermark, MIN_TIME + allowed_lateness) - allowed_lateness
