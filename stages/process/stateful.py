"""The base class of operators with a user's state fields and timers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Text
from stages.process.keyed import Keyed, Result
from stages.process.layout import CellLayout
from stages.process.tables import Cells
from stages.state_tables import State
from windowing.clocks import PROCESSING_TIME, WATERMARK


@attrs.frozen
class Unavailable:
    """The place of a side input whose value could not be made: a step that reads it fails with this error."""

    error: Exception


class SidesOfCells(Protocol):
    """The content of side inputs, as a user's function reads it."""

    def by_content(self, cells: pl.DataFrame) -> Iterable[tuple[pl.DataFrame, Mapping[str, Any]]]:
        """Divides cells into parts that read the same content. Yields each with the values of the sides by keyword."""


class WithoutSides:
    """The sides of an operator that has none."""

    def by_content(self, cells: pl.DataFrame) -> Iterable[tuple[pl.DataFrame, Mapping[str, Any]]]:
        """Yields all cells as one part."""
        return [(cells, {})]


@attrs.frozen(slots=False, eq=False)
class Stateful(Keyed):
    """The base class of operators that store the fields and timers of `layout` for each key and window."""

    layout: CellLayout

    def process_with(self, state: State, rows: pl.DataFrame, clock: StepClock, sides: SidesOfCells) -> Result:
        """Processes rows and due cells as `process_rows` does, with a user's function that reads side inputs."""
        raise NotImplementedError

    @property
    def python(self) -> bool:
        return True

    @property
    def clocks(self) -> tuple[str, ...]:
        """The watermark, and processing time if there is a processing-time timer."""
        return (WATERMARK, PROCESSING_TIME) if "processing" in self.timers.values() else (WATERMARK,)

    @cached_property
    def cells(self) -> Cells:
        return Cells(self.layout)

    @property
    def kept(self) -> Mapping[str, object]:
        return self.layout.kinds

    @property
    def timers(self) -> Mapping[str, str]:
        return {name: timer.domain for name, timer in self.layout.timers.items()}

    @property
    def content(self) -> pl.Schema:
        return pl.Schema({**self.layout.content, **self.layout.holding})

    def own_facts(self, text: Text) -> dict[str, str]:
        return self.layout.facts(text)
