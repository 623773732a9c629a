"""The key, times and window that a method of a `Process` can read during a call."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import attrs

from stages.process.time_conversion import to_datetime
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME


class Window(NamedTuple):
    """The window of a row: from `start` (inclusive) to `end` (exclusive)."""

    start: datetime
    end: datetime


@attrs.define(eq=False)
class Call:
    """The current call of a method. One object is updated for each call. Times are in microseconds.

    Attributes:
        key_type: The named tuple of the key columns.
        keys: The values of all keys, a list for each key column.
        processing_time: The processing time of the step.
        at_end: True if the input has ended.
        cell: The index of the current key in the lists of `keys`.
        now: The time of the row or timer.
        stamp: The event time of emitted rows.
        watermark: The input watermark.
        start: The start of the window.
        end: The end of the window.
        expiry: The watermark at which the window is collected.
        late: True if the row is late.
        retracted: True if the row retracts an earlier one.
        hops: 0 for a row; for a firing, one more than the hops of the call that set the timer.
        endless: True at the end of input, when no more rows arrive and timers fire however late they are set for.
    """

    key_type: Any
    keys: Sequence[Sequence[Any]]
    processing_time: int
    at_end: bool
    cell: int = 0
    now: int = 0
    stamp: int = 0
    watermark: int = MIN_TIME
    start: int = MIN_TIME
    end: int = GLOBAL_WINDOW_END
    expiry: int = GLOBAL_WINDOW_END
    late: bool = False
    retracted: bool = False
    hops: int = 0
    endless: bool = False

    @property
    def key(self) -> Any:
        """The key of the current row or timer, as a named tuple of the key columns."""
        return self.key_type(*[column[self.cell] for column in self.keys])

    @property
    def window(self) -> Window | None:
        """The window of the row; None in the global window."""
        if self.end >= GLOBAL_WINDOW_END:
            return None
        return Window(to_datetime(self.start), to_datetime(self.end))

    @property
    def shown_watermark(self) -> datetime | None:
        """The input watermark as a datetime; None before there is one."""
        return None if self.watermark <= MIN_TIME else to_datetime(self.watermark)

    @property
    def shown_processing_time(self) -> datetime:
        """The processing time as a datetime."""
        return to_datetime(self.processing_time)
