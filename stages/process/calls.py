"""The key, times and window that a method of a `Process` may read during a call."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import attrs

from stages.process.moments import to_datetime
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME


class Window(NamedTuple):
    """The window of a row: the times at which it starts and ends, `start <= time < end`."""

    start: datetime
    end: datetime


@attrs.define(eq=False)
class Call:
    """The current call of a method. Times are in microseconds.

    `now` is the time of the row or timer, `stamp` that of emitted rows. `expiry` is the time at which the window is
    collected. `hops` is 0 for a row; for a firing it is one more than the hops stored with that firing. `endless` is
    true at the end of input, when no row follows and time advances without an end. `keys` contains a list for each
    key column; `cell` is the index of the current key in it.
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
        """The current key as a named tuple."""
        return self.key_type(*[column[self.cell] for column in self.keys])

    @property
    def window(self) -> Window | None:
        """The window of the row; None for the global window."""
        if self.end >= GLOBAL_WINDOW_END:
            return None
        return Window(to_datetime(self.start), to_datetime(self.end))

    @property
    def shown_watermark(self) -> datetime | None:
        """The watermark as a datetime; None before there is one."""
        return None if self.watermark <= MIN_TIME else to_datetime(self.watermark)

    @property
    def shown_processing_time(self) -> datetime:
        """The processing time as a datetime."""
        return to_datetime(self.processing_time)
