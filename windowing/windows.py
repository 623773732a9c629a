"""Windows: the spans of event time `[start, end)` that contain an element, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, TypeVar

import attrs
import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_END, WINDOW_START
from windowing.identity import Declared
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME, format_duration, microseconds

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)

RUN: Final = "__run"
"""Column of rows with merging windows: the number of the run of rows that become one window."""

_TIME = pl.col(EVENT_TIME)
_NEW_KEY: Final = "__new_key"
_HASH: Final = "__hash"
_TWO_TO_64: Final = pl.lit(1 << 64, pl.Int128)


def _end(start: pl.Expr, length: int) -> pl.Expr:
    """`start + length`, limited to the end of the global window, so that Int64 does not overflow."""
    return start.clip(upper_bound=GLOBAL_WINDOW_END - length) + length


def _positive(owner: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value <= 0:
        raise ValueError(
            f"{type(owner).__name__}: {attribute.name} must be longer than nothing, not {value} us"
        )


_MOST: Final = 100_000
"""Windows that an element may be in. Each is a row of its own, and a batch of those must fit into memory."""


# Its own __getstate__ would pickle nothing of a user's subclass that is no attrs class.
@attrs.frozen(getstate_setstate=False)
class WindowFn(Declared):
    """The base of all windows: `assign` finds the windows of each element.

    Subclass `CustomWindows` for windows of your own.

    Example:
        >>> isinstance(bl.FixedWindows("1m"), bl.WindowFn)
        True
    """

    merging: ClassVar[bool] = False
    """True if windows of one key may merge."""

    merges_in_parts: ClassVar[bool] = True
    """Law: to merge some windows first, and then their results with the rest, gives what merging all gives."""

    merges_by_overlap: ClassVar[bool] = False
    """True if merging windows of a key merge if they overlap, and no others do."""

    python: ClassVar[bool] = False
    """True if it calls functions of the user's."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that `assign` reads, besides the event time."""
        return ()

    @property
    def period(self) -> int | None:
        """Distance between the starts of overlapping windows in microseconds; None if they do not overlap."""
        return None

    @property
    def span(self) -> int | None:
        """Length in microseconds, the longest one, of windows that are the same for all keys, else None."""
        return None

    @property
    def gaps(self) -> bool:
        """True if elements may be in no window."""
        return False

    def slice_start(self) -> pl.Expr | None:
        """The start (us) of the slice of each event time: all times of a slice are in the same windows.

        None if no element is in several windows of this kind, or if slices are not known.
        """
        return None

    def ends_before(self, placed: pl.DataFrame) -> pl.Expr | None:
        """The end (us) of the previous window for each (element, window) row, if that may reach into its window.

        None if windows never overlap, or each key has its own.
        """
        return None

    def merge(self, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        """Numbers the rows of merging windows in `__run`, equally for rows of a key that become one window.

        Runs are numbered from 1, in the order of the returned rows.
        """
        raise NotImplementedError

    def run_bounds(self) -> dict[str, pl.Expr]:
        """Start and end of the window that a run of merging windows becomes, as aggregations over its rows."""
        return {WINDOW_START: pl.col(WINDOW_START).min(), WINDOW_END: pl.col(WINDOW_END).max()}

    def assign(self, frame: Frame) -> Frame:
        """The frame with a row per (element, window): needs the event time, adds window start and end."""
        raise NotImplementedError


@attrs.frozen
class FixedWindows(WindowFn):
    """Windows of one size, one after the other: `[offset + n * size, offset + (n + 1) * size)`.

    Windows are counted from 1970-01-01 in UTC.

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
        # Polars' % takes the sign of the divisor, as floor division does.
        start = _TIME - (_TIME - self.offset) % self.size
        return frame.with_columns(start.alias(WINDOW_START), _end(start, self.size).alias(WINDOW_END))


@attrs.frozen
class SlidingWindows(WindowFn):
    """Windows of one size that start every `period`: they overlap if the period is shorter than the size.

    With a period longer than the size there are gaps between windows; an element in a gap is in no window, and is
    dropped by a grouping and counted.

    Args:
        size: A duration, such as "90s" or a timedelta.
        period: The duration between the starts of two windows.
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
        """The last time up to each event time at which a window has begun or ended."""
        if self.period >= self.size:
            return None
        since, end = (_TIME - self.offset) % self.period, self.size % self.period
        return _TIME - since + pl.when(since >= end).then(end).otherwise(0)

    def ends_before(self, placed: pl.DataFrame) -> pl.Expr | None:
        return pl.col(WINDOW_END) - self.period

    def assign(self, frame: Frame) -> Frame:
        """A row per window of each element, earliest window first."""
        last = _TIME - (_TIME - self.offset) % self.period
        # The earliest start is the first one after `time - size`.
        count = (last - (_TIME - self.size) + self.period - 1) // self.period
        starts = pl.int_ranges(last - (count - 1) * self.period, last + 1, self.period)
        exploded = frame.with_columns(starts.alias(WINDOW_START)).filter(count > 0).explode(WINDOW_START)
        return exploded.with_columns(_end(pl.col(WINDOW_START), self.size).alias(WINDOW_END))


@attrs.frozen
class Sessions(WindowFn):
    """Spans of activity of a key that a silence of `gap` ends; elements exactly `gap` apart are two sessions.

    A session begins with its first element and ends a gap after its last.

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
        """A window `[time, time + gap)` per element; the grouping merges those of a key that overlap."""
        return frame.with_columns(_TIME.alias(WINDOW_START), _end(_TIME, self.gap).alias(WINDOW_END))

    def merge(self, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        """A sweep: a row begins a new session if its start is not before the running maximum of the ends."""
        ordered = _by_key_and_start(rows, keys)
        start, end = pl.col(WINDOW_START), pl.col(WINDOW_END)
        if not _ends_ascend(ordered):
            # A maximum for each key is that of all rows, where every key has numbers above those of the key before.
            first = pl.col(_NEW_KEY).cum_sum().cast(pl.Int128) * _TWO_TO_64
            start, end = first + start, (first + end).cum_max()
        breaks = pl.col(_NEW_KEY) | (start >= end.shift()).fill_null(True)
        return ordered.with_columns(breaks.cum_sum().alias(RUN)).drop(_NEW_KEY)


def _by_key_and_start(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The rows of a key together, by their starts, and `__new_key`, true for the first row of a key.

    Stable, so that of elements with one event time the one that arrived first stays first.
    """
    if not keys:
        return rows.sort(WINDOW_START, maintain_order=True).with_columns(begins_key(keys).alias(_NEW_KEY))
    # A sort by one number is several times faster than one by all columns, above all if keys are texts. Half of the
    # hash, so that the number cannot overflow.
    hashed = rows.with_columns(rows.select(*keys).hash_rows().alias(_HASH) // 2)
    order = pl.col(_HASH).cast(pl.Int128) * _TWO_TO_64 + pl.col(WINDOW_START)
    ordered = hashed.sort(order, maintain_order=True).with_columns(begins_key(keys).alias(_NEW_KEY))
    if ordered.select((pl.col(_NEW_KEY) & (pl.col(_HASH) == pl.col(_HASH).shift())).any()).item():
        # Two keys have one hash, and their rows may be mixed.
        ordered = rows.sort(*keys, WINDOW_START, maintain_order=True)
        return ordered.with_columns(begins_key(keys).alias(_NEW_KEY))
    return ordered.drop(_HASH)


def begins_key(keys: Sequence[str]) -> pl.Expr:
    """True for the first row of each key, if rows are in the order of keys."""
    changes = [pl.col(key).ne_missing(pl.col(key).shift()) for key in keys]
    return pl.any_horizontal(pl.int_range(pl.len()) == 0, *changes)


def _ends_ascend(ordered: pl.DataFrame) -> bool:
    """True if ends go up with the starts of each key, as those of single elements do: then no maximum is needed."""
    end = pl.col(WINDOW_END)
    return bool(ordered.select((pl.col(_NEW_KEY) | (end >= end.shift())).fill_null(True).all()).item())


@attrs.frozen
class GlobalWindows(WindowFn):
    """A single window for all of time, which only the end of input closes.

    Rows of a source are in it until a `window_into`. A grouping of an input without end needs a trigger that emits
    before the window ends.

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
