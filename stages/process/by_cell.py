"""The base class of operators that process the rows and timers of one cell after another, each in order of time."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import polars as pl

from stages.clock import StepClock
from stages.operator import Refused
from stages.process.keyed import CELL, Keyed, Result, touched
from stages.state_tables import State

FiringId = tuple[str, str | None, int]
"""The name of a timer, its tag if it belongs to a family, and its time (us)."""


@attrs.frozen(eq=False)
class CellsOutput:
    """The result of processing rows and timers of some cells.

    Attributes:
        panes: The emitted rows, with the position of their cell in the column CELL.
        cells: The cells afterwards, as they are stored.
        fired: The number of timers that fired.
        failed: The position of each row that became a dead letter, and the error.
        failed_firings: The cell and firing that became a dead letter, and the error.
        early: The positions of emitted rows whose event time is before the time of their call.
    """

    panes: pl.DataFrame
    cells: pl.DataFrame
    fired: int = 0
    failed: Sequence[tuple[int, Exception]] = ()
    failed_firings: Sequence[tuple[int, FiringId, Exception]] = ()
    early: Sequence[int] = ()


@attrs.frozen(slots=False, eq=False)
class ByCell(Keyed):
    """The base class of operators whose output for a cell depends only on its state, its rows and the clock."""

    @property
    def emitted(self) -> pl.Schema:
        """The schema of an emitted row, without its time and window."""
        raise NotImplementedError

    def due(self, clock: StepClock) -> pl.Expr:
        """Returns an expression that is true for cells that are due when the clocks are at the end of a step."""
        raise NotImplementedError

    def process_cells(self, cells: pl.DataFrame, rows: pl.DataFrame, clock: StepClock) -> CellsOutput:
        """Processes rows, which are sorted by cell and time, and the due timers of all `cells`."""
        raise NotImplementedError

    def refused(self, output: CellsOutput, rows: pl.DataFrame, cells: pl.DataFrame) -> tuple[Refused, ...]:
        """Returns the rows and firings that became dead letters; by default, there are none."""
        return ()

    def process_rows(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Result:
        loaded = state.load(self.cells, rows.select(self.id).unique(maintain_order=True))
        cells, idle = touched(loaded.rows, loaded.incoming, self.due(clock), self.id)
        ordered = self.by_cell(cells, rows)
        output = self.process_cells(cells, ordered, clock)
        state.write_back(self.cells, pl.concat([idle, output.cells]))
        refused = self.refused(output, ordered, cells)
        return Result(output.panes.drop(CELL), refused, output.fired, len(output.failed))
