"""The two tables of keyed state: cells, a row per key and window, and rows that wait for their turn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import polars as pl

from stages.operator import HOLD, Loaded, StateTable, Table
from stages.process.layout import HOLDER, UNTIL, Layout
from stages.progress.watermarks import Times, Watermarks


@attrs.frozen(slots=False, eq=False)
class Cells(StateTable):
    """A row per key and window. What comes for it are keys and windows, and all of them are looked at."""

    layout: Layout

    @cached_property
    def table(self) -> Table:
        """Placed by key."""
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
        """Those of its timers, of lifetimes, and of the ends of windows."""
        return tuple(self.layout.deadlines())

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """When a timer fires, a field is forgotten, or a window is collected."""
        return self.layout.deadlines()

    def flushed(self, loaded: Loaded, before: Watermarks, times: Times) -> pl.DataFrame:
        """All cells."""
        return loaded.rows
