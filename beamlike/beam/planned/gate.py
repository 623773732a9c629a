"""The side inputs of a fused stage in a plan: their content, and the elements that wait for it.

table     a row for each                          on
waiting   element that waits                      its shard
sides     chunk of a side's encoded elements      all shards
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from beamlike.beam.cells import DATA, ELEMENT
from beamlike.beam.planned.job import Job
from stages.clock import StepClock
from stages.operator import HOLD, PENDING, Input
from stages.state_tables import SharedTable, Spread, State, StateTable, TimeTable
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

SIDE: Final = "side"
CONTENT: Final = pl.Schema({DATA: pl.Binary(), EVENT_TIME: pl.Int64()})
"""The columns of the rows of a side."""
_NEVER: Final = pl.lit(None, pl.Int64)
_HOUR: Final = 3_600_000_000


@attrs.frozen(slots=False, eq=False)
class Waiting(StateTable[TimeTable]):
    """The table of the elements that wait for a side. Each step looks at all of them."""

    schema: pl.Schema
    keys: tuple[str, ...]
    clocks = (WATERMARK,)

    @cached_property
    def table(self) -> TimeTable:
        rows = pl.Schema({**self.schema, PENDING: pl.Int64(), HOLD: pl.Int64()})
        return TimeTable(
            row="element",
            waits="waits for a side input",
            keys=self.keys,
            bounds=(EVENT_TIME, EVENT_TIME),
            schema=rows,
            incoming=rows,
            spread=Spread(EVENT_TIME, 1_000_000, _HOUR),
            waits_until=self.deadlines(Times()),
            name="waiting",
            said="an element waits for a side input",
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: pl.lit(MIN_TIME, pl.Int64)}


@attrs.frozen(slots=False, eq=False)
class Content(StateTable[SharedTable]):
    """The table of the content of all sides of a stage, which only grows."""

    clocks = (WATERMARK,)

    @cached_property
    def table(self) -> SharedTable:
        rows = pl.Schema({SIDE: pl.String(), **CONTENT, PENDING: pl.Int64(), HOLD: pl.Int64()})
        return SharedTable(
            row="chunk of a side",
            waits="is looked at",
            keys=(),
            bounds=(EVENT_TIME, EVENT_TIME),
            schema=rows,
            incoming=rows,
            waits_until=self.deadlines(Times()),
            name="sides",
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: _NEVER}


@attrs.frozen(slots=False, eq=False)
class Gate:
    """The sides of a fused stage.

    Attributes:
        job: The pipeline.
        stage: The name of the fused stage in it.
        sides: The buffer of each side by role.
        schema: The columns of the rows of the main input.
        keys: The columns by which these rows are placed on shards, if any.
    """

    job: Job
    stage: str
    sides: Mapping[str, bytes]
    schema: pl.Schema
    keys: tuple[str, ...] = ()

    @property
    def inputs(self) -> dict[str, Input]:
        """The inputs of the sides by role."""
        return {role: Input((), CONTENT, "everywhere", side=True) for role in self.sides}

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clocks of the sides."""
        return tuple(self.sides)

    @cached_property
    def waiting(self) -> Waiting:
        """The table of the elements that wait."""
        return Waiting(self.schema, self.keys)

    @cached_property
    def content(self) -> Content:
        """The table of the content of the sides."""
        return Content()

    def admitted(
        self, state: State, arrivals: Mapping[str, pl.DataFrame], rows: pl.DataFrame, clock: StepClock
    ) -> tuple[pl.DataFrame, int]:
        """Returns the elements that need not wait, among `rows` and those that have waited, with the content of the
        sides in the worker. Also returns the number of elements that wait.
        """
        stored = self._added(state, arrivals)
        fresh = rows.with_columns(pl.lit(1, pl.Int64).alias(PENDING), pl.col(EVENT_TIME).alias(HOLD))
        loaded = state.load(self.waiting, fresh.select(list(self.waiting.table.schema)))
        pool = pl.concat([loaded.rows, loaded.incoming])
        if pool.is_empty():
            state.write_back(self.waiting, pool)
            return pool.select(list(self.schema)), 0
        contents = {
            buffer: stored.filter(pl.col(SIDE) == pl.lit(role))[DATA].to_list()
            for role, buffer in self.sides.items()
        }
        watermarks = {buffer: clock.now.time(role) for role, buffer in self.sides.items()}
        ready = pl.Series(
            self.job.worker().admit(self.stage, pool[ELEMENT].to_list(), contents, watermarks),
            dtype=pl.Boolean,
        )
        state.write_back(self.waiting, pool.filter(~ready))
        return pool.filter(ready).select(list(self.schema)), int((~ready).sum())

    def _added(self, state: State, arrivals: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        """Adds content that has arrived. Returns all content."""
        stored = state.scan(self.content, (MIN_TIME, MAX_TIME))
        nothing = {PENDING: pl.lit(0, pl.Int64), HOLD: _NEVER}
        arrived = pl.concat(
            arrivals[role].with_columns(pl.lit(role).alias(SIDE), **nothing).select(stored.columns)
            for role in self.sides
        )
        if arrived.is_empty():
            return stored
        loaded = state.load(self.content, arrived)
        state.write_back(self.content, pl.concat([loaded.rows, loaded.incoming]))
        return pl.concat([stored, arrived])
