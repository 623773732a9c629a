"""The watermark strategy for logs that are each in order of event time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs
import polars as pl

from stages.keys import text_named
from stages.strategies import validators
from stages.strategies.base import NewestTime, Summary
from stages.strategies.punctuated import RowExpression, expression, row_expression, users, where
from windowing.columns import EVENT_TIME


@attrs.frozen
class TimeOrderedLogs(NewestTime):
    """The strategy for several logs, each in order of event time: W = min over the logs of their newest event time.

    With `expected`, the watermark is perfect: there is none until every log has had a row. Otherwise logs may be added,
    and the watermark is a heuristic: the first rows of a new log are late if they are before the watermark.
    Counterparts are Flink's `forMonotonousTimestamps` on the partitions of a Kafka source, and Beam's
    `LogAppendTimePolicy` for Kafka.

    Args:
        split: The column that identifies the log of a row, or `bl.source_file()`.
        expected: The names of the logs, as in ["eu", "us"], or their number; by default they are not known.
        ends: A column or an expression that is true for the last row of a log. The log then no longer counts in the
            minimum, until a newer row of it arrives.

    Example:
        >>> rows = bl.Rows([{"at": 90, "region": "eu"}, {"at": 40, "region": "us"}], rows_per_batch=1)
        >>> logs = bl.TimeOrderedLogs(split="region", expected=["eu", "us"])
        >>> plays = bl.Pipeline("p").read("plays", rows, timestamp="at", timestamp_unit="s", watermark=logs)
        >>> plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).collect()["n"].to_list()
        [1, 1]
    """

    per_split: str | validators.SourceFile = attrs.field(alias="split", validator=validators.split)
    expected: tuple[str, ...] | int | None = attrs.field(
        default=None, converter=validators.names, validator=validators.expected
    )
    ends: RowExpression | None = attrs.field(
        default=None, kw_only=True, converter=row_expression, validator=expression
    )

    @property
    def perfect(self) -> bool:
        # An idle log does not count, so its next rows may be late.
        return self.expected is not None and self.idle_after is None

    @property
    def reads(self) -> tuple[str, ...]:
        return users(self.ends)

    def observe(self, frame: pl.DataFrame) -> Summary:
        # The newest event time, and that of the newest row that ends the log.
        return _facts(frame[EVENT_TIME].max(), self._ends(frame).max())

    def observe_splits(self, frame: pl.DataFrame, split: str) -> dict[str, Summary]:
        times = frame.select(split, pl.col(EVENT_TIME).alias("newest"), self._ends(frame).alias("end"))
        return {name: _facts(newest, end) for name, newest, end in times.group_by(split).max().rows()}

    def _ends(self, frame: pl.DataFrame) -> pl.Series:
        """Returns the event times of the rows that end their log; null for other rows."""
        if self.ends is None:
            return pl.Series(dtype=pl.Int64).extend_constant(None, len(frame))
        return where(self.ends, frame, frame[EVENT_TIME], "TimeOrderedLogs: ends")

    def merge(self, one: Summary, other: Summary) -> Summary:
        return {
            what: max(part[what] for part in (one, other) if what in part) for what in sorted({*one, *other})
        }

    def awaited(self, spoken: Collection[str]) -> str:
        if isinstance(self.expected, tuple):
            missing = [repr(name) for name in self.expected if text_named(name) not in spoken]
            return f"split{'s' * (len(missing) > 1)} {', '.join(missing)}" if missing else ""
        if self.expected is None or len(spoken) >= self.expected:
            return ""
        return f"{self.expected - len(spoken)} more of {self.expected} splits"

    def is_over(self, state: Summary) -> bool:
        return "end" in state and bool(state["end"] >= state["newest"])


def _facts(newest: Any, end: Any) -> Summary:
    return {what: time for what, time in (("end", end), ("newest", newest)) if time is not None}
