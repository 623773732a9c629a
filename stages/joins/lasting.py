"""The join without bounds of time: emits each pair of rows with equal keys at once, and stores all rows for ever.

step    new left x stored right,  stored left x new right,  new left x new right;  then the new rows are stored
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import polars as pl

from stages.clock import StepClock
from stages.joins.base import LEFT, ON_THE_RIGHT, RIGHT, TimeJoin
from stages.operator import HOLD, MAIN, PENDING, StepOutput
from stages.state_tables import AppendTable, State, StateTable, Table
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME


@attrs.frozen(slots=False, eq=False)
class RetainedRows(StateTable[AppendTable]):
    """The state table of all rows of one side (`name`). No row is ever removed."""

    name: str
    keys: tuple[str, ...]
    schema: pl.Schema
    clocks = (WATERMARK,)

    @property
    def marks(self) -> Mapping[str, pl.DataType]:
        """Further columns of a row, which arrivals have."""
        return {}

    @cached_property
    def table(self) -> AppendTable:
        own = dict.fromkeys((EVENT_TIME, PENDING, HOLD), pl.Int64())
        rows = pl.Schema({**self.schema, **own, **self.marks})
        name = "" if self.name == LEFT else self.name
        bounds = (EVENT_TIME, EVENT_TIME)
        return AppendTable(row="row", waits="is kept", keys=self.keys, bounds=bounds, schema=rows, name=name)

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: pl.lit(None, pl.Int64)}

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns the arrivals of this side, without those with a null key, which match no row."""
        mine = ON_THE_RIGHT if self.name == RIGHT else ~ON_THE_RIGHT
        known = pl.all_horizontal(pl.col(key).is_not_null() for key in self.keys)
        nothing = [pl.lit(0, pl.Int64).alias(PENDING), pl.lit(None, pl.Int64).alias(HOLD)]
        return rows.filter(mine & known).with_columns(nothing).select(list(self.table.schema))


@attrs.frozen(slots=False, eq=False)
class LastingJoin(TimeJoin):
    """The inner join of all rows with equal keys, at any times. A pair has the later event time of its two rows.

    No row is late, and all rows are stored for ever.
    """

    @property
    def text(self) -> str:
        return "inner, kept for ever"

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.left, self.right)

    @cached_property
    def left(self) -> RetainedRows:
        """The state table of left rows."""
        return RetainedRows(LEFT, self.keys, self.columns(LEFT))

    @cached_property
    def right(self) -> RetainedRows:
        """The state table of right rows."""
        return RetainedRows(RIGHT, self.keys, self.columns(RIGHT))

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Emits pairs of new rows with stored rows and with each other, then stores the new rows."""
        rows = arrivals[MAIN]
        left, right = self.left.of(rows), self.right.of(rows)
        old_left = state.lookup(self.left, right.select(self.keys).unique())
        old_right = state.lookup(self.right, left.select(self.keys).unique())
        # Appended after the lookups, so that pairs of two new rows are made only once, below.
        state.append(self.left, left)
        state.append(self.right, right)
        pairs = [self._pairs(left, old_right), self._pairs(old_left, right), self._pairs(left, right)]
        return StepOutput(pl.concat(pairs), len(rows), len(rows), len(rows))

    def _pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        theirs = right.select(*self.keys, RIGHT, pl.col(EVENT_TIME).alias("__time"))
        both = left.select(*self.keys, LEFT, EVENT_TIME).join(theirs, on=list(self.keys))
        return both.with_columns(pl.max_horizontal(EVENT_TIME, "__time").alias(EVENT_TIME)).select(
            list(self.given)
        )
