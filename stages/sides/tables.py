"""What an operator with side inputs keeps: rows that wait, and of each side the content of its windows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.operator import HOLD, PENDING, Spread, StateTable, Table
from stages.progress.watermarks import Times
from stages.sides.declarations import Side
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS, WINDOW_END
from windowing.triggers.base import WATERMARK

UNTIL: Final = "__until"
"""Of a row that waits: the end (us) of the first window of a side that it waits for."""

SIDE: Final = "__side"
TOKEN: Final = "__token"
ROWS: Final = "__rows"
BYTES: Final = "__bytes"
NEWNESS: Final = "__newness"
"""Of what a window has: of which side it is, what tells it from any other, how much it is, and its pane or reading."""

_SECOND: Final = 1_000_000
_LIVE: Final = 3600 * _SECOND


@attrs.frozen(slots=False, eq=False)
class Waits(StateTable):
    """Rows of the main input that wait for one of these sides; `schema` has their columns and their window.

    `title` is what they are called.
    """

    schema: pl.Schema
    sides: tuple[Side, ...]
    title: str = ""

    @property
    def clocks(self) -> tuple[str, ...]:
        """The watermark of the stage, for which nothing waits, and those of the sides."""
        return (WATERMARK, *(side.clock for side in self.sides))

    def until(self, side: Side) -> str:
        """The column with the end of the window of this side, null where the row need not wait for it."""
        return f"{UNTIL}.{side.name}"

    @cached_property
    def rows(self) -> pl.Schema:
        """The columns of a row."""
        ends = (UNTIL, *map(self.until, self.sides), PENDING, HOLD)
        return pl.Schema({**self.schema, **dict.fromkeys(ends, pl.Int64())})

    @cached_property
    def table(self) -> Table:
        """Spread by window: those lie together that see the same window of a side."""
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
        """When the window of a side is over."""
        ends = {side.clock: pl.col(self.until(side)) for side in self.sides}
        return {WATERMARK: pl.lit(None, pl.Int64), **ends}


@attrs.frozen(slots=False, eq=False)
class Versions(StateTable):
    """Of each window of a side that has something: what tells that from anything else, and how much it is."""

    clocks = (WATERMARK,)

    @cached_property
    def table(self) -> Table:
        """A few rows, which every step looks at."""
        numbers = dict.fromkeys((*WINDOW_COLUMNS, ROWS, BYTES, NEWNESS, PENDING, HOLD), pl.Int64())
        rows = pl.Schema({SIDE: pl.String(), TOKEN: pl.String(), **numbers})
        return Table(
            "window of a side", "is looked at", (), WINDOW_COLUMNS, rows, rows, name="sides", copied=True
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """None: the step itself looks at all of them."""
        return {WATERMARK: pl.lit(None, pl.Int64)}


@attrs.frozen(slots=False, eq=False)
class Content(StateTable):
    """The rows of a side, in its windows. It is read only where what was made of it is not at hand any more."""

    side: Side

    @property
    def clocks(self) -> tuple[str, ...]:
        """The watermark of the stage, for which nothing waits, and that of the side."""
        return (WATERMARK, self.side.clock)

    @cached_property
    def rows(self) -> pl.Schema:
        """The columns of a row."""
        own = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS, PENDING, HOLD), pl.Int64())
        return pl.Schema({**self.side.schema, **own})

    @cached_property
    def table(self) -> Table:
        """Spread by window. What comes bit by bit is not looked at before all of it is there."""
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
        """When it is all there."""
        over = pl.col(WINDOW_END) if self.side.feed == "whole" else pl.lit(None, pl.Int64)
        return {WATERMARK: pl.lit(None, pl.Int64), self.side.clock: over}
