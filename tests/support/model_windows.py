"""The windows of the naive model: assigned to one element at a time, merged for one key at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from windowing import (
    CalendarWindows,
    CumulativeWindows,
    CustomWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    WindowFn,
)

Window = tuple[int, int]  # [start, end) in microseconds (1.2)
Merge = tuple[list[Window], Window]  # the parts, and what they become

MIN_TIME = -9223372036854775 * 1000  # 1.1: the portable constants are milliseconds, a tick here is 1 us
MAX_TIME = 9223372036854775 * 1000
GLOBAL_WINDOW = (MIN_TIME, MAX_TIME - 86_400_000 * 1000)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000


def maximum(window: Window) -> int:
    """Returns the last time inside the window; a window is over when the watermark is past it (section 0, 1)."""
    return window[1] - 1


def assign(windows: WindowFn, time: int, row: dict[str, object] | None = None) -> list[Window]:
    """Returns the windows of an element of this time: none, one or several. `row` has its columns."""
    match windows:
        case FixedWindows():  # 1.3; Python's % is floorMod
            start = time - (time - windows.offset) % windows.size
            return [(start, start + windows.size)]
        case SlidingWindows():  # 1.4
            last = time - (time - windows.offset) % windows.period
            starts = range(last, time - windows.size, -windows.period)
            return [(start, start + windows.size) for start in starts]
        case CumulativeWindows():
            start = time - (time - windows.offset) % windows.size
            ends = range(start + windows.step, start + windows.size + 1, windows.step)
            return [(start, end) for end in ends if end > time]
        case Sessions():  # 1.5: a proto-window, before merging
            return [(time, time + windows.gap)]
        case GlobalWindows():
            return [GLOBAL_WINDOW]
        case CalendarWindows():
            return [calendar_window(windows, time)]
        case CustomWindows():  # 1.7: a set
            given = {column: (row or {})[column] for column in windows.columns}
            return list(dict.fromkeys(windows.assign_windows(time, given)))
    raise TypeError(f"the model knows no {windows!r}")


def merge_windows(windows: WindowFn, of_key: Iterable[Window]) -> list[Merge]:
    """Returns the merges of a key's windows; a window that is in no merge stays as it is."""
    if isinstance(windows, CustomWindows):  # 1.7
        return [(list(parts), result) for parts, result in windows.merge_windows(sorted(of_key))]
    return merge(of_key)


def merge(windows: Iterable[Window]) -> list[Merge]:
    """Returns runs of overlapping windows, each as (parts, union); touching windows do not overlap (1.5)."""
    runs: list[Merge] = []
    for window in sorted(windows):
        if runs and runs[-1][1][1] > window[0]:
            parts, (start, end) = runs.pop()
            runs.append(([*parts, window], (start, max(end, window[1]))))
        else:
            runs.append(([window], window))
    return runs


# --- Calendar windows (1.6) ---


def calendar_window(windows: CalendarWindows, time: int) -> Window:
    """Returns the window between two multiples of the unit after `start`, by the clocks of the zone."""
    zone = ZoneInfo(windows.timezone)
    days = {"days": 1, "weeks": 7, "months": 30, "years": 365}[windows.unit] * windows.count
    number = (local(time // SECOND, zone).date() - windows.start).days // days  # about
    while day_begins(later(windows, number), zone) > time:
        number -= 1
    while day_begins(later(windows, number + 1), zone) <= time:
        number += 1
    return day_begins(later(windows, number), zone), day_begins(later(windows, number + 1), zone)


def later(windows: CalendarWindows, number: int) -> date:
    """Returns the date that is `number` windows after the start, or before it if negative."""
    start, units = windows.start, number * windows.count
    match windows.unit:
        case "days":
            return start + timedelta(days=units)
        case "weeks":
            return start + timedelta(weeks=units)
        case "months":
            months = start.year * 12 + start.month - 1 + units
            return date(months // 12, months % 12 + 1, start.day)
    return start.replace(year=start.year + units)


def day_begins(day: date, zone: ZoneInfo) -> int:
    """Returns the first moment at which the zone's clocks show midnight, or skip it (here)."""
    midnight = datetime(day.year, day.month, day.day)
    guess = (midnight.replace(tzinfo=zone) - EPOCH) // timedelta(seconds=1)
    if local(guess, zone) == midnight:
        return guess * SECOND
    around = range(guess - 86_400, guess + 86_400)
    return around[bisect_left(around, midnight, key=lambda second: local(second, zone))] * SECOND


def local(second: int, zone: ZoneInfo) -> datetime:
    """Returns the local time in the zone."""
    return (EPOCH + timedelta(seconds=second)).astimezone(zone).replace(tzinfo=None)
