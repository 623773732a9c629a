"""Axes of times and durations. Ticks are at round values, and labels are as short as possible."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
from matplotlib.axis import Axis, XAxis

from windowing.time import DAY, GLOBAL_WINDOW_END, MIN_TIME, format_duration, format_time

Numbers = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]

_SECOND: Final = 1_000_000
_STEPS: Final = (
    *(unit * factor for unit in (1, 10, 100, 1_000, 10_000, 100_000) for factor in (1, 2, 5)),
    *(_SECOND * seconds for seconds in (1, 2, 5, 10, 15, 30)),
    *(_SECOND * 60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(_SECOND * 3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(DAY * days for days in (1, 2, 7, 14, 28, 91, 182, 364)),
)
"""The possible distances between ticks, in microseconds."""

SIMULATED: Final = 366 * DAY  # times within a year of 1970 are from a simulated clock that started at 0


def finite(times: Times) -> npt.NDArray[np.bool_]:
    """Returns a mask of the times that are neither minus nor plus infinity."""
    return (times > MIN_TIME) & (times < GLOBAL_WINDOW_END - 1)


@attrs.frozen
class TimeAxis:
    """An axis between two times, in seconds since the first, so that floats are exact enough for any date."""

    low: int
    high: int

    @classmethod
    def around(cls, *times: Times, room: float = 0.03) -> TimeAxis:
        """Creates an axis for all finite times, with a margin on both sides."""
        known = (
            np.concatenate([series[finite(series)] for series in times]) if times else np.empty(0, np.int64)
        )
        low, high = (int(known.min()), int(known.max())) if known.size else (0, _SECOND)
        margin = int((high - low) * room) or _SECOND // 2
        return cls(low - margin, high + margin)

    def at(self, times: Times) -> Numbers:
        """Returns the positions of times on the axis: nan for minus infinity, the far end for plus infinity."""
        places = (times - self.low) / _SECOND
        return np.where(finite(times), places, np.where(times > 0, self.length, np.nan))

    @property
    def length(self) -> float:
        """The length of the axis in seconds."""
        return (self.high - self.low) / _SECOND

    def label(self, what: str) -> str:
        """Returns the label: `event time (UTC, 2026-01-01)`, or `event time (h:mm:ss)` for a clock that
        started at 0.
        """
        if self._simulated():
            return f"{what} (h:mm:ss)"
        first, last = _day(self.low), _day(self.high)
        return f"{what} (UTC, {first})" if first == last else f"{what} (UTC, {first} to {last})"

    def clock(self, time: int) -> str:
        """Formats a time, as short as this axis allows."""
        if not finite(np.array([time])).item():
            return "-inf" if time < 0 else "+inf"
        text = self._text(time, _SECOND if self.length >= 60 else 1_000)
        several_days = not self._simulated() and _day(self.low) != _day(self.high)
        return f"{_day(time)} {text}" if several_days else text

    def set(self, axis: Axis, count: int = 5) -> None:
        """Sets the limits of the axis, and about `count` ticks."""
        step = tick_distance(self.high - self.low, count)
        places = range(-(-self.low // step) * step, self.high + 1, step)
        limits = (0.0, self.length)
        axis.axes.set_xlim(*limits) if isinstance(axis, XAxis) else axis.axes.set_ylim(*limits)
        axis.set_ticks(
            [(place - self.low) / _SECOND for place in places], [self._text(place, step) for place in places]
        )

    def _simulated(self) -> bool:
        return max(abs(self.low), abs(self.high)) < SIMULATED

    def _text(self, time: int, step: int) -> str:
        if self._simulated():
            return _elapsed(time, step)
        if step >= DAY:
            return _day(time)
        hours, minutes, seconds = _clock(time % DAY)
        text = f"{hours:02}:{minutes:02}"
        return text if step >= 60 * _SECOND else f"{text}:{seconds:02}{_fraction(time, step)}"


@attrs.frozen
class BatchAxis(TimeAxis):
    """An axis of batch numbers instead of times."""

    def label(self, what: str) -> str:
        return f"{what}, in batches"

    def _text(self, time: int, step: int) -> str:
        return f"{time:,}"


def set_durations(axis: Axis, values: Numbers, count: int = 4) -> None:
    """Sets the y axis for these durations, in seconds. Its labels are durations such as `1m30s`.

    The axis starts at 0 or, if all durations are similar, near the smallest one.
    """
    known = values[np.isfinite(values)]
    least, most = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    base = least if 0 < most - least < most / 5 else min(0.0, least)
    room = (most - base) * 0.08 or 1.0
    low, high = int((base - (room if base else 0)) * _SECOND), int((most + room) * _SECOND) + 1
    step = tick_distance(high - low, count)
    places = range(-(-low // step) * step, high + 1, step)
    axis.axes.set_ylim(low / _SECOND, high / _SECOND)
    axis.set_ticks([place / _SECOND for place in places], [format_duration(place) for place in places])


def tick_distance(length: int, count: int) -> int:
    """Returns the smallest distance between ticks for which there are at most `count` + 1 ticks."""
    fitting = (step for step in _STEPS if step * count >= length)
    return next(fitting, -(-length // (count * _STEPS[-1])) * _STEPS[-1])


def _elapsed(time: int, step: int) -> str:
    hours, minutes, seconds = _clock(abs(time))
    return f"{'-' if time < 0 else ''}{hours}:{minutes:02}:{seconds:02}{_fraction(abs(time), step)}"


def _clock(time: int) -> tuple[int, int, int]:
    """Returns hours, minutes and seconds of a time of day."""
    seconds = time // _SECOND
    return seconds // 3600, seconds // 60 % 60, seconds % 60


def _fraction(time: int, step: int) -> str:
    """Returns the fraction of a second as text, with the digits that are needed to distinguish ticks at a distance of
    `step`.
    """
    digits = next((count for count in range(7) if step % 10 ** (6 - count) == 0), 6)
    return f".{time % _SECOND:06}"[: digits + 1] if digits else ""


def _day(time: int) -> str:
    return format_time(time).partition("T")[0]
