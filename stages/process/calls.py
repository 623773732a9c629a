"""What a method of a `Process` may ask for while it is called: the key, the times, the window."""

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
    """The call in hand. Times are in microseconds; `now` is that of the row or timer, `stamp` of what it emits.

    `expiry` is when the window is collected. `hops` is 0 for a row; for a firing it is one more than the hops of that.
    `endless`: no row follows, and time goes on without an end. `keys` has a list per key column, of which `cell` is in
    hand.
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
        """As a named tuple."""
        return self.key_type(*[column[self.cell] for column in self.keys])

    @property
    def window(self) -> Window | None:
        """None for the global window."""
        if self.end >= GLOBAL_WINDOW_END:
            return None
        return Window(to_datetime(self.start), to_datetime(self.end))

    @property
    def shown_watermark(self) -> datetime | None:
        """None before there is one."""
        return None if self.watermark <= MIN_TIME else to_datetime(self.watermark)

    @property
    def shown_processing_time(self) -> datetime:
        """As a datetime."""
        return to_datetime(self.processing_time)
