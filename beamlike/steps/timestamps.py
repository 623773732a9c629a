"""The step that sets event times from a column, with a limit for moving them back."""

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
    """A step that sets the event time of each row from a column. A time may move back by at most `allowed_skew`
    microseconds.
    """

    kind: ClassVar[str] = "with_timestamps"
    column: str
    unit: str | None
    allowed_skew: int

    @property
    def python(self) -> bool:
        return True  # each row is checked before any is emitted

    @property
    def skew(self) -> int:
        return self.allowed_skew

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Sets the event times. Raises `StepError` for a row without a valid time, or whose time moves back too far."""
        attempt = self.attempt(frame)
        if attempt.dead_letters is not None:
            raise StepError(self.name, attempt.dead_letters["error"][0])
        return attempt.rows

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        before = frame.collect()
        after = read_event_time(before.lazy(), self.column, self.unit).collect()
        wrong = after[EVENT_TIME].is_null() | (before[EVENT_TIME] - after[EVENT_TIME] > self.allowed_skew)
        if not wrong.any():
            return Attempt(after.lazy(), None, len(before))
        errors = self._errors(before[EVENT_TIME].filter(wrong), after.filter(wrong))
        letters = dead_letters(self.name, before.filter(wrong), errors)
        return Attempt(after.filter(~wrong).lazy(), letters, len(before))

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted | {EVENT_TIME, self.column}

    def detail(self) -> str:
        skew = f", allowed_skew={format_duration(self.allowed_skew)}" if self.allowed_skew else ""
        return f"{self.column}{skew}"

    def _errors(self, before: pl.Series, rows: pl.DataFrame) -> list[str]:
        """Returns the reasons why these rows cannot have their new times."""
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
    """Returns the duration in microseconds. Raises `PlanError` if it is negative. `what` names it in the message."""
    try:
        length = microseconds(given)
    except (TypeError, ValueError) as error:
        kind = WrongType if isinstance(error, TypeError) else PlanError
        raise kind(f"{what}: {error}", step=step) from error
    if length < 0:
        raise PlanError(f"{what} must not be negative, not {given!r}", step=step)
    return length
