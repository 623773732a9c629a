"""The base class of watermark strategies, and the strategies that depend on event times or on processing time.

Each task observes its rows, which gives a summary; summaries are merged, and folded into a state that is stored from
batch to batch; the watermark is computed from the state. Summaries and states are dicts that JSON can represent, and
their size is bounded, however many rows there are.
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


# The protocol of a strategy


@attrs.frozen(repr=False)
class WatermarkStrategy(Declared):
    """The base class of watermark strategies: rules that compute the watermark W of a source.

    A watermark W states that no element with an event time before W will arrive.

    To write a strategy, define a subclass with the three methods `observe`, `merge` and `watermark`. If it has fields,
    make it an attrs class. Counterparts are Flink's `WatermarkGenerator`, and Beam's `WatermarkEstimator` or, for
    Kafka, `TimestampPolicy`.

    Laws: `merge` is associative and commutative, with `{}` as identity. Observing a batch in parts and merging the
    summaries gives the same as observing all of it. `watermark` may return an earlier time than before; the watermark
    of the source stays then.

    Args:
        per_split: The column whose values are the splits of the source, such as "partition", or `source_file()` if
            each file is a split until it was read to its end. Each split has a watermark, and that of the source is
            the least of them.
        idle_after: The processing time, such as "30s", after which a split without rows is idle: it does not count in
            the minimum until it has rows again. If all splits are idle, so is the source, and its watermark stays. By
            default no split becomes idle.
        max_drift: The event time, such as "5m", by which the source may be ahead of the slowest source before it must
            pause. By default it never pauses.
        percentiles: The percentages of percentile watermarks, such as (33, 66). The 66th percentile watermark is the
            event time up to which 66 % of the elements are estimated to have arrived: the newest event time minus that
            quantile of lateness. It is never behind the watermark, which is the 100th.

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
    """True if the watermark may advance with processing time alone, without rows."""

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
        """The user's columns that `observe` reads. Override it if there are any."""
        return ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that the source must read for this strategy, including that of `per_split`."""
        split = (self.per_split,) if isinstance(self.per_split, str) else ()
        return tuple(dict.fromkeys((*split, *self.reads)))

    @property
    def needs_time(self) -> bool:
        """True if the watermark may change with processing time alone: it advances, or a split becomes idle."""
        return self.moves_with_time or self.idle_after is not None

    @property
    def perfect(self) -> bool:
        """True if no element can be behind the watermark. It proves that a window is complete."""
        return False

    @property
    def learns_lateness(self) -> bool:
        """True if percentile watermarks are computed from the observed lateness of elements."""
        return bool(self.percentiles)

    def observe(self, frame: pl.DataFrame) -> Summary:
        """Returns the summary of rows, which have an event time and `columns`; `{}` if there are no rows."""
        raise NotImplementedError(f"{type(self).__name__} must define observe(self, frame)")

    def observe_splits(self, frame: pl.DataFrame, split: str) -> dict[str, Summary]:
        """Returns a summary for each split that has rows, by the split's name, which is in the column `split`."""
        parts = frame.partition_by(split, as_dict=True)
        return {name: self.observe(part) for (name,), part in parts.items()}

    def merge(self, one: Summary, other: Summary) -> Summary:
        """Merges two summaries of the same batch into one."""
        raise NotImplementedError(f"{type(self).__name__} must define merge(self, one, other)")

    def fold(self, state: Summary, summary: Summary) -> Summary:
        """Returns the state after a batch with this summary; the first state is `{}`."""
        return self.merge(state, summary)

    def watermark(self, state: Summary, processing_time: int) -> int:
        """Returns the watermark (us). If it is earlier than before, the watermark of the source stays."""
        raise NotImplementedError(
            f"{type(self).__name__} must define watermark(self, state, processing_time)"
        )

    def percentile_watermarks(self, state: Summary) -> dict[int, int]:
        """Returns the percentile watermarks (us) that the strategy itself computes, instead of from lateness."""
        return {}

    def awaited(self, spoken: Collection[str]) -> str:
        """Describes the splits that must have rows before there is a watermark; empty text if there are none.

        `spoken` are the splits that have had rows.
        """
        return ""

    def is_over(self, state: Summary) -> bool:
        """True if a split with this state has ended. A newer row of the split may change this."""
        return False


# The newest time


@attrs.frozen(repr=False)
class NewestTime(WatermarkStrategy):
    """The base class of strategies that depend only on the greatest time of all rows, by default their event time."""

    def times(self, frame: pl.DataFrame) -> pl.Series:
        """Returns the time (us) of each row; null for rows to ignore."""
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


@attrs.frozen(repr=False)
class BoundedOutOfOrderness(NewestTime):
    """The strategy for elements that are at most `bound` out of order: W = newest event time - bound.

    An element at exactly W is not late. Flink's `forBoundedOutOfOrderness` returns `newest - bound - 1 ms`, and states
    that no element at or before it will arrive, so windows close at the same moment. Beam has
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


@attrs.frozen(repr=False)
class MonotonousTimestamps(BoundedOutOfOrderness):
    """The strategy for event times that never decrease: W = newest event time.

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


@attrs.frozen(repr=False)
class _ByTheClock(WatermarkStrategy):
    """The base class of strategies that depend on processing time only, not on elements."""

    per_split: None = attrs.field(default=None, kw_only=True, validator=validators.by_the_clock)
    idle_after: None = attrs.field(default=None, kw_only=True, validator=validators.by_the_clock)

    moves_with_time: ClassVar[bool] = True

    def observe(self, frame: pl.DataFrame) -> Summary:
        return {}

    def merge(self, one: Summary, other: Summary) -> Summary:
        return {}


@attrs.frozen(repr=False)
class ProcessingTimeLag(_ByTheClock):
    """The strategy for elements that arrive at most `lag` after their event time: W = processing time - lag.

    The watermark advances even if no elements arrive. Flink's documentation calls it `TimeLagWatermarkGenerator`;
    without a lag it is Beam's `WallTime`.

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


@attrs.frozen(repr=False)
class IngressTimestamps(_ByTheClock):
    """The strategy that sets the event time of elements to the processing time of arrival: W = processing time.

    This watermark is perfect, since later arrivals have later times. `read` then accepts no `timestamp`. Flink once
    called it "ingestion time"; in Beam it is Kafka's `ProcessingTimePolicy`.

    Example:
        >>> rows = bl.Pipeline("p").read("rows", bl.Rows([{"user": "ada"}]), watermark=bl.IngressTimestamps())
        >>> rows.window_into(bl.FixedWindows("1d")).aggregate(n=bl.count()).collect()["n"].to_list()
        [1]
    """

    assigns_event_time: ClassVar[bool] = True

    @property
    def perfect(self) -> bool:
        return True

    def watermark(self, state: Summary, processing_time: int) -> int:
        return processing_time


# Lateness


@attrs.frozen(repr=False)
class PercentileLateness(WatermarkStrategy):
    """The strategy that learns the bound by which a share of elements is in time: W = newest - quantile of lateness.

    The lateness of an element is how far it is behind the newest element of earlier batches. There is no watermark
    until a second batch has arrived. Flink and Beam have no such strategy: users measure lateness and set the bound.

    Args:
        share: The share of elements that are not late, above 0 and at most 1.
        half_life: The event time, such as "6h", after which the weight of a measured lateness is half; by default an
            hour.

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
