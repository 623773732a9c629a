"""The naive model of elements in windows and of the times of panes (sections 2.1 to 2.3)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import attrs

from tests.support.model_windows import Window, assign, maximum
from windowing import (
    CumulativeWindows,
    CustomWindows,
    SlidingWindows,
    TimestampCombiner,
    TimestampOf,
    WindowFn,
    Windowing,
)

Key = Hashable
Element = tuple[Key, int, int]  # key, value, event time in microseconds
Dropped = tuple[Key, int, int, Window | tuple[None, None], str]  # an element in a window, and the reason


def chosen(value: int) -> bool:
    """True for the elements that `timestamp_of` marks, in the model and in the stage compared with it: even values."""
    return value % 2 == 0


@attrs.frozen
class Placed:
    """An element in one of its windows. `assigned` is that window before merging."""

    number: int  # in its bundle
    key: Key
    value: int
    time: int
    assigned: Window
    window: Window

    def dropped(self, reason: str) -> Dropped:
        return self.key, self.value, self.time, self.assigned, reason


# --- Timestamp combiners (2.1, 2.3) ---


def output_time(windowing: Windowing, place: Placed) -> int | None:
    """Returns the output time of a single element: assign(w, ts)."""
    combiner = windowing.timestamp_combiner
    if combiner is TimestampCombiner.END_OF_WINDOW:
        return maximum(place.window)
    if combiner is TimestampCombiner.LATEST:
        return place.time
    if isinstance(combiner, TimestampOf) and not chosen(place.value):  # (here)
        return None
    before = previous_end(windowing.windows, place)  # the overlap adjustment (here)
    return place.time if before is None else max(place.time, before)


def previous_end(windows: WindowFn, place: Placed) -> int | None:
    """Returns the end of the window before an element's, if that window may overlap it."""
    if isinstance(windows, SlidingWindows):
        return place.window[1] - windows.period
    if isinstance(windows, CumulativeWindows):
        return place.window[1] - windows.step
    if not isinstance(windows, CustomWindows) or windows.merging:
        return None
    if type(windows).previous_end is not CustomWindows.previous_end:
        return windows.previous_end(place.window)
    row = {"key": place.key, "value": place.value}
    return max((end for _, end in assign(windows, place.time, row) if end < place.window[1]), default=None)


def combine(windowing: Windowing, window: Window, times: Iterable[int | None]) -> int | None:
    """Returns the output time of several elements in one window: merge(into, ts...); None if none has a time."""
    known = [time for time in times if time is not None]
    if not known:
        return None
    if windowing.timestamp_combiner is TimestampCombiner.END_OF_WINDOW:
        return maximum(window)
    return max(known) if windowing.timestamp_combiner is TimestampCombiner.LATEST else min(known)
