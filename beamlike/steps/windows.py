"""Windows of a user's own before a grouping: their function is called for each row before any row is emitted."""

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
    """The steps of which a step consists; the first one has its dead letters.

    Windows of a user's own are listed and then spread. A stage can spread them itself, so that an element in several
    windows is shipped once.
    """
    if isinstance(step, WindowInto) and step.python:
        return (ListWindows(step.name, step.windowing), SpreadWindows(step.name, step.windowing))
    return (step,)


@attrs.frozen
class ListWindows(WindowInto):
    """Adds to each element lists of all its windows."""

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Loads the rows into memory, once. An error of the function is raised with a note of the step."""
        return self._listed(frame.collect(), Failures(self, strict=True)).lazy()

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        given, failures = frame.collect(), Failures(self, strict=False)
        listed = self._listed(given, failures)
        return Attempt(listed.lazy(), failures.dead_letters(given), len(given))

    def _listed(self, given: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        listed = cast(CustomWindows, self.windowing.windows).windows_of(given, failures.add)
        return without(listed, failures.errors) if failures.errors else listed


@attrs.frozen
class SpreadWindows(WindowInto):
    """Makes a row of each window of an element."""

    @property
    def python(self) -> bool:
        return False

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return spread(cast(CustomWindows, self.windowing.windows), frame)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return (wanted - {PREVIOUS_END}).union(WINDOW_COLUMNS)
