"""Windows of a user's own on the way to a grouping: their function looks at each row before any is sent on."""

from __future__ import annotations

from typing import cast

import attrs
import polars as pl

from beamlike.rows.dead_letters import Attempt
from beamlike.steps.base import Step, WindowInto
from beamlike.steps.python import Failures, without
from windowing.columns import PREVIOUS_END, WINDOW_COLUMNS
from windowing.custom import CustomWindows, spread


def parts(step: Step) -> tuple[Step, ...]:
    """The steps that a step is; dead letters are those of the first.

    The windows of a user's own are listed, and then spread. That a stage can do itself, so that an element in several
    windows is shipped once.
    """
    if isinstance(step, WindowInto) and step.python:
        return (ListWindows(step.name, step.windowing), SpreadWindows(step.name, step.windowing))
    return (step,)


@attrs.frozen
class ListWindows(WindowInto):
    """Gives each element all its windows, in lists."""

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The rows come into memory here, once. What the function raises goes on, with a note of the step."""
        return self._listed(frame.collect(), Failures(self, strict=True)).lazy()

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        """The same, but a row that the function raises on, or for which it gives something else, is a dead letter."""
        given, failures = frame.collect(), Failures(self, strict=False)
        listed = self._listed(given, failures)
        return Attempt(listed.lazy(), failures.letters(given), len(given))

    def _listed(self, given: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        listed = cast(CustomWindows, self.windowing.windows).windows_of(given, failures.add)
        return without(listed, failures.errors) if failures.errors else listed


@attrs.frozen
class SpreadWindows(WindowInto):
    """Makes a row of each window of an element."""

    @property
    def python(self) -> bool:
        """Not any more."""
        return False

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The rows with start and end of one window each."""
        return spread(cast(CustomWindows, self.windowing.windows), frame)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """Those, and the lists."""
        return (wanted - {PREVIOUS_END}).union(WINDOW_COLUMNS)
