"""Windows: into which spans of event time `[start, end)` an element falls, as columns."""

from __future__ import annotations

from typing import ClassVar, Final, TypeVar

import attrs
import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_END, WINDOW_START
from windowing.time import DAY, GLOBAL_WINDOW_END, MIN_TIME, format_duration, microseconds

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)

_TIME = pl.col(EVENT_TIME)

_LONGEST: Final = 36_500_000 * DAY
"""Some hundred thousand years: the sum of two such lengths still fits 64 bits."""


def _positive(owner: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value <= 0:
        raise ValueError(
            f"{type(owner).__name__}: {attribute.name} must be longer than nothing, not {value} us"
        )
    if value > _LONGEST:
        longest, given = format_duration(_LONGEST), format_duration(value)
        raise ValueError(f"{type(owner).__name__}: {attribute.name} must be at most {longest}, not {given}")


@attrs.frozen
class WindowFn:
    """A way to divide event time into windows; `assign` gives each element its windows."""

    merging: ClassVar[bool] = False
    """Whether windows of one key that overlap become one."""

    @property
    def period(self) -> int | None:
        """Distance between the starts of overlapping windows in microseconds; None where they do not overlap."""
        return None

    @property
    def span(self) -> int | None:
        """Length in microseconds of windows that are the same for all keys; None where keys differ."""
        return None

    def assign(self, frame: Frame) -> Frame:
        """The frame with a row per (element, window): needs the event time, adds window start and end."""
        raise NotImplementedError


@attrs.frozen
class FixedWindows(WindowFn):
    """Windows of one size, one after the other: `[offset + n * size, offset + (n + 1) * size)`."""

    size: int = attrs.field(converter=microseconds, validator=_positive)
    offset: int = attrs.field(converter=microseconds, default=0)

    @property
    def span(self) -> int | None:
        return self.size

    def assign(self, frame: Frame) -> Frame:
        """One window per element, whose start is rounded down, also before 1970."""
        # Polars' % takes the sign of the divisor, as floor division does.
        start = _TIME - (_TIME - self.offset) % self.size
        return frame.with_columns(start.alias(WINDOW_START), (start + self.size).alias(WINDOW_END))


@attrs.frozen
class SlidingWindows(WindowFn):
    """Windows of one size that start every `period`: they overlap where the period is shorter than the size.

    With a period longer than the size there are gaps between windows; an element in a gap is in no window.
    """

    size: int = attrs.field(converter=microseconds, validator=_positive)
    period: int = attrs.field(converter=microseconds, validator=_positive)
    offset: int = attrs.field(converter=microseconds, default=0)

    @property
    def span(self) -> int | None:
        return self.size

    def assign(self, frame: Frame) -> Frame:
        """A row per window of each element, earliest window first."""
        last = _TIME - (_TIME - self.offset) % self.period
        # The earliest start is the first one after `time - size`.
        count = (last - (_TIME - self.size) + self.period - 1) // self.period
        starts = pl.int_ranges(last - (count - 1) * self.period, last + 1, self.period)
        exploded = frame.with_columns(starts.alias(WINDOW_START)).filter(count > 0).explode(WINDOW_START)
        return exploded.with_columns((pl.col(WINDOW_START) + self.size).alias(WINDOW_END))


@attrs.frozen
class Sessions(WindowFn):
    """Spans of activity of a key that a silence of `gap` ends; elements exactly `gap` apart are two sessions."""

    merging: ClassVar[bool] = True

    gap: int = attrs.field(converter=microseconds, validator=_positive)

    def assign(self, frame: Frame) -> Frame:
        """One window `[time, time + gap)` per element; the grouping merges those of a key that overlap."""
        return frame.with_columns(_TIME.alias(WINDOW_START), (_TIME + self.gap).alias(WINDOW_END))


@attrs.frozen
class GlobalWindows(WindowFn):
    """One window for all of time, which only the end of input closes."""

    def assign(self, frame: Frame) -> Frame:
        """The same window for every element."""
        return frame.with_columns(
            pl.lit(MIN_TIME, pl.Int64).alias(WINDOW_START),
            pl.lit(GLOBAL_WINDOW_END, pl.Int64).alias(WINDOW_END),
        )
