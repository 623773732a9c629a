"""The state table of cells: a row of fields and timers for each key and window."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import polars as pl

from stages.clock import StepClock
from stages.operator import HOLD
from stages.process.layout import HOLDER, UNTIL, CellLayout
from stages.state_tables import KeyedTable, Loaded, StateTable
from windowing.clocks import Times


@attrs.frozen(slots=False, eq=False)
class Cells(StateTable[KeyedTable]):
    """The state table of cells. As arrivals it receives only the keys and windows of rows; none of them waits."""

    layout: CellLayout

    @cached_property
    def table(self) -> KeyedTable:
        return KeyedTable(
            row="timer",
            waits="is pending",
            keys=self.layout.keys,
            bounds=(HOLD, UNTIL),
            schema=self.layout.cells,
            incoming=self.layout.id_schema,
            missing={
                name: pl.lit(None, dtype)
                for name, dtype in (*self.layout.content.items(), *self.layout.holding.items())
            },
            holder=HOLDER,
            timers=self.layout.pending,
            pickled=tuple(f"field {each.name!r}" for each in self.layout.fields if each.unpickled),
        )

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clocks at which a timer fires, a field expires, or a window is collected."""
        return tuple(self.layout.deadlines())

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns the deadlines of each cell, by clock: it is due when a timer fires, a field expires, or its window
        is collected.
        """
        return self.layout.deadlines()

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows
