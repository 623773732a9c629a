"""Timestamp combiners: the choice of a pane's event time, at which its window holds the watermark until it emits."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import attrs
import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_END
from windowing.identity import Declared

CombinerName = Literal["end_of_window", "earliest", "latest"]


def _not_before(previous_end: pl.Expr | None) -> pl.Expr:
    """Returns an expression for the event time, but at least the end of the previous window, if windows overlap.

    So a window never holds the watermark inside an earlier one (Streaming Systems, chapter 3, "the tricky case of
    overlapping windows").
    """
    time = pl.col(EVENT_TIME)
    return time if previous_end is None else pl.max_horizontal(time, previous_end)


class TimestampCombiner(Enum):
    """The event time of a pane: the last microsecond of its window, or that of its EARLIEST or LATEST element.

    Late elements are ignored. If windows overlap, EARLIEST is at least the end of the previous window, so that no
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
        """The user's columns that the combiner reads."""
        return ()

    @property
    def depends_on_window(self) -> bool:
        """True if the window alone determines the event time, so that it changes when the window grows."""
        return self is TimestampCombiner.END_OF_WINDOW

    @property
    def adjusted(self) -> bool:
        """True if the event time is moved to the end of the previous window when windows overlap."""
        return self is TimestampCombiner.EARLIEST

    def element_hold(self, previous_end: pl.Expr | None) -> pl.Expr:
        """Returns an expression for the event time (us) that a pane with this single element would have."""
        if self is TimestampCombiner.END_OF_WINDOW:
            return pl.col(WINDOW_END) - 1
        return _not_before(previous_end if self.adjusted else None)

    def fold(self, hold: pl.Expr) -> pl.Expr:
        """Returns an aggregation that merges the holds of rows, without nulls. Associative, commutative and
        idempotent.
        """
        return hold.min() if self is TimestampCombiner.EARLIEST else hold.max()

    def both(self, one: pl.Expr, other: pl.Expr) -> pl.Expr:
        """Returns an expression that merges two holds of a row, as `fold` does."""
        combine = pl.min_horizontal if self is TimestampCombiner.EARLIEST else pl.max_horizontal
        return combine(one, other)


@attrs.frozen
class TimestampOf(Declared):
    """The timestamp combiner that uses the event time of a chosen element, such as the click in a join with queries.

    A pane without a chosen element has the last instant of its window.

    Args:
        column: A Boolean column that marks chosen elements. Of several, the earliest that is not late is used.
    """

    column: str = attrs.field(validator=attrs.validators.instance_of(str))

    depends_on_window = False
    adjusted = True

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def element_hold(self, previous_end: pl.Expr | None) -> pl.Expr:
        return pl.when(pl.col(self.column)).then(_not_before(previous_end))

    def fold(self, hold: pl.Expr) -> pl.Expr:
        return hold.min()

    def both(self, one: pl.Expr, other: pl.Expr) -> pl.Expr:
        return pl.min_horizontal(one, other)
