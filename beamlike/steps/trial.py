"""Steps tried on the rows of a chunk: what they give, and what they set aside as dead letters."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import polars as pl

from beamlike.errors import StepError
from beamlike.rows.dead_letters import SHOWN, DeadLetterCounts, OnError
from beamlike.steps.base import Step


@attrs.define
class Trial:
    """How steps are applied to the rows of a chunk, and the dead letters that come of it.

    Expressions are applied lazily, all at once, and a row for which one fails makes all of that fail. What is
    applied `careful`ly goes step by step instead, so that step and row are found: for the second attempt, and where
    somebody has `asked` for the dead letters of the step.
    """

    on_error: OnError = "dead_letters"
    careful: bool = False
    made: list[pl.DataFrame] = attrs.field(factory=list, init=False)
    used: set[str] = attrs.field(factory=set, init=False)
    _giving: dict[str, bool] = attrs.field(factory=dict, init=False)  # of steps whose rows were looked at

    @property
    def letters(self) -> DeadLetterCounts:
        """How much was set aside so far, and which steps could use some row."""
        return DeadLetterCounts.of(self.made, self.used)

    def passed(self, steps: Iterable[Step]) -> None:
        """Rows have come through these steps."""
        self.used.update(step.name for step in steps)

    def came(self, steps: Iterable[Step]) -> None:
        """Rows have come to the first of these steps, which have been applied without an error.

        So as far as no step has left all of them out, each has used some; one that was looked at has told by itself.
        """
        some = True
        for step in steps:
            if step.name in self._giving:
                some = self._giving[step.name]
            elif some:
                self.used.add(step.name)
                some = step.keeps_rows

    def apply(
        self, step: Step, frame: pl.LazyFrame, *, asked: bool = False
    ) -> tuple[pl.LazyFrame, pl.DataFrame | None]:
        """The rows after the step, and as dead letters those that it cannot use, if there are any."""
        if not (step.python or self.careful or asked) or (step.python and self.on_error == "fail"):
            return step.apply(frame), None
        attempt = step.attempt(frame)
        if attempt.used:
            self.used.add(step.name)
        if attempt.given:
            self._giving[step.name] = attempt.gives or self._giving.get(step.name, False)
        letters = attempt.dead_letters
        if letters is None or letters.is_empty():
            return attempt.rows, None
        self.take(letters)
        return attempt.rows, letters

    def take(self, letters: pl.DataFrame) -> None:
        """These are set aside. Raises `StepError` where dead letters fail the run."""
        if self.on_error == "fail" and len(letters):
            step, error, row = letters.row(0)
            raise StepError(step, f"{error}; the row is {row[:SHOWN]}")
        self.made.append(letters)
