"""Event times that are set anew, by a column, with a declared skew."""

from __future__ import annotations

from typing import ClassVar

import attrs
import polars as pl

from beamlike.errors import PlanError, StepError, WrongType
from beamlike.rows.dead_letters import Attempt, dead_letters
from beamlike.rows.event_time import read_event_time, why_unreadable
from beamlike.steps.base import Step
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
        attempt = self.attempt(frame)
        if attempt.dead_letters is not None:
            raise StepError(self.name, attempt.dead_letters["error"][0])
        return attempt.rows

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        """The same, but such rows are dead letters."""
        before = frame.collect()
        after = read_event_time(before.lazy(), self.column, self.unit).collect()
        wrong = after[EVENT_TIME].is_null() | (before[EVENT_TIME] - after[EVENT_TIME] > self.allowed_skew)
        if not wrong.any():
            return Attempt(after.lazy(), None, len(before))
        errors = self._errors(before[EVENT_TIME].filter(wrong), after.filter(wrong))
        letters = dead_letters(self.name, before.filter(wrong), errors)
        return Attempt(after.filter(~wrong).lazy(), letters, len(before))

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """The column, and the time before, by which the skew is known."""
        return wanted | {EVENT_TIME, self.column}

    def detail(self) -> str:
        """The column, and the skew if there may be one."""
        skew = f", allowed_skew={format_duration(self.allowed_skew)}" if self.allowed_skew else ""
        return f"{self.column}{skew}"

    def _errors(self, before: pl.Series, rows: pl.DataFrame) -> list[str]:
        """Why these rows cannot have their new times."""
        unread = rows.select(why_unreadable(self.column, rows.schema[self.column], self.unit)).to_series()
        moves = zip(rows[self.column], before, rows[EVENT_TIME], unread, strict=True)
        return [
            f"{why}; every element needs a time: filter out before what has none"
            if after is None
            else self._moved(value, old, after)
            for value, old, after, why in moves
        ]

    def _moved(self, value: object, before: Microseconds, after: Microseconds) -> str:
        return (
            f"column {self.column!r} is {value!s}, which moves an element back from {format_time(before)} to "
            f"{format_time(after)}, that is by {format_duration(before - after)}; the watermark downstream counts "
            f"on at most allowed_skew={format_duration(self.allowed_skew)}"
        )


def not_negative(what: str, given: Duration, step: str) -> Microseconds:
    """A duration that is not negative. `what` names it in errors."""
    try:
        length = microseconds(given)
    except (TypeError, ValueError) as error:
        kind = WrongType if isinstance(error, TypeError) else PlanError
        raise kind(f"{what}: {error}", step=step) from error
    if length < 0:
        raise PlanError(f"{what} must not be negative, not {given!r}", step=step)
    return length
