"""The operator that puts changes into the sessions of their key, before they are grouped.

A row that arrives may extend or merge sessions, and a row that is retracted may shorten or part them. The rows of these
sessions are then retracted from their windows, and emitted again in their new ones. So the grouping after it needs no
windows that merge:

    gap 10 s       rows of  1 s, 9 s, 17 s    one session  [1 s, 27 s)
    9 s retracted           1 s,      17 s    two          [1 s, 11 s), [17 s, 27 s)
                   emits: all three rows retracted from [1 s, 27 s); 1 s in [1 s, 11 s); 17 s in [17 s, 27 s)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import attrs
import polars as pl

from stages.changes import WEIGHT, repeated, weight
from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.dropped import UNMATCHED
from stages.operator import HOLD, MAIN, PENDING, Input, Operator, StepOutput
from stages.pending_rows import by_values
from stages.state_tables import KeyedTable, Loaded, State, StateTable
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.lateness import collected_at
from windowing.time import MAX_TIME, Microseconds
from windowing.timestamp_combiners import TimestampCombiner
from windowing.windowing import Windowing
from windowing.windows import RUN

_BEFORE: Final = "__before"
_NUMBER: Final = "__place"
_OLD: Final = {WINDOW_START: "__old_start", WINDOW_END: "__old_end"}


@attrs.frozen(slots=False, eq=False)
class RowsInSessions(StateTable[KeyedTable]):
    """The state table of the rows that are not retracted, each with its weight and the bounds of its session.

    `schema` has the columns of a row, with its event time and window. A row is removed with its session.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    allowed_lateness: int
    clocks = (WATERMARK,)

    @cached_property
    def rows(self) -> pl.Schema:
        """The schema of this state table."""
        return pl.Schema({**self.schema, **dict.fromkeys((WEIGHT, PENDING, HOLD), pl.Int64())})

    @cached_property
    def table(self) -> KeyedTable:
        return KeyedTable(
            row="row",
            waits="is in a session",
            keys=self.keys,
            bounds=WINDOW_COLUMNS,
            schema=self.rows,
            incoming=self.rows,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns the times at which rows are due: collection, or the end of a session that holds the watermark."""
        collected = collected_at(self.allowed_lateness)
        holds = (pl.col(HOLD) == pl.col(EVENT_TIME)).fill_null(False)
        return {WATERMARK: pl.when(holds).then(pl.min_horizontal(WINDOW_END, collected)).otherwise(collected)}

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows


@attrs.frozen(slots=False, eq=False)
class SessionsOfChanges(Operator):
    """The operator that emits changes in the sessions of their key, and again if their session has other bounds.

    Attributes:
        keys: The key columns.
        schema: The schema of arriving rows, keys included.
        windowing: The windowing of the grouping that follows.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    windowing: Windowing

    @cached_property
    def content(self) -> pl.Schema:
        """The columns of a row, with its event time and window."""
        return pl.Schema({**self.schema, **dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS), pl.Int64())})

    @cached_property
    def inputs(self) -> dict[str, Input]:
        return {MAIN: Input(self.keys, pl.Schema({**self.content, PANE_RETRACTED: pl.Boolean()}))}

    @cached_property
    def rows(self) -> RowsInSessions:
        """The state table of rows."""
        return RowsInSessions(self.keys, self.content, self.windowing.allowed_lateness)

    @property
    def tables(self) -> tuple[StateTable[KeyedTable], ...]:
        return (self.rows,)

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK,)

    @property
    def gives_changes(self) -> bool:
        return True

    @property
    def declared(self) -> Declaration:
        lateness = Microseconds(self.windowing.allowed_lateness)
        choices = {
            "windows": self.windowing.windows,
            "allowed lateness": lateness,
            "timestamp combiner": self.windowing.timestamp_combiner,
        }
        return Declaration("sessions of changes", choices, accumulators=pl.Schema(self.schema))

    def facts(self, text: Text) -> dict[str, str]:
        return {"sessions": text(self.windowing.windows), "keys": ", ".join(self.keys) or "none"}

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Finds the sessions of the keys that have changes, and emits the rows whose windows differ from before."""
        rows = arrivals[MAIN]
        # The grouping drops rows whose own window was collected.
        over = collected_at(self.windowing.allowed_lateness) <= clock.input_before
        late, timely = rows.filter(over), rows.filter(~over)
        loaded = state.load(self.rows, self._weighed(timely, clock))
        of_arrivals: dict[str, Any] = {"on": list(self.keys), "nulls_equal": True, "maintain_order": "left"}
        touched, others = loaded.rows, loaded.rows.clear()
        if self.keys:
            keys = loaded.incoming.select(self.keys).unique()
            touched = loaded.rows.join(keys, how="semi", **of_arrivals)
            others = loaded.rows.join(keys, how="anti", **of_arrivals)
        summed = self._summed(touched, loaded.incoming)
        left = self._in_sessions(summed.filter(pl.col(WEIGHT) > 0))
        kept = self._held(pl.concat([others, left.select(list(self.rows.rows))]), clock)
        gone = collected_at(self.windowing.allowed_lateness) <= clock.watermark
        state.write_back(self.rows, kept.filter(~gone))
        unmatched = int(-summed.filter(pl.col(WEIGHT) < 0)[WEIGHT].sum())
        return StepOutput(
            pl.concat([late.select(list(self.inputs[MAIN].schema)), self._changes(summed, left)]),
            len(rows),
            len(rows),
            len(rows),
            {UNMATCHED: unmatched} if unmatched else {},
        )

    def _weighed(self, rows: pl.DataFrame, clock: StepClock) -> pl.DataFrame:
        """Returns arrivals as rows of the state table."""
        hold = pl.lit(None, pl.Int64)
        if self.windowing.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW:
            # The grouping's panes may have this time, and may be retracted when the session changes.
            hold = pl.when(pl.col(EVENT_TIME) >= clock.input_before).then(EVENT_TIME)
        return rows.with_columns(
            weight(),
            pl.lit(0, pl.Int64).alias(PENDING),
            hold.alias(HOLD),
        ).select(list(self.rows.rows))

    def _summed(self, stored: pl.DataFrame, arrived: pl.DataFrame) -> pl.DataFrame:
        """Sums up equal rows, with their weights and windows before this step."""
        old = [pl.col(name).alias(was) for name, was in _OLD.items()]
        none = [pl.lit(None, pl.Int64).alias(was) for was in _OLD.values()]
        both = pl.concat(
            [
                stored.with_columns(pl.col(WEIGHT).alias(_BEFORE), *old),
                arrived.with_columns(pl.lit(0, pl.Int64).alias(_BEFORE), *none),
            ]
        )
        summed = both.group_by(*self.schema, EVENT_TIME).agg(
            pl.col(WEIGHT, _BEFORE).sum(), pl.col(HOLD, *_OLD.values()).max(), pl.col(PENDING).first()
        )
        ordered = summed.sort(EVENT_TIME, *by_values(self.schema))
        return ordered.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(_NUMBER))

    def _in_sessions(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds the bounds of the session of each row."""
        windows = self.windowing.windows
        merged = windows.merge(windows.assign(rows), self.keys)
        return merged.with_columns(
            pl.col(WINDOW_START).min().over(RUN), pl.col(WINDOW_END).max().over(RUN)
        ).drop(RUN)

    def _held(self, rows: pl.DataFrame, clock: StepClock) -> pl.DataFrame:
        """Moves the holds of rows whose session is over: their panes can only be corrected late."""
        late = self.windowing.allowed_lateness
        corrected = pl.min_horizontal(pl.col(EVENT_TIME), MAX_TIME - late) + late
        ended = (pl.col(WINDOW_END) <= clock.watermark) & pl.col(HOLD).is_not_null()
        open_again = (pl.col(WINDOW_END) > clock.watermark) & pl.col(HOLD).is_not_null()
        hold = pl.when(ended).then(corrected).when(open_again).then(EVENT_TIME).otherwise(HOLD)
        return rows.with_columns(hold.alias(HOLD))

    def _changes(self, summed: pl.DataFrame, left: pl.DataFrame) -> pl.DataFrame:
        """Returns the changes of windows: retractions first, each row as often as its weight says."""
        bounds = left.select(_NUMBER, *WINDOW_COLUMNS)
        both = summed.join(bounds, on=_NUMBER, how="left", maintain_order="left")
        same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(was)) for name, was in _OLD.items())
        weight = pl.col(WEIGHT).clip(lower_bound=0)
        # In an unchanged window, only what is new or gone is a change.
        back = pl.when(same).then((pl.col(_BEFORE) - weight).clip(lower_bound=0)).otherwise(_BEFORE)
        new = pl.when(same).then((weight - pl.col(_BEFORE)).clip(lower_bound=0)).otherwise(weight)
        was = both.with_columns(pl.col(old).alias(name) for name, old in _OLD.items())
        parts = [
            repeated(
                frame.select(*self.content, pl.lit(retracted).alias(PANE_RETRACTED)),
                both.select(times.alias("n"))["n"],
            )
            for frame, times, retracted in ((was, back, True), (both, new, False))
        ]
        return pl.concat(parts)
