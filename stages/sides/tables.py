"""The state tables of an operator with side inputs: rows that wait, and the content of each side by window."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.operator import HOLD, PENDING, Spread, StateTable, Table
from stages.sides.declarations import Side
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS, WINDOW_END

UNTIL: Final = "__until"
"""Column of a row that waits: the end (us) of the first window of a side that it waits for."""

SIDE: Final = "__side"
TOKEN: Final = "__token"
ROWS: Final = "__rows"
BYTES: Final = "__bytes"
NEWNESS: Final = "__newness"
"""Columns of the content of a window: its side, the token that identifies it, its size, and its pane index or reading
time.
"""

_SECOND: Final = 1_000_000
_LIVE: Final = 3600 * _SECOND


@attrs.frozen(slots=False, eq=False)
class Waits(StateTable):
    """Rows of the main input that wait for one of these sides; `schema` contains their columns and their window.

    `title` is their name for people.
    """

    schema: pl.Schema
    sides: tuple[Side, ...]
    title: str = ""

    @property
    def clocks(self) -> tuple[str, ...]:
        """The watermark of the stage, which no row waits for, and those of the sides."""
        return (WATERMARK, *(side.clock for side in self.sides))

    def until(self, side: Side) -> str:
        """The column with the end of the window of this side, null if the row does not wait for it."""
        return f"{UNTIL}.{side.name}"

    @cached_property
    def rows(self) -> pl.Schema:
        """The columns of a row."""
        ends = (UNTIL, *map(self.until, self.sides), PENDING, HOLD)
        return pl.Schema({**self.schema, **dict.fromkeys(ends, pl.Int64())})

    @cached_property
    def table(self) -> Table:
        """Spread by window: rows that see the same window of a side are stored together."""
        names = " and ".join(repr(side.name) for side in self.sides)
        return Table(
            "row",
            f"waits for side {names}",
            (),
            (EVENT_TIME, UNTIL),
            self.rows,
            self.rows,
            spread=Spread(WINDOW_END, _SECOND, _LIVE),
            waits_until=self.deadlines(Times()),
            name="sides.waiting",
            said=f"a row of {self.title!r} waits for side {names}",
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """The time at which the window of each side is over."""
        ends = {side.clock: pl.col(self.until(side)) for side in self.sides}
        return {WATERMARK: pl.lit(None, pl.Int64), **ends}


@attrs.frozen(slots=False, eq=False)
class Versions(StateTable):
    """A row for each window of a side that has content: the token that identifies the content, and its size."""

    clocks = (WATERMARK,)

    @cached_property
    def table(self) -> Table:
        """A few rows, all of which every step reads."""
        numbers = dict.fromkeys((*WINDOW_COLUMNS, ROWS, BYTES, NEWNESS, PENDING, HOLD), pl.Int64())
        rows = pl.Schema({SIDE: pl.String(), TOKEN: pl.String(), **numbers})
        return Table(
            "window of a side", "is looked at", (), WINDOW_COLUMNS, rows, rows, name="sides", copied=True
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """No row is due: every step reads all of them."""
        return {WATERMARK: pl.lit(None, pl.Int64)}


@attrs.frozen(slots=False, eq=False)
class Content(StateTable):
    """The rows of a side, by window. They are read only if what was built from them is no longer in the cache."""

    side: Side

    @property
    def clocks(self) -> tuple[str, ...]:
        """The watermark of the stage, which nothing waits for, and that of the side."""
        return (WATERMARK, self.side.clock)

    @cached_property
    def rows(self) -> pl.Schema:
        """The columns of a row."""
        own = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS, PENDING, HOLD), pl.Int64())
        return pl.Schema({**self.side.schema, **own})

    @cached_property
    def table(self) -> Table:
        """Spread by window. Content that arrives as rows waits until all of it has arrived."""
        return Table(
            "row of a side",
            "is looked at",
            (),
            (EVENT_TIME, WINDOW_END),
            self.rows,
            self.rows,
            spread=Spread(WINDOW_END, _SECOND, _LIVE),
            waits_until=self.deadlines(Times()) if self.side.feed == "whole" else None,
            name=self.side.clock,
            copied=True,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """The time at which all content has arrived."""
        over = pl.col(WINDOW_END) if self.side.feed == "whole" else pl.lit(None, pl.Int64)
        return {WATERMARK: pl.lit(None, pl.Int64), self.side.clock: over}
