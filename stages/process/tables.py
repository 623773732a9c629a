"""The state table of cells: a row per key and window."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import polars as pl

from stages.clock import StepClock
from stages.operator import HOLD, Loaded, StateTable, Table
from stages.process.layout import HOLDER, UNTIL, Layout
from windowing.clocks import Times


@attrs.frozen(slots=False, eq=False)
class Cells(StateTable):
    """A row per key and window. Arrivals are keys and windows, and none of them waits."""

    layout: Layout

    @cached_property
    def table(self) -> Table:
        return Table(
            "timer",
            "is pending",
            self.layout.keys,
            (HOLD, UNTIL),
            self.layout.cells,
            self.layout.id_schema,
            missing={
                name: pl.lit(None, dtype)
                for name, dtype in (*self.layout.content.items(), *self.layout.holding.items())
            },
            holder=HOLDER,
            timers=self.layout.pending,
            visited_by_key=True,
        )

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clocks of its timers, of lifetimes, and of the ends of windows."""
        return tuple(self.layout.deadlines())

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """The time at which a timer fires, a field expires, or a window is collected."""
        return self.layout.deadlines()

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows
