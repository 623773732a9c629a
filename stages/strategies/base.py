"""Watermark strategies of sources: observe (per task, columnar) -> merge (associative) -> fold -> watermark.

Summaries and states are plain data (dicts that JSON can hold): a summary travels beside the chunks that it describes,
a state is kept from batch to batch. Both have a bounded number of entries, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import attrs
import polars as pl

from stages.strategies import validators
from stages.strategies.histogram import Histogram, histogram, merge_histograms
from stages.strategies.lateness import HALF_LIFE, Lateness, learn, percentile_watermark
from windowing.columns import EVENT_TIME
from windowing.identity import Declared
from windowing.time import MIN_TIME, Microseconds, microseconds

Summary = dict[str, Any]


# What a strategy is


@attrs.frozen
class WatermarkStrategy(Declared):
    """How complete a source is: W says that no element with an event time before W is still to come.

    A user's own is a subclass with three functions: `observe`, `merge` and `watermark`; fields make it an attrs
    class. Counterparts: Flink's `WatermarkGenerator`; Beam's `WatermarkEstimator`, for Kafka `TimestampPolicy`.

    Laws: `merge` is associative and commutative with `{}` as identity; observing a batch in parts and merging gives
    what observing it whole gives. The watermark may fall: the source never takes back what it has reached.

    `per_split="partition"` keeps a watermark for each value of that column, and takes the least of them;
    `per_split=source_file()` one for each file, until it was read to its end.
    `idle_after="30s"` leaves a split, or the source, out of the minimum when it has been silent so long (in
    processing time), until it speaks again; when all are silent the watermark stays.
    `max_drift="5m"` lets the source wait while it is further than that ahead of the slowest.
    `percentiles=(33, 66)` keeps watermarks that only so many percent of the elements are not behind: the newest event
    time less that quantile of lateness, and never behind the watermark, which is the 100th.

    Example:
        >>> import attrs
        >>> @attrs.frozen
        ... class Announced(bl.WatermarkStrategy):
        ...     column: str
        ...
        ...     @property
        ...     def reads(self):
        ...         return (self.column,)
        ...
        ...     def observe(self, frame):
        ...         return {"newest": frame[self.column].max()} if len(frame) else {}
        ...
        ...     def merge(self, one, other):
        ...         return max(one, other, key=lambda summary: summary.get("newest", 0))
        ...
        ...     def watermark(self, state, processing_time):
        ...         return state.get("newest", 0)
        >>> rows = bl.Rows([{"at": 10, "complete": 0}, {"at": 70, "complete": 60_000_000}])
        >>> told = Announced("complete")
        >>> plays = bl.Pipeline("p").read("plays", rows, timestamp="at", timestamp_unit="s", watermark=told)
        >>> plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).collect()["n"].to_list()
        [1, 1]
    """

    per_split: str | validators.SourceFile | None = attrs.field(
        default=None, kw_only=True, validator=validators.split
    )
    idle_after: Microseconds | None = attrs.field(
        default=None,
        kw_only=True,
        converter=validators.length,
        validator=validators.longer_than_nothing,
        repr=validators.shown,
    )
    max_drift: Microseconds | None = attrs.field(
        default=None,
        kw_only=True,
        converter=validators.length,
        validator=validators.longer_than_nothing,
        repr=validators.shown,
    )
    percentiles: tuple[int, ...] = attrs.field(
        default=(), kw_only=True, converter=validators.in_order, validator=validators.percentiles
    )

    moves_with_time: ClassVar[bool] = False
    """Whether its watermark moves when only processing time does."""

    assigns_event_time: ClassVar[bool] = False
    """Whether the event time of an element is the processing time at which it comes in."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls) and "__attrs_attrs__" not in vars(cls):
            raise TypeError(
                f"{cls.__name__}: declare what it holds as fields of an attrs class (@attrs.frozen), not in __init__"
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of the user's that `observe` reads."""
        return ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of the user's that the source must keep for it."""
        split = (self.per_split,) if isinstance(self.per_split, str) else ()
        return tuple(dict.fromkeys((*split, *self.reads)))

    @property
    def needs_time(self) -> bool:
        """Whether the passing of processing time alone can change what it says."""
        return self.moves_with_time or self.idle_after is not None

    @property
    def learns_lateness(self) -> bool:
        """Whether its percentile watermarks follow from how late elements are."""
        return bool(self.percentiles)

    def observe(self, frame: pl.DataFrame) -> Summary:
        """The summary of rows that have an event time and `columns`; `{}` of none."""
        raise NotImplementedError(f"{type(self).__name__} must define observe(self, frame)")

    def observe_splits(self, frame: pl.DataFrame, split: str) -> dict[str, Summary]:
        """The summary of each split that has rows in the frame, by its name, which is in the column `split`."""
        parts = frame.partition_by(split, as_dict=True)
        return {name: self.observe(part) for (name,), part in parts.items()}

    def merge(self, one: Summary, other: Summary) -> Summary:
        """The summary of both, which are of the same batch."""
        raise NotImplementedError(f"{type(self).__name__} must define merge(self, one, other)")

    def fold(self, state: Summary, summary: Summary) -> Summary:
        """The state after a batch with this summary; at first it is `{}`."""
        return self.merge(state, summary)

    def watermark(self, state: Summary, processing_time: int) -> int:
        """The watermark in microseconds, which the source then never takes back."""
        raise NotImplementedError(
            f"{type(self).__name__} must define watermark(self, state, processing_time)"
        )

    def percentile_watermarks(self, state: Summary) -> dict[int, int]:
        """The percentile watermarks that its own state tells, in microseconds, besides those that are learned."""
        return {}

    def awaited(self, spoken: Collection[str]) -> str:
        """Which splits must speak before there is a watermark, in words; nothing if none must."""
        return ""

    def is_over(self, state: Summary) -> bool:
        """Whether a split with this state has said that nothing more comes of it, until something does."""
        return False


# The newest time


@attrs.frozen
class NewestTime(WatermarkStrategy):
    """The base of those that look at nothing but the newest of some time of their rows."""

    def times(self, frame: pl.DataFrame) -> pl.Series:
        """That time of each row, in microseconds; null for rows that do not count."""
        return frame[EVENT_TIME]

    def observe(self, frame: pl.DataFrame) -> Summary:
        """The newest."""
        return _newest(self.times(frame).max())

    def observe_splits(self, frame: pl.DataFrame, split: str) -> dict[str, Summary]:
        """The newest of each."""
        newest = frame.select(split, self.times(frame).alias("newest")).group_by(split).max()
        return {name: _newest(time) for name, time in newest.rows()}

    def merge(self, one: Summary, other: Summary) -> Summary:
        """The newer of the two."""
        if not one or not other:
            return one or other
        return max(one, other, key=lambda summary: int(summary["newest"]))

    def watermark(self, state: Summary, processing_time: int) -> int:
        """The newest; the beginning of time before there is one."""
        return int(state.get("newest", MIN_TIME))


def _newest(time: Any) -> Summary:
    return {} if time is None else {"newest": time}


@attrs.frozen
class BoundedOutOfOrderness(NewestTime):
    """The watermark follows the newest event time at a distance: elements are at most `bound` out of order.

    `bound` is a duration, such as "5s" or a timedelta. W = newest - bound; an element at exactly W is not late.
    Flink's `forBoundedOutOfOrderness` has `newest - bound - 1 ms`, which says that none at or before it is to come,
    and closes windows at the same moment. Beam has `CustomTimestampPolicyWithLimitedDelay` for Kafka. What all
    strategies take besides is told by `WatermarkStrategy`.

    Example:
        >>> scores = bl.Rows([{"at": 50}, {"at": 61}, {"at": 58}, {"at": 130}, {"at": 3}], rows_per_batch=1)
        >>> strategy = bl.BoundedOutOfOrderness("5s")
        >>> plays = bl.Pipeline("p").read("plays", scores, timestamp="at", timestamp_unit="s", watermark=strategy)
        >>> counts = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
        >>> counts.collect()["n"].to_list(), counts.late().collect()["at"].to_list()
        ([2, 1, 1], [3])
    """

    bound: int = attrs.field(converter=microseconds, validator=validators.not_negative)

    def watermark(self, state: Summary, processing_time: int) -> int:
        """Newest - bound; the beginning of time before the first element."""
        return max(MIN_TIME, int(state.get("newest", MIN_TIME)) - self.bound)


@attrs.frozen
class MonotonousTimestamps(BoundedOutOfOrderness):
    """Event times never go down: W = newest, a bound of nothing.

    Flink's `forMonotonousTimestamps`, Beam's `MonotonicallyIncreasing`. What all strategies take is told by
    `WatermarkStrategy`.

    Example:
        >>> rows = bl.Rows([{"at": 50}, {"at": 70}, {"at": 59}], rows_per_batch=1)
        >>> strategy = bl.MonotonousTimestamps()
        >>> plays = bl.Pipeline("p").read("plays", rows, timestamp="at", timestamp_unit="s", watermark=strategy)
        >>> plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).late().collect()["at"].to_list()
        [59]
    """

    bound: int = attrs.field(default=0, init=False)


# Processing time


@attrs.frozen
class _ByTheClock(WatermarkStrategy):
    """The base of those that look at no element."""

    per_split: None = attrs.field(default=None, kw_only=True, validator=validators.by_the_clock)
    idle_after: None = attrs.field(default=None, kw_only=True, validator=validators.by_the_clock)

    moves_with_time: ClassVar[bool] = True

    def observe(self, frame: pl.DataFrame) -> Summary:
        """Nothing."""
        return {}

    def merge(self, one: Summary, other: Summary) -> Summary:
        """Nothing."""
        return {}


@attrs.frozen
class ProcessingTimeLag(_ByTheClock):
    """Elements come at most `lag` after they happened: W = processing time - lag, whether or not any come.

    `lag` is a duration, such as "1m" or a timedelta. Flink's documentation has it as `TimeLagWatermarkGenerator`;
    with no lag it is Beam's `WallTime`.

    Example:
        >>> strategy = bl.ProcessingTimeLag("1m")
        >>> strategy.watermark({}, processing_time=90_000_000)
        30000000
    """

    lag: int = attrs.field(converter=microseconds, validator=validators.not_negative)

    def watermark(self, state: Summary, processing_time: int) -> int:
        """Processing time - lag."""
        return max(MIN_TIME, processing_time - self.lag)


@attrs.frozen
class IngressTimestamps(_ByTheClock):
    """An element happens when it comes in: its event time is the processing time then, and W = processing time.

    A perfect watermark: what comes in later has no earlier time. `read` then takes no `timestamp`. Flink once had it
    as "ingestion time"; Beam: Kafka's `ProcessingTimePolicy`.

    Example:
        >>> rows = bl.Pipeline("p").read("rows", bl.Rows([{"user": "ada"}]), watermark=bl.IngressTimestamps())
        >>> rows.window_into(bl.FixedWindows("1d")).aggregate(n=bl.count()).collect()["n"].to_list()
        [1]
    """

    assigns_event_time: ClassVar[bool] = True

    def watermark(self, state: Summary, processing_time: int) -> int:
        """The processing time."""
        return processing_time


# Lateness


@attrs.frozen
class PercentileLateness(WatermarkStrategy):
    """The bound learns itself, so that this share of elements is not late: W = newest - that quantile of lateness.

    `share` is a number between 0 and 1. The lateness of an element is how far it is behind the newest of the batches
    before its own. With each `half_life`, a duration, of event time what was learned counts half. There is no
    watermark until a second batch has come. Neither Flink nor Beam has it: there one measures lateness, and sets the
    bound.

    Example:
        >>> bl.PercentileLateness(0.99, half_life="6h").share
        0.99
    """

    share: float = attrs.field(validator=validators.share)
    half_life: int = attrs.field(
        default=Microseconds(HALF_LIFE),
        kw_only=True,
        converter=microseconds,
        validator=validators.longer_than_nothing,
    )

    def observe(self, frame: pl.DataFrame) -> Histogram:
        """How many elements have which event time."""
        return histogram(frame[EVENT_TIME])

    def merge(self, one: Histogram, other: Histogram) -> Histogram:
        """Of all elements of both."""
        return merge_histograms(one, other)

    def fold(self, state: Lateness, summary: Histogram) -> Lateness:
        """What is known of lateness after the batch."""
        return learn(state, summary, self.half_life)

    def watermark(self, state: Lateness, processing_time: int) -> int:
        """Newest - the quantile; the beginning of time before any lateness is known."""
        learned = percentile_watermark(state, self.share)
        return MIN_TIME if learned is None else max(MIN_TIME, learned)
