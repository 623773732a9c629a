"""The operator that turns changes into rows: it emits those that are left when nothing can retract them any more.

allowed lateness L    row t       t retracted?  W > t + L: emitted, once and for all
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Self

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.dropped import LATE, UNMATCHED, late_schema, with_reason
from stages.operator import HOLD, MAIN, PENDING, Input, Operator, StepOutput
from stages.pending_rows import NUMBER, PendingRows, left_of
from stages.state_tables import State, StateTable, TimeTable
from windowing.clocks import WATERMARK
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.lateness import in_time
from windowing.time import MAX_TIME, Microseconds, format_duration
from windowing.windows import GlobalWindows


@attrs.frozen(slots=False, eq=False)
class Settled(Operator):
    """The operator that emits the rows that are left, in order of time and values, when they are final.

    Attributes:
        keys: The columns by which a row and its retraction are placed on the same shard.
        schema: The user's columns of arriving rows.
        windows: The window columns of arriving rows, if they have some.
        allowed_lateness: The duration (us) by which the watermark must have passed the time of a row.
        late: True if dropped rows are returned with the reason.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    windows: tuple[str, ...]
    allowed_lateness: int
    late: bool = attrs.field(default=False, kw_only=True)

    @cached_property
    def row(self) -> pl.Schema:
        """The user's columns of a row, and the flag of retractions."""
        return pl.Schema({**self.schema, PANE_RETRACTED: pl.Boolean()})

    @cached_property
    def inputs(self) -> dict[str, Input]:
        times = dict.fromkeys((EVENT_TIME, *self.windows), pl.Int64())
        return {MAIN: Input(self.keys, pl.Schema({**self.row, **times}))}

    @cached_property
    def pending(self) -> PendingRows:
        """The state table of changes that wait."""
        return PendingRows(self.keys, self.row, self.allowed_lateness)

    @property
    def tables(self) -> tuple[StateTable[TimeTable], ...]:
        return (self.pending,)

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK,)

    @property
    def declared(self) -> Declaration:
        return Declaration("settled", {"allowed lateness": Microseconds(self.allowed_lateness)})

    def with_late(self) -> Self:
        return attrs.evolve(self, late=True)

    def facts(self, text: Text) -> dict[str, str]:
        late = f", {format_duration(self.allowed_lateness)} later" if self.allowed_lateness else ""
        return {"settled": f"rows wait until the watermark has passed them{late}"}

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Stores changes, and emits the rows that are final and not retracted."""
        rows = arrivals[MAIN]
        timely = in_time(clock.input_before, self.allowed_lateness)
        placed = (rows if self.windows else GlobalWindows().assign(rows)).with_columns(
            (state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER),
            pl.lit(1, pl.Int64).alias(PENDING),
            pl.col(EVENT_TIME).alias(HOLD),
        )
        late, waiting = placed.filter(~timely), placed.filter(timely)
        loaded = state.load(self.pending, waiting.select(list(self.pending.schema)))
        pool = pl.concat([loaded.rows, loaded.incoming])
        final = (
            pl.col(EVENT_TIME)
            < max(clock.watermark, -MAX_TIME + self.allowed_lateness) - self.allowed_lateness
        )
        if clock.at_end:
            final = pl.lit(True)
        state.write_back(self.pending, pool.filter(~final))
        left, unmatched = left_of(pool.filter(final), list(self.schema))
        dropped = {LATE: len(late), UNMATCHED: len(unmatched)}
        return StepOutput(
            left.sort(EVENT_TIME, NUMBER).select(*self.schema, EVENT_TIME, *self.windows),
            len(rows),
            len(rows),
            len(pool) - len(pool.filter(~final)),
            {reason: count for reason, count in dropped.items() if count},
            self._shown(late, unmatched),
        )

    def _shown(self, late: pl.DataFrame, unmatched: pl.DataFrame) -> pl.DataFrame:
        """Adds the reasons to dropped rows; an empty frame if dropped rows are not returned."""
        if not self.late:
            return pl.DataFrame()
        schema = late_schema(self.row, self.row.names())
        return pl.concat([with_reason(late, LATE, schema), with_reason(unmatched, UNMATCHED, schema)])
