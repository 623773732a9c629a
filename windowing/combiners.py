"""Timestamp combiners: the event time that a pane gets, and at which it holds the watermark until then."""

from __future__ import annotations

from enum import Enum

import attrs
import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_END


class TimestampCombiner(Enum):
    """Which time stands for all elements of a pane."""

    END_OF_WINDOW = "end_of_window"
    EARLIEST = "earliest"
    LATEST = "latest"

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that it reads."""
        return ()

    @property
    def depends_on_window(self) -> bool:
        """Whether the window alone tells the time, so that a window that grows moves it."""
        return self is TimestampCombiner.END_OF_WINDOW

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

    def both(self, one: pl.Expr, other: pl.Expr) -> pl.Expr:
        """The hold of two, row by row, as `fold` gives it."""
        combine = pl.min_horizontal if self is TimestampCombiner.EARLIEST else pl.max_horizontal
        return combine(one, other)


@attrs.frozen
class TimestampOf:
    """The event time of a chosen element stands for the pane, such as the click's in a join of queries and clicks.

    `column` is a Boolean column that marks the chosen elements; of several, the earliest that is not late counts.
    A pane without a chosen element has the end of its window.
    """

    column: str = attrs.field(validator=attrs.validators.instance_of(str))

    depends_on_window = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that it reads."""
        return (self.column,)

    def element_hold(self, period: int | None) -> pl.Expr:
        """Per (element, window) row: the time of a chosen element, null for others."""
        return pl.when(pl.col(self.column)).then(pl.col(EVENT_TIME))

    def fold(self, hold: pl.Expr) -> pl.Expr:
        """The earliest; nulls do not count."""
        return hold.min()

    def both(self, one: pl.Expr, other: pl.Expr) -> pl.Expr:
        """The earlier of two, row by row."""
        return pl.min_horizontal(one, other)
