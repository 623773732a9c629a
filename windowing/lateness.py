"""When a window is collected and until when an element may come: the allowed lateness, as expressions over columns."""

from __future__ import annotations

import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_END
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME


def collected_at(allowed_lateness: int) -> pl.Expr:
    """The watermark (us) at which a window is collected: the allowed lateness (us) after its end."""
    last = GLOBAL_WINDOW_END - allowed_lateness
    return pl.min_horizontal(pl.col(WINDOW_END), last) + allowed_lateness


def in_time(watermark: int, allowed_lateness: int) -> pl.Expr:
    """Whether the time of an element is at most the allowed lateness (us) behind a watermark (us)."""
    return pl.col(EVENT_TIME) >= max(watermark, MIN_TIME + allowed_lateness) - allowed_lateness
