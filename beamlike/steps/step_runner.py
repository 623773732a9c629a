"""Applies steps to the rows of a chunk, and collects results and dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs
import polars as pl

from beamlike.errors import StepError
from beamlike.rows.dead_letters import SHOWN, DeadLetterCounts, OnError, once
from beamlike.steps.base import Step


@attrs.define
class StepRunner:
    """The executor of steps on the rows of a chunk, which also collects their dead letters.

    Expressions are applied lazily, all at once, so if one fails for one row, all fail. A second attempt is
    `row_by_row`: it applies one step after the other, and finds the failing step and rows. A step is also applied by
    itself if a collection reads its dead letters (`asked`).
    """

    on_error: OnError = "dead_letters"
    row_by_row: bool = False
    set_aside_rows: list[pl.DataFrame] = attrs.field(factory=list, init=False)
    used: set[str] = attrs.field(factory=set, init=False)
    retractions: Counter[str] = attrs.field(factory=Counter, init=False)
    """The number of retractions for which a step failed."""
    _emitted: dict[str, bool] = attrs.field(factory=dict, init=False)
    """For each step that was attempted by itself, True if it emitted a row."""

    @property
    def dead_letters(self) -> DeadLetterCounts:
        """The counts of dead letters so far, and the names of the steps that could use some row."""
        return DeadLetterCounts.of(self.set_aside_rows, self.used, self.retractions)

    def mark_used(self, steps: Iterable[Step]) -> None:
        """Records that each of these steps could use some row."""
        self.used.update(step.name for step in steps)

    def mark_reached(self, steps: Iterable[Step]) -> None:
        """Records which of these steps have used a row, after rows reached the first of them and no error was
        raised.
        """
        # A step that was not attempted by itself has used a row if one reached it. Rows reach all steps up to
        # one that may have removed all of them.
        some = True
        for step in steps:
            if step.name in self._emitted:
                some = self._emitted[step.name]
            elif some:
                self.used.add(step.name)
                some = step.keeps_rows

    def apply(
        self, step: Step, frame: pl.LazyFrame, *, asked: bool = False
    ) -> tuple[pl.LazyFrame, pl.DataFrame | None]:
        """Applies a step. Returns its rows, and the rows that it cannot use as dead letters, or None."""
        if not (step.python or self.row_by_row or asked) or (step.python and self.on_error == "fail"):
            return step.apply(frame), None
        attempt = step.attempt(frame)
        if attempt.used:
            self.used.add(step.name)
        if attempt.given:
            self._emitted[step.name] = attempt.gives or self._emitted.get(step.name, False)
        failed = attempt.dead_letters
        lost = None if failed is None else once(failed)
        if failed is not None and lost is not None and len(lost) < len(failed):
            self.retractions[step.name] += len(failed) - len(lost)
        if lost is None or lost.is_empty():
            return attempt.rows, None
        self.set_aside(lost)
        return attempt.rows, lost

    def set_aside(self, rows: pl.DataFrame) -> None:
        """Adds dead letters. Raises `StepError` if dead letters fail the run."""
        if self.on_error == "fail" and len(rows):
            step, error, row = rows.row(0)
            raise StepError(step, f"{error}; the row is {row[:SHOWN]}")
        self.set_aside_rows.append(rows)
