"""Timestamp combiners: the event time that a pane gets, and at which it holds the watermark until then."""

from __future__ import annotations

from enum import Enum

import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_END


class TimestampCombiner(Enum):
    """Which time stands for all elements of a pane."""

    END_OF_WINDOW = "end_of_window"
    EARLIEST = "earliest"
    LATEST = "latest"

    def element_hold(self, period: int | None) -> pl.Expr:
        """Per (element, window) row: the output time that this element alone would give, in microseconds.

        With overlapping windows and EARLIEST it is `max(time, end - period)`: the windows after the first one
        then never hold the watermark inside an earlier one (Streaming Systems, chapter 3, "the tricky case of
        overlapping windows").
        """
        if self is TimestampCombiner.END_OF_WINDOW:
            return pl.col(WINDOW_END) - 1
        if self is TimestampCombiner.EARLIEST and period is not None:
            return pl.max_horizontal(EVENT_TIME, pl.col(WINDOW_END) - period)
        return pl.col(EVENT_TIME)

    def fold(self, hold: pl.Expr) -> pl.Expr:
        """The hold of many, as an aggregation: associative, commutative, idempotent; nulls do not count."""
        return hold.min() if self is TimestampCombiner.EARLIEST else hold.max()
