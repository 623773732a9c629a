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
    """The rule by which a source's watermark W follows: no element with an event time before W is still to come.

    A user's own is a subclass with three functions: `observe`, `merge` and `watermark`; fields make it an attrs
    class. Counterparts: Flink's `WatermarkGenerator`; Beam's `WatermarkEstimator`, for Kafka `TimestampPolicy`.

    Laws: `merge` is associative and commutative with `{}` as identity; observing a batch in parts and merging returns
    the same as observing it whole. The watermark may fall: the source never goes back.

    Args:
        per_split: The column for each value of which a watermark is kept, such as "partition", or `source_file()` for
            one per file until it was read to its end. The source's watermark is the least of them.
        idle_after: The processing time, such as "30s", after which a silent split, or the source, leaves the minimum
            until it speaks again. When all are silent the watermark stays. By default none becomes idle.
        max_drift: The event time, such as "5m", by which the source may be ahead of the slowest one before it must
            wait; by default it never waits.
        percentiles: The shares of percentile watermarks, such as (33, 66): only so many percent of the elements are not
            behind them. Each is the newest event time less that quantile of lateness, and never behind the watermark,
            which is the 100th.

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
    """True if its watermark moves when only processing time does."""

    assigns_event_time: ClassVar[bool] = False
    """True if the event time of an element is the processing time of its arrival."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls) and "__attrs_attrs__" not in vars(cls):
            raise TypeError(
                f"{cls.__name__}: declare what it holds as fields of an attrs class (@attrs.frozen), not in __init__"
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """The user's columns that `observe` reads."""
        return ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All user's columns that the source must keep for it."""
        split = (self.per_split,) if isinstance(self.per_split, str) else ()
        return tuple(dict.fromkeys((*split, *self.reads)))

    @property
    def needs_time(self) -> bool:
        """True if the watermark may change when only processing time passes."""
        return self.moves_with_time or self.idle_after is not None

    @property
    def learns_lateness(self) -> bool:
        """True if its percentile watermarks follow from the lateness of elements."""
        return bool(self.percentiles)

    def observe(self, frame: pl.DataFrame) -> Summary:
        """Returns the summary of rows that have an event time and `columns`; `{}` for no rows."""
        raise NotImplementedError(f"{type(self).__name__} must define observe(self, frame)")

    def observe_splits(self, frame: pl.DataFrame, split: str) -> dict[str, Summary]:
        """Returns the summary of each split with rows in the frame, by its name, which is in the column `split`."""
        parts = frame.partition_by(split, as_dict=True)
        return {name: self.observe(part) for (name,), part in parts.items()}

    def merge(self, one: Summary, other: Summary) -> Summary:
        """Returns the summary of both, which are of the same batch."""
        raise NotImplementedError(f"{type(self).__name__} must define merge(self, one, other)")

    def fold(self, state: Summary, summary: Summary) -> Summary:
        """Returns the state after a batch with this summary; the first state is `{}`."""
        return self.merge(state, summary)

    def watermark(self, state: Summary, processing_time: int) -> int:
        """Returns the watermark in microseconds. The source does not go back if it falls."""
        raise NotImplementedError(
            f"{type(self).__name__} must define watermark(self, state, processing_time)"
        )

    def percentile_watermarks(self, state: Summary) -> dict[int, int]:
        """Returns the percentile watermarks in its own state, in microseconds, besides those that are learned."""
        return {}

    def awaited(self, spoken: Collection[str]) -> str:
        """Names the splits that must speak before there is a watermark, in words; empty if none must."""
        return ""

    def is_over(self, state: Summary) -> bool:
        """True if a split with this state has announced its end, until it has a newer row."""
        return False


# The newest time


@attrs.frozen
class NewestTime(WatermarkStrategy):
    """The base of strategies that depend only on the newest of some time of the rows."""

    def times(self, frame: pl.DataFrame) -> pl.Series:
        """The time of each row, in microseconds; null for rows that do not count."""
        return frame[EVENT_TIME]

    def observe(self, frame: pl.DataFrame) -> Summary:
        return _newest(self.times(frame).max())

    def observe_splits(self, frame: pl.DataFrame, split: str) -> dict[str, Summary]:
        newest = frame.select(split, self.times(frame).alias("newest")).group_by(split).max()
        return {name: _newest(time) for name, time in newest.rows()}

    def merge(self, one: Summary, other: Summary) -> Summary:
        if not one or not other:
            return one or other
        return max(one, other, key=lambda summary: int(summary["newest"]))

    def watermark(self, state: Summary, processing_time: int) -> int:
        return int(state.get("newest", MIN_TIME))


def _newest(time: Any) -> Summary:
    return {} if time is None else {"newest": time}


@attrs.frozen
class BoundedOutOfOrderness(NewestTime):
    """The watermark follows the newest event time at a distance: elements are at most `bound` out of order.

    W = newest - bound; an element at exactly W is not late. Flink's `forBoundedOutOfOrderness` has `newest - bound - 1
    ms`, which says that none at or before it is to come, and closes windows at the same moment. Beam has
    `CustomTimestampPolicyWithLimitedDelay` for Kafka. `WatermarkStrategy` describes the other arguments.

    Args:
        bound: A duration, such as "5s" or a timedelta.

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
        return max(MIN_TIME, int(state.get("newest", MIN_TIME)) - self.bound)


@attrs.frozen
class MonotonousTimestamps(BoundedOutOfOrderness):
    """Event times never go down: W = newest, with a bound of 0.

    Flink's `forMonotonousTimestamps`, Beam's `MonotonicallyIncreasing`. `WatermarkStrategy` describes the arguments.

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
    """The base of strategies that do not depend on elements."""

    per_split: None = attrs.field(default=None, kw_only=True, validator=validators.by_the_clock)
    idle_after: None = attrs.field(default=None, kw_only=True, validator=validators.by_the_clock)

    moves_with_time: ClassVar[bool] = True

    def observe(self, frame: pl.DataFrame) -> Summary:
        return {}

    def merge(self, one: Summary, other: Summary) -> Summary:
        return {}


@attrs.frozen
class ProcessingTimeLag(_ByTheClock):
    """Elements arrive at most `lag` after they happened: W = processing time - lag, whether or not any arrive.

    Flink's documentation has it as `TimeLagWatermarkGenerator`; with no lag it is Beam's `WallTime`.

    Args:
        lag: A duration, such as "1m" or a timedelta.

    Example:
        >>> strategy = bl.ProcessingTimeLag("1m")
        >>> strategy.watermark({}, processing_time=90_000_000)
        30000000
    """

    lag: int = attrs.field(converter=microseconds, validator=validators.not_negative)

    def watermark(self, state: Summary, processing_time: int) -> int:
        return max(MIN_TIME, processing_time - self.lag)


@attrs.frozen
class IngressTimestamps(_ByTheClock):
    """An element happens when it arrives: its event time is the processing time then, and W = processing time.

    A perfect watermark: a later arrival has no earlier time. `read` then accepts no `timestamp`. Flink once had it
    as "ingestion time"; Beam: Kafka's `ProcessingTimePolicy`.

    Example:
        >>> rows = bl.Pipeline("p").read("rows", bl.Rows([{"user": "ada"}]), watermark=bl.IngressTimestamps())
        >>> rows.window_into(bl.FixedWindows("1d")).aggregate(n=bl.count()).collect()["n"].to_list()
        [1]
    """

    assigns_event_time: ClassVar[bool] = True

    def watermark(self, state: Summary, processing_time: int) -> int:
        return processing_time


# Lateness


@attrs.frozen
class PercentileLateness(WatermarkStrategy):
    """The bound is learned, so that this share of elements is not late: W = newest - that quantile of lateness.

    The lateness of an element is its distance to the newest element of the batches before its own. There is no
    watermark until a second batch has arrived. Neither Flink nor Beam has it: there one measures lateness, and sets the
    bound.

    Args:
        share: A number above 0, at most 1.
        half_life: The event time, such as "6h", after which the weight of what was learned is half; by default an hour.

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
        return histogram(frame[EVENT_TIME])

    def merge(self, one: Histogram, other: Histogram) -> Histogram:
        return merge_histograms(one, other)

    def fold(self, state: Lateness, summary: Histogram) -> Lateness:
        return learn(state, summary, self.half_life)

    def watermark(self, state: Lateness, processing_time: int) -> int:
        learned = percentile_watermark(state, self.share)
        return MIN_TIME if learned is None else max(MIN_TIME, learned)
