"""Windows: spans of event time `[start, end)`, and the functions that assign them to elements and merge them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Final, TypeVar, cast

import attrs
import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_END, WINDOW_START
from windowing.identity import Declared
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME, format_duration, microseconds

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)
Time = TypeVar("Time", int, pl.Series, pl.Expr)

RUN: Final = "__run"
"""The column with the number of a run: the rows of a key whose windows merge into one window."""

_TIME = pl.col(EVENT_TIME)


def _start(time: Time, size: int, offset: int) -> Time:
    """Computes the start of the fixed window of a time, or of each time of a column."""
    # % has the sign of the divisor, also in polars, so this rounds down for negative times, too.
    return time - (time - offset) % size


# Expressions are made once, which takes longer than to evaluate them in a small batch.
@lru_cache(maxsize=256)
def _fixed(size: int, offset: int) -> tuple[pl.Expr, pl.Expr]:
    """Returns expressions for the start and the end of the fixed window of each row."""
    start = _start(_TIME, size, offset)
    return start.alias(WINDOW_START), _end(start, size).alias(WINDOW_END)


def _fixed_bounds(times: pl.Series, size: int, offset: int) -> list[pl.Series] | None:
    """Computes the expressions of `_fixed` without a query. None if a time is null, or near the end of time."""
    least, greatest = cast(int | None, times.min()), cast(int | None, times.max())
    if least is None or greatest is None or times.null_count() or greatest > GLOBAL_WINDOW_END - size:
        return None
    first, last = (_start(time, size, offset) for time in (least, greatest))
    if first == last:  # as in most small batches
        ones = (pl.Series(WINDOW_START, [first]), pl.Series(WINDOW_END, [first + size]))
        return [one.new_from_index(0, len(times)) for one in ones]
    start = _start(times, size, offset).alias(WINDOW_START)
    return [start, (start + size).alias(WINDOW_END)]


@lru_cache(maxsize=256)
def _session(gap: int) -> tuple[pl.Expr, pl.Expr]:
    """Returns expressions for the start and the end of the session of each row alone."""
    return _TIME.alias(WINDOW_START), _end(_TIME, gap).alias(WINDOW_END)


def _end(start: pl.Expr, length: int | pl.Expr) -> pl.Expr:
    """Returns an expression for `start + length`, limited to the end of the global window, so that Int64 does not
    overflow.
    """
    return start.clip(upper_bound=GLOBAL_WINDOW_END - length) + length


def _positive(owner: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value <= 0:
        raise ValueError(
            f"{type(owner).__name__}: {attribute.name} must be longer than nothing, not {format_duration(value)}"
        )


_MOST: Final = 100_000
"""The maximum number of windows of an element. Each is a row, and all rows of a batch must fit into memory."""


# If attrs defined __getstate__, attributes of a user's plain subclass would not be pickled.
@attrs.frozen(getstate_setstate=False, repr=False)
class WindowFn(Declared):
    """The base class of all windows. For windows of your own, subclass `CustomWindows` instead.

    Example:
        >>> isinstance(bl.FixedWindows("1m"), bl.WindowFn)
        True
    """

    merging: ClassVar[bool] = False
    """True if windows of a key may merge."""

    merges_in_parts: ClassVar[bool] = True
    """True if windows may be merged in several rounds: the results are those of merging all windows at once."""

    merges_by_overlap: ClassVar[bool] = False
    """True if exactly those windows of a key merge that overlap."""

    python: ClassVar[bool] = False
    """True if assigning or merging windows calls Python functions of the user."""

    columns: ClassVar[tuple[str, ...]] = ()
    """The user's columns that `assign` reads, in addition to the event time."""

    @property
    def period(self) -> int | None:
        """The time (us) from an overlapping window to the next; None if windows do not overlap."""
        return None

    @property
    def span(self) -> int | None:
        """The maximum length (us) of windows that are the same for all keys; None if each key has its own windows."""
        return None

    @property
    def gaps(self) -> bool:
        """True if elements may be in no window."""
        return False

    def slice_start(self) -> pl.Expr | None:
        """Returns an expression for the start (us) of the slice of an event time. All times of a slice are in the same
        windows.

        None if no element is in several windows, or if slices are not known.
        """
        return None

    def ends_before(self, placed: pl.DataFrame) -> pl.Expr | None:
        """Returns an expression for the end (us) of the previous window that overlaps with the window of a row.

        None if windows never overlap, or if each key has its own windows.
        """
        return None

    def merge(self, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        """Adds the column `__run`: a number that is equal for the rows of a key whose windows merge into one.

        Runs are numbered from 1, in the order of the returned rows.
        """
        raise NotImplementedError

    def run_bounds(self) -> dict[str, pl.Expr]:
        """Returns aggregations, by column, for the start and end of the window that a run of rows becomes."""
        return {WINDOW_START: pl.col(WINDOW_START).min(), WINDOW_END: pl.col(WINDOW_END).max()}

    def assign(self, frame: Frame) -> Frame:
        """Adds the start and end of windows to elements, which have an event time: a row for each window of each."""
        raise NotImplementedError


@attrs.frozen(repr=False)
class FixedWindows(WindowFn):
    """Windows of one size without overlaps or gaps: `[offset + n * size, offset + (n + 1) * size)`.

    Times are relative to 1970-01-01 in UTC.

    Args:
        size: A duration, such as "90s", "1h 30m" or a timedelta.
        offset: A duration by which all windows are moved; it may be negative.

    Raises:
        ValueError: If the size is not positive.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m", offset="30s")).aggregate(n=bl.count())
        >>> minutes.select("n", start=bl.window_start()).collect()["start"].dt.strftime("%H:%M:%S").to_list()
        ['11:59:30', '12:00:30']
    """

    size: int = attrs.field(converter=microseconds, validator=_positive)
    offset: int = attrs.field(converter=microseconds, default=0)

    @property
    def span(self) -> int | None:
        return self.size

    def assign(self, frame: Frame) -> Frame:
        if isinstance(frame, pl.DataFrame) and WINDOW_START not in frame.columns:
            times = frame.get_column(EVENT_TIME)
            if (bounds := _fixed_bounds(times, self.size, self.offset)) is not None:
                return frame.hstack(bounds)
        return frame.with_columns(_fixed(self.size, self.offset))


@attrs.frozen(repr=False)
class SlidingWindows(WindowFn):
    """Windows of one size that start every `period`. They overlap if the period is shorter than the size.

    If the period is longer than the size, there are gaps between windows. An element in a gap is in no window; a
    grouping drops it, and counts it.

    Args:
        size: A duration, such as "90s" or a timedelta.
        period: The duration from the start of a window to the start of the next one.
        offset: A duration by which all windows are moved; it may be negative.

    Raises:
        ValueError: If an element would be in more than 100,000 windows, or a duration is not positive.

    Example, with the `plays` of `bl.Collection`:
        >>> counts = plays.window_into(bl.SlidingWindows("2m", "1m")).aggregate(n=bl.count())
        >>> counts.collect()["n"].to_list()
        [2, 3, 1]
    """

    size: int = attrs.field(converter=microseconds, validator=_positive)
    period: int = attrs.field(converter=microseconds, validator=_positive)
    offset: int = attrs.field(converter=microseconds, default=0)

    def __attrs_post_init__(self) -> None:
        count = -(-self.size // self.period)
        if count > _MOST:
            size, period, least = map(format_duration, (self.size, self.period, -(-self.size // _MOST)))
            raise ValueError(
                f"SlidingWindows: with size {size} and period {period} each element would be in {count:,} windows, and "
                f"at most {_MOST:,} are allowed: take a period of at least {least}"
            )

    @property
    def span(self) -> int | None:
        return self.size

    @property
    def gaps(self) -> bool:
        return self.period > self.size

    def slice_start(self) -> pl.Expr | None:
        # A slice begins wherever a window begins or ends.
        if self.period >= self.size:
            return None
        since, end = (_TIME - self.offset) % self.period, self.size % self.period
        return _TIME - since + pl.when(since >= end).then(end).otherwise(0)

    def ends_before(self, placed: pl.DataFrame) -> pl.Expr | None:
        return pl.col(WINDOW_END) - self.period

    def assign(self, frame: Frame) -> Frame:
        """Adds windows: a row for each window of each element, the earliest first."""
        last = _TIME - (_TIME - self.offset) % self.period
        # The earliest start is the first one after `time - size`.
        count = (last - (_TIME - self.size) + self.period - 1) // self.period
        starts = pl.int_ranges(last - (count - 1) * self.period, last + 1, self.period)
        exploded = frame.with_columns(starts.alias(WINDOW_START)).filter(count > 0).explode(WINDOW_START)
        return exploded.with_columns(_end(pl.col(WINDOW_START), self.size).alias(WINDOW_END))


@attrs.frozen(repr=False)
class CumulativeWindows(WindowFn):
    """Windows that start together every `size`, and end one `step` after the other, up to the next start.

    An element is in each window of its span of `size` that ends after it: with a size of "1h" and a step of "10m", the
    windows of an hour end after 10, 20, ..., 60 minutes. In Flink SQL this is `CUMULATE`.

    Args:
        size: A duration, such as "1h" or a timedelta: the length of the longest window.
        step: The duration from the end of a window to the end of the next one. The size is a multiple of it.
        offset: A duration by which all windows are moved; it may be negative.

    Raises:
        ValueError: If the size is no multiple of the step, an element would be in more than 100,000 windows, or a
            duration is not positive.

    Example, with the `plays` of `bl.Collection`:
        >>> counts = plays.window_into(bl.CumulativeWindows("3m", "1m")).aggregate(n=bl.count())
        >>> counts.collect()["n"].to_list()
        [2, 3, 3]
    """

    size: int = attrs.field(converter=microseconds, validator=_positive)
    step: int = attrs.field(converter=microseconds, validator=_positive)
    offset: int = attrs.field(converter=microseconds, default=0)

    def __attrs_post_init__(self) -> None:
        size, step = map(format_duration, (self.size, self.step))
        if self.size % self.step:
            raise ValueError(
                f"CumulativeWindows: size must be a multiple of step, and {size} is none of {step}"
            )
        if (count := self.size // self.step) > _MOST:
            raise ValueError(
                f"CumulativeWindows: with size {size} and step {step} an element would be in up to {count:,} windows, "
                f"and at most {_MOST:,} are allowed: take a longer step"
            )

    @property
    def period(self) -> int | None:
        return self.step

    @property
    def span(self) -> int | None:
        return self.size

    def slice_start(self) -> pl.Expr | None:
        return _TIME - (_TIME - self.offset) % self.step

    def ends_before(self, placed: pl.DataFrame) -> pl.Expr | None:
        return pl.col(WINDOW_END) - self.step

    def assign(self, frame: Frame) -> Frame:
        """Adds windows: a row for each window of each element, the shortest first."""
        since = (_TIME - self.offset) % self.size
        steps = pl.int_ranges(since // self.step + 1, self.size // self.step + 1)
        started = frame.with_columns((_TIME - since).alias(WINDOW_START), steps.alias(WINDOW_END))
        exploded = started.explode(WINDOW_END)
        start, length = pl.col(WINDOW_START), pl.col(WINDOW_END) * self.step
        # At the end of time, several windows would have the same limited end.
        distinct = start < GLOBAL_WINDOW_END - (length - self.step)
        return exploded.filter(distinct).with_columns(_end(start, length).alias(WINDOW_END))


@attrs.frozen(repr=False)
class Sessions(WindowFn):
    """Sessions: spans of activity of a key, which end after a duration of `gap` without elements.

    A session begins with its first element, and ends a gap after its last. Elements exactly a gap apart are in two
    sessions.

    Args:
        gap: A duration, such as "10m" or a timedelta.

    Example, with the `plays` of `bl.Collection`:
        >>> sessions = plays.window_into(bl.Sessions("90s")).group_by("user").aggregate(n=bl.count())
        >>> sessions.collect()[["user", "n"]].rows()
        [('bob', 1), ('ada', 2)]
    """

    merging: ClassVar[bool] = True
    merges_by_overlap: ClassVar[bool] = True

    gap: int = attrs.field(converter=microseconds, validator=_positive)

    def assign(self, frame: Frame) -> Frame:
        """Adds a window `[time, time + gap)` to each element. A grouping merges overlapping windows of a key."""
        if isinstance(frame, pl.DataFrame) and not frame[EVENT_TIME].null_count():
            import numpy as np  # slow to import

            times = frame[EVENT_TIME]
            ends = np.minimum(times.to_numpy(), GLOBAL_WINDOW_END - self.gap) + self.gap
            return frame.hstack([times.alias(WINDOW_START), pl.Series(WINDOW_END, ends)])
        return frame.with_columns(_session(self.gap))

    def merge(self, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        import numpy as np  # slow to import

        from windowing.sweep import begins_run, by_key_and_start

        # A sweep over windows by start: a session begins if no window before reaches the start of the row.
        ordered, begins = by_key_and_start(rows, keys)
        new = begins_run(begins, ordered[WINDOW_START].to_numpy(), ordered[WINDOW_END].to_numpy())
        return ordered.hstack([pl.Series(RUN, np.cumsum(new), pl.UInt32)])


@attrs.frozen(repr=False)
class GlobalWindows(WindowFn):
    """A single window for all times, which only the end of input closes.

    Rows of a source are in it until a `window_into`. If the input never ends, a grouping needs a trigger that emits
    before the end of the window.

    Example, with the `plays` of `bl.Collection`:
        >>> often = bl.Repeatedly(bl.AfterCount(2))
        >>> plays.window_into(bl.GlobalWindows(), trigger=often).aggregate(n=bl.count()).collect()["n"].to_list()
        [2, 1]
    """

    def assign(self, frame: Frame) -> Frame:
        return frame.with_columns(
            pl.lit(MIN_TIME, pl.Int64).alias(WINDOW_START),
            pl.lit(GLOBAL_WINDOW_END, pl.Int64).alias(WINDOW_END),
        )
