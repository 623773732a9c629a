"""A side of an operator: which rows it has, in which windows, and how they come."""

from __future__ import annotations

from typing import Final, Literal

import attrs
import polars as pl

from stages.operator import SIDE, Input
from windowing.columns import EVENT_TIME, PANE_INDEX, WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME
from windowing.windows import GlobalWindows, WindowFn

Feed = Literal["panes", "whole", "readings"]
"""How the content of a window comes: in panes, of which each replaces the one before; or all of it until the side is
over; or read again and again, where the watermark is the time of the newest reading."""

IS_ROW: Final = "__is_row"
"""Of rows that come in panes: whether it is one; else it says that its pane is there."""

LIMIT: Final = 256 << 20
"""So many bytes of a side are kept in each shard, if nobody gives another number."""


@attrs.frozen(eq=False)
class Side:
    """A collection that rows look at: its name, columns and windows. `limit` is how many bytes it may take.

    `timed`: its rows have an event time.
    """

    name: str
    schema: pl.Schema
    windows: WindowFn
    feed: Feed
    timed: bool = True
    limit: int = LIMIT
    numbered: bool = False
    """Whether its name depends on the order in which steps are declared."""

    @property
    def clock(self) -> str:
        """The name of its watermark, and its role."""
        return f"{SIDE}{self.name}"

    @property
    def input(self) -> Input:
        """Its rows, which come to every shard."""
        system: dict[str, pl.DataType] = {EVENT_TIME: pl.Int64()} if self.timed else {}
        if self.feed == "panes":
            own = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS, PANE_INDEX), pl.Int64())
            system = {**own, IS_ROW: pl.Boolean()}
        schema = pl.Schema({**self.schema, **system})
        return Input((), schema, "everywhere", read_fully=self.feed == "whole")

    def windows_of(self, ends: pl.Series) -> dict[int, tuple[int, int]]:
        """For windows of rows that end there (us): its window that contains their last instant, start and end.

        Of several that do, the earliest. One for which there is none is left out.
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
