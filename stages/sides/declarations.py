"""The declaration of a side input: its columns, its windows, and how its content arrives."""

from __future__ import annotations

from typing import Final, Literal

import attrs
import polars as pl

from stages.operator import Input
from windowing.columns import EVENT_TIME, PANE_INDEX, WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME
from windowing.windows import GlobalWindows, WindowFn

Feed = Literal["panes", "whole", "readings"]
"""How the content of a window arrives: "panes", of which each replaces the one before; "whole", as rows until the
side is over; or "readings", of which each replaces the one before, with the time of the newest one as the watermark.
"""

IS_ROW: Final = "__is_row"
"""Column of rows that arrive in panes: true for a row, false for the notice that the pane has arrived."""

LIMIT: Final = 256 << 20
"""The bytes of a side in each shard, by default."""


ROLE_PREFIX: Final = "side."
"""The beginning of the role of a side, before its name."""


def side_name(role: str) -> str:
    """Returns the name of the side that has this role."""
    return role.removeprefix(ROLE_PREFIX)


@attrs.frozen(eq=False)
class Side:
    """A collection that rows look up: its name, columns and windows. `limit`: the bytes that it may take.

    `timed`: its rows have an event time.
    """

    name: str
    schema: pl.Schema
    windows: WindowFn
    feed: Feed
    timed: bool = True
    limit: int = LIMIT
    numbered: bool = False
    """True if its name depends on the order in which steps are declared."""

    @property
    def clock(self) -> str:
        """The name of its watermark, which is its role as an input as well."""
        return f"{ROLE_PREFIX}{self.name}"

    @property
    def input(self) -> Input:
        """The rows of the side, which are sent to every shard."""
        system: dict[str, pl.DataType] = {EVENT_TIME: pl.Int64()} if self.timed else {}
        if self.feed == "panes":
            own = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS, PANE_INDEX), pl.Int64())
            system = {**own, IS_ROW: pl.Boolean()}
        schema = pl.Schema({**self.schema, **system})
        return Input((), schema, "everywhere", side=True, read_fully=self.feed == "whole")

    def windows_of(self, ends: pl.Series) -> dict[int, tuple[int, int]]:
        """Maps ends of windows of rows (us) to the start and end of the side's window that contains their last instant.

        If there are several, the earliest counts. An end without one is left out.
        """
        if isinstance(self.windows, GlobalWindows):
            return dict.fromkeys(ends.to_list(), (MIN_TIME, GLOBAL_WINDOW_END))
        instants = pl.DataFrame({"end": ends, EVENT_TIME: ends.clip(upper_bound=GLOBAL_WINDOW_END) - 1})
        placed = self.windows.assign(instants).sort(WINDOW_END, maintain_order=True)
        first = placed.unique("end", keep="first", maintain_order=True)
        return {
            end: (start, stop)
            for end, start, stop in first.select("end", WINDOW_START, WINDOW_END).iter_rows()
        }
