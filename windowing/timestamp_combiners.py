"""Timestamp combiners: the event time of a pane, at which its window holds the watermark until it is emitted."""

from __future__ import annotations

from enum import Enum

import attrs
import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_END
from windowing.identity import Declared


def _not_before(previous_end: pl.Expr | None) -> pl.Expr:
    """The event time, but not before the end of the previous window, if windows overlap.

    A window then never holds the watermark inside an earlier one (Streaming Systems, chapter 3, "the tricky case of
    overlapping windows").
    """
    time = pl.col(EVENT_TIME)
    return time if previous_end is None else pl.max_horizontal(time, previous_end)


class TimestampCombiner(Enum):
    """The time of a pane: END_OF_WINDOW (its last microsecond), or the EARLIEST or LATEST of its elements.

    Late elements do not count. If windows overlap, EARLIEST is not before the end of the previous window, so that no
    window holds the watermark inside an earlier one. `window_into` accepts a member or its text, such as "earliest".

    Example, with the `plays` of `bl.Collection`:
        >>> for choice in bl.END_OF_WINDOW, bl.EARLIEST, bl.LATEST:
        ...     hours = plays.window_into(bl.FixedWindows("1h"), timestamp_combiner=choice)
        ...     print(hours.aggregate(n=bl.count()).collect()["event_time"].dt.strftime("%H:%M:%S").item())
        12:59:59
        12:00:10
        12:01:20
    """

    END_OF_WINDOW = "end_of_window"
    EARLIEST = "earliest"
    LATEST = "latest"

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that it reads."""
        return ()

    @property
    def depends_on_window(self) -> bool:
        """True if the time follows from the window alone, so that a window that grows moves it."""
        return self is TimestampCombiner.END_OF_WINDOW

    @property
    def adjusted(self) -> bool:
        """True if its time is moved to the end of the previous window, if windows overlap."""
        return self is TimestampCombiner.EARLIEST

    def element_hold(self, previous_end: pl.Expr | None) -> pl.Expr:
        """The output time (us) that the element of each (element, window) row would have alone."""
        if self is TimestampCombiner.END_OF_WINDOW:
            return pl.col(WINDOW_END) - 1
        return _not_before(previous_end if self.adjusted else None)

    def fold(self, hold: pl.Expr) -> pl.Expr:
        """The hold of many rows, as an aggregation: associative, commutative, idempotent; nulls do not count."""
        return hold.min() if self is TimestampCombiner.EARLIEST else hold.max()

    def both(self, one: pl.Expr, other: pl.Expr) -> pl.Expr:
        """The hold of two, row by row, as `fold` computes it."""
        combine = pl.min_horizontal if self is TimestampCombiner.EARLIEST else pl.max_horizontal
        return combine(one, other)


@attrs.frozen
class TimestampOf(Declared):
    """The time of a pane is that of a chosen element, such as the click's in a join of queries and clicks.

    A pane without a chosen element has the end of its window.

    Args:
        column: A Boolean column that marks the chosen elements; of several, the earliest that is not late counts.
    """

    column: str = attrs.field(validator=attrs.validators.instance_of(str))

    depends_on_window = False
    adjusted = True

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that it reads."""
        return (self.column,)

    def element_hold(self, previous_end: pl.Expr | None) -> pl.Expr:
        """The output time of a chosen element, per (element, window) row; null for others."""
        return pl.when(pl.col(self.column)).then(_not_before(previous_end))

    def fold(self, hold: pl.Expr) -> pl.Expr:
        """The earliest hold; nulls do not count."""
        return hold.min()

    def both(self, one: pl.Expr, other: pl.Expr) -> pl.Expr:
        """The earlier of two holds, row by row."""
        return pl.min_horizontal(one, other)
