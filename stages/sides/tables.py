"""The state tables of an operator with side inputs: rows that wait, and the content of each side by window.

table               a row for each                            on
sides.waiting       row of the main input that waits          its shard
sides               side and window: digest, size, version    all shards
side.<name>         row of this side, by window               all shards
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.operator import HOLD, PENDING
from stages.sides.declarations import Side
from stages.state_tables import SharedTable, Spread, StateTable, TimeTable
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS, WINDOW_END

UNTIL: Final = "__until"
"""A column of waiting rows: the least end (us) of the windows of sides that the row waits for."""

# The columns of the table of contents, one row for each side and window; see `stages.sides.contents.Version`.
SIDE: Final = "__side"
TOKEN: Final = "__token"
ROWS: Final = "__rows"
BYTES: Final = "__bytes"
NEWNESS: Final = "__newness"

_SECOND: Final = 1_000_000
_LIVE: Final = 3600 * _SECOND


@attrs.frozen(slots=False, eq=False)
class WaitingRows(StateTable[TimeTable]):
    """The state table of rows of the main input that wait for one of these sides.

    `schema` has their columns and their window. `title` is their name for people. `keys` are the columns by which rows
    are placed on shards, if they are not on any shard.
    """

    schema: pl.Schema
    sides: tuple[Side, ...]
    title: str = ""
    keys: tuple[str, ...] = ()

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clocks of the sides, for which rows wait. The watermark must be included, but no row waits for it."""
        return (WATERMARK, *(side.clock for side in self.sides))

    def until(self, side: Side) -> str:
        """Returns the name of the column with the end of this side's window; null if the row does not wait for this
        side.
        """
        return f"{UNTIL}.{side.name}"

    @cached_property
    def rows(self) -> pl.Schema:
        """The schema of this state table: the row, its window, and the ends of the windows that it waits for."""
        ends = (UNTIL, *map(self.until, self.sides), PENDING, HOLD)
        return pl.Schema({**self.schema, **dict.fromkeys(ends, pl.Int64())})

    @cached_property
    def table(self) -> TimeTable:
        # Spread by window end, so that rows that read the same window of a side are stored together.
        names = " and ".join(repr(side.name) for side in self.sides)
        return TimeTable(
            row="row",
            waits=f"waits for side {names}",
            keys=self.keys,
            bounds=(EVENT_TIME, UNTIL),
            schema=self.rows,
            incoming=self.rows,
            spread=Spread(WINDOW_END, _SECOND, _LIVE),
            waits_until=self.deadlines(Times()),
            name="sides.waiting",
            said=f"a row of {self.title!r} waits for side {names}",
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns the deadlines of each row, by clock: it is due when a window that it waits for is over."""
        ends = {side.clock: pl.col(self.until(side)) for side in self.sides}
        return {WATERMARK: pl.lit(None, pl.Int64), **ends}


@attrs.frozen(slots=False, eq=False)
class ContentVersions(StateTable[SharedTable]):
    """The state table with a description of each window's content: a digest (token) and its size, for all sides."""

    clocks = (WATERMARK,)

    @cached_property
    def table(self) -> SharedTable:
        # The table has only a few rows, which every step reads.
        numbers = dict.fromkeys((*WINDOW_COLUMNS, ROWS, BYTES, NEWNESS, PENDING, HOLD), pl.Int64())
        rows = pl.Schema({SIDE: pl.String(), TOKEN: pl.String(), **numbers})
        return SharedTable(
            row="window of a side",
            waits="is looked at",
            keys=(),
            bounds=WINDOW_COLUMNS,
            schema=rows,
            incoming=rows,
            name="sides",
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: pl.lit(None, pl.Int64)}


@attrs.frozen(slots=False, eq=False)
class SideRows(StateTable[SharedTable]):
    """The state table of the rows of a side. They are read only if the object built from them is not in the cache."""

    side: Side

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clock of the side. The watermark must be included, but no row waits for it."""
        return (WATERMARK, self.side.clock)

    @cached_property
    def rows(self) -> pl.Schema:
        """The schema of this state table: the side's row, its event time and window."""
        own = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS, PENDING, HOLD), pl.Int64())
        return pl.Schema({**self.side.schema, **own})

    @cached_property
    def table(self) -> SharedTable:
        # Spread by window. If content arrives as rows, not as panes, it waits in logs until all of it has arrived.
        return SharedTable(
            row="row of a side",
            waits="is looked at",
            keys=(),
            bounds=(EVENT_TIME, WINDOW_END),
            schema=self.rows,
            incoming=self.rows,
            spread=Spread(WINDOW_END, _SECOND, _LIVE),
            waits_until=self.deadlines(Times()) if self.side.adds else None,
            name=self.side.clock,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns the deadline of each row: if rows are added to the global window, when all of them have arrived.

        A row in another window is never due, so that late rows can be added to its window without reading it.
        """
        in_log = self.side.adds and not self.side.windowed
        over = pl.col(WINDOW_END) if in_log else pl.lit(None, pl.Int64)
        return {WATERMARK: pl.lit(None, pl.Int64), self.side.clock: over}
