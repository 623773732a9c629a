"""Event times that are set anew, by a column, with a declared skew."""

from __future__ import annotations

from typing import ClassVar

import attrs
import polars as pl

from beamlike.errors import PlanError, StepError, WrongType
from beamlike.event_time import read_event_time, why_unreadable
from beamlike.steps import Step
from windowing.columns import EVENT_TIME
from windowing.time import Duration, Microseconds, format_duration, format_time, microseconds


@attrs.frozen
class WithTimestamps(Step):
    """Sets the event time of each row to that in a column, at most `allowed_skew` microseconds back."""

    kind: ClassVar[str] = "with_timestamps"
    column: str
    unit: str | None
    allowed_skew: int

    @property
    def python(self) -> bool:
        """True: each row is looked at before any is sent on."""
        return True

    @property
    def skew(self) -> int:
        """As declared."""
        return self.allowed_skew

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The rows with their new times. Raises `StepError` for one that has none, or that moves back too far."""
        before = frame.collect()
        after = read_event_time(before.lazy(), self.column, self.unit).collect()
        self._require_times(after)
        self._require_skew(before[EVENT_TIME], after)
        return after.lazy()

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """The column, and the time before, by which the skew is known."""
        return wanted | {EVENT_TIME, self.column}

    def detail(self) -> str:
        """The column, and the skew if there may be one."""
        skew = f", allowed_skew={format_duration(self.allowed_skew)}" if self.allowed_skew else ""
        return f"{self.column}{skew}"

    def _require_times(self, rows: pl.DataFrame) -> None:
        lost = rows.filter(pl.col(EVENT_TIME).is_null()).head(1)
        if len(lost):
            why = lost.select(why_unreadable(self.column, lost.schema[self.column], self.unit)).item()
            raise StepError(self.name, f"{why}; every element needs a time: filter out before what has none")

    def _require_skew(self, before: pl.Series, rows: pl.DataFrame) -> None:
        back = before - rows[EVENT_TIME]
        furthest = back.arg_max()
        if furthest is None or back[furthest] <= self.allowed_skew:
            return
        raise StepError(
            self.name,
            f"column {self.column!r} is {rows[self.column][furthest]!s}, which moves an element back from "
            f"{format_time(before[furthest])} to {format_time(rows[EVENT_TIME][furthest])}, that is by "
            f"{format_duration(back[furthest])}; the watermark downstream counts on at most "
            f"allowed_skew={format_duration(self.allowed_skew)}",
        )


def skew(given: Duration, step: str) -> Microseconds:
    """A duration that is not negative."""
    try:
        length = microseconds(given)
    except (TypeError, ValueError) as error:
        kind = WrongType if isinstance(error, TypeError) else PlanError
        raise kind(f"allowed_skew: {error}", step=step) from error
    if length < 0:
        raise PlanError(f"allowed_skew must not be negative, not {given!r}", step=step)
    return length
