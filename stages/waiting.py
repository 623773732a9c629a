"""Pending rows: rows that wait until the watermark has passed their time, to be processed in order of time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.operator import HOLD, PENDING, Spread, StateTable, Table
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS

WAITING: Final = "waiting"
"""The name of their table."""

NUMBER: Final = "__number"
"""Column of rows: their number in order of arrival."""

_SECOND: Final = 1_000_000
_LIVE: Final = 3600 * _SECOND
"""Pending rows are spread by time as if they lived for an hour."""


@attrs.frozen(slots=False, eq=False)
class Waiting(StateTable):
    """The table of pending rows: when the watermark has passed their time, all rows before them have arrived.

    `columns` are those of the rows, with `keys` among them.
    """

    keys: tuple[str, ...]
    columns: pl.Schema
    clocks = (WATERMARK,)

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns of a row, with its window, number and hold."""
        own = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS, NUMBER, PENDING, HOLD), pl.Int64())
        return pl.Schema({**self.columns, **own})

    @cached_property
    def table(self) -> Table:
        return Table(
            "row",
            "waits for its turn in the order of time",
            self.keys,
            (EVENT_TIME, EVENT_TIME),
            self.schema,
            self.schema,
            spread=Spread(EVENT_TIME, _SECOND, _LIVE),
            waits_until=self.deadlines(Times()),
            name=WAITING,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """The time after t for a row of time t: until then others of its time may arrive."""
        return {WATERMARK: pl.col(EVENT_TIME) + 1}
