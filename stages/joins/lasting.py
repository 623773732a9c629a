"""The join without bounds: emits each pair of rows with equal keys once, at once; all rows are retained."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import polars as pl

from stages.clock import StepClock
from stages.joins.base import LEFT, ON_THE_RIGHT, RIGHT, TimeJoin
from stages.operator import HOLD, MAIN, PENDING, Given, State, StateTable, Table
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME


@attrs.frozen(slots=False, eq=False)
class Rows(StateTable):
    """The rows of one side, in a column of structs. None is ever removed."""

    name: str
    keys: tuple[str, ...]
    schema: pl.Schema
    clocks = (WATERMARK,)

    @cached_property
    def table(self) -> Table:
        own = dict.fromkeys((EVENT_TIME, PENDING, HOLD), pl.Int64())
        rows = pl.Schema({**self.schema, **own})
        name = "" if self.name == LEFT else self.name
        bounds = (EVENT_TIME, EVENT_TIME)
        return Table("row", "is kept", self.keys, bounds, rows, rows, name=name, by_key=True)

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """No row is ever due."""
        return {WATERMARK: pl.lit(None, pl.Int64)}

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The arrivals of this side that have a key; null matches nothing."""
        mine = ON_THE_RIGHT if self.name == RIGHT else ~ON_THE_RIGHT
        known = pl.all_horizontal(pl.col(key).is_not_null() for key in self.keys)
        nothing = [pl.lit(0, pl.Int64).alias(PENDING), pl.lit(None, pl.Int64).alias(HOLD)]
        return rows.filter(mine & known).with_columns(nothing).select(list(self.table.schema))


@attrs.frozen(slots=False, eq=False)
class LastingJoin(TimeJoin):
    """Pairs of rows with equal keys, with the later of the two times. No row is too late, and none is removed."""

    @property
    def text(self) -> str:
        return "inner, kept for ever"

    @property
    def tables(self) -> tuple[StateTable, ...]:
        return (self.left, self.right)

    @cached_property
    def left(self) -> Rows:
        """The table of left rows."""
        return Rows(LEFT, self.keys, self.columns(LEFT))

    @cached_property
    def right(self) -> Rows:
        """The table of right rows."""
        return Rows(RIGHT, self.keys, self.columns(RIGHT))

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> Given:
        """Emits pairs of new rows with stored rows and with each other, then stores the new rows."""
        rows = arrivals[MAIN]
        left, right = self.left.of(rows), self.right.of(rows)
        old_left = state.lookup(self.left, right.select(self.keys).unique())
        old_right = state.lookup(self.right, left.select(self.keys).unique())
        state.append(self.left, left)
        state.append(self.right, right)
        pairs = [self._pairs(left, old_right), self._pairs(old_left, right), self._pairs(left, right)]
        return Given(pl.concat(pairs), len(rows), len(rows), len(rows))

    def _pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        theirs = right.select(*self.keys, RIGHT, pl.col(EVENT_TIME).alias("__time"))
        both = left.select(*self.keys, LEFT, EVENT_TIME).join(theirs, on=list(self.keys))
        return both.with_columns(pl.max_horizontal(EVENT_TIME, "__time").alias(EVENT_TIME)).select(
            list(self.given)
        )
