"""The declaration of a side input: its columns, its windows, and how its content arrives."""

from __future__ import annotations

from typing import Any, Final, Literal

import attrs
import polars as pl

from stages.operator import Input
from windowing.columns import EVENT_TIME, PANE_INDEX, WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME
from windowing.windows import GlobalWindows, WindowFn

Feed = Literal["panes", "whole", "readings", "growing"]
"""The way in which the content of a side arrives.

- "panes": each pane of a window replaces the pane before.
- "whole": rows are added until the side has ended.
- "growing": rows are added, and can be read when the first one has arrived.
  If the rows that are added have windows, both hold for each window of the side.
- "readings": each reading replaces the one before. The time of the newest reading is the watermark of the side.
"""

IS_ROW: Final = "__is_row"
"""A column of a side that arrives in panes: true for a row, false for the notice that a pane, maybe empty, is there."""

LIMIT: Final = 256 << 20
"""The default limit of a side's size in the memory of each shard (bytes)."""


ROLE_PREFIX: Final = "side."
"""The prefix of the role of a side; the side's name follows."""


def side_name(role: str) -> str:
    """Returns the name of the side input with this role."""
    return role.removeprefix(ROLE_PREFIX)


@attrs.frozen(eq=False)
class Side:
    """The declaration of a side input.

    Attributes:
        name: The name of the side.
        schema: The user's columns of its rows.
        windows: Its windows.
        feed: The way in which its content arrives.
        timed: True if its rows have an event time.
        limit: The maximum size in the memory of each shard (bytes).
    """

    name: str
    schema: pl.Schema
    windows: WindowFn
    feed: Feed
    timed: bool = True
    limit: int = LIMIT
    numbered: bool = False
    """True if the name depends on the order in which steps are declared."""
    several: bool = False
    """True if the content of a window may be replaced after rows have read it."""
    newest_of: tuple[str, ...] = ()
    """The key columns of a growing side of which only the newest row of each key is ever read."""
    windowed: bool = False
    """True if rows that are added to the side arrive with their windows. Otherwise the side is in the global window."""
    firing: tuple[str, str] | None = None
    """The columns of the firing that an added row is from, and of its number. A later firing removes the rows of the
    same one with a lower number. Rows without a firing stay.
    """

    @property
    def adds(self) -> bool:
        """True if rows that arrive are added to those that are there, so that they may wait in a log."""
        return self.feed in ("whole", "growing")

    @property
    def clock(self) -> str:
        """The role of the side as an input, which is also the name of the clock with its watermark."""
        return f"{ROLE_PREFIX}{self.name}"

    @property
    def input(self) -> Input:
        """The side as an input of an operator, whose rows are sent to every shard."""
        system: dict[str, pl.DataType] = {EVENT_TIME: pl.Int64()} if self.timed else {}
        if self.windowed:
            system |= dict.fromkeys(WINDOW_COLUMNS, pl.Int64())
        if self.feed == "panes":
            own = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS, PANE_INDEX), pl.Int64())
            system = {**own, IS_ROW: pl.Boolean()}
        schema = pl.Schema({**self.schema, **system})
        whole = self.feed == "whole" and not self.windowed
        return Input((), schema, "everywhere", side=True, read_fully=whole)

    def readers_of(self, start: int, end: int) -> tuple[int, int]:
        """Returns the least and the greatest end (us) of a window of the main input that reads a window of the side."""
        return start + 1, end

    def windows_of(self, ends: pl.Series) -> dict[Any, tuple[int, int]]:
        """Maps windows of the main input, given by their ends (us), to windows of the side, as (start, end) in us.

        A window is mapped to the side's window that contains its last instant, to the earliest of several. If there is
        none, its end is missing in the result.
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
