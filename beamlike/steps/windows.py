"""The two steps of custom windows: the first calls the user's functions for all rows of a chunk, and the second emits a
row for each window.
"""

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
    """Returns the steps that a step is executed as: for custom windows two, otherwise the step itself. Only the first
    has dead letters.

    The first step adds lists of windows to rows, and the second expands the lists to rows. A stage can expand the lists
    itself, so that an element in several windows is sent only once.
    """
    if isinstance(step, WindowInto) and step.python:
        return (ListWindows(step.name, step.windowing), SpreadWindows(step.name, step.windowing))
    return (step,)


@attrs.frozen
class ListWindows(WindowInto):
    """A step that adds to each element lists of the bounds of all its windows."""

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Loads the rows into memory. An error of the function is raised with a note that names the step."""
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
    """A step that emits a row for each window of an element."""

    @property
    def python(self) -> bool:
        return False

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return spread(cast(CustomWindows, self.windowing.windows), frame)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return (wanted - {PREVIOUS_END}).union(WINDOW_COLUMNS)
