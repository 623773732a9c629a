"""The as-of join: joins each row of the left side with the newest version of its key at the time of the row.

    versions of a key    v1 ---------- v2 -------------- v3 ------->      each has the time of the NEXT one
    left rows                  a              b    c          d
    result                   (a, v1)        (b, v2) (c, v2)  (d, v3)      (d, null) if v3 is older than the tolerance

A left row is pending until the watermark has passed its time. A version is removed when the watermark reaches NEXT: all
later left rows that are not late have times from NEXT on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, Literal

import attrs
import polars as pl

from stages.clock import StepClock
from stages.dropped import LATE, UNMATCHED
from stages.joins.base import LEFT, ON_THE_RIGHT, RIGHT, TimeJoin
from stages.operator import HOLD, MAIN, PENDING, StepOutput
from stages.pending_rows import NUMBER, PendingRows, left_of
from stages.state_tables import KeyedTable, Loaded, State, StateTable, Table
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME
from windowing.lateness import in_time
from windowing.time import MAX_TIME, format_duration
from windowing.windows import GlobalWindows

NEXT: Final = "__next"
"""A column of each version: the time (us) of the next version of its key; null for the newest version."""

How = Literal["left", "inner"]


@attrs.frozen(slots=False, eq=False)
class Versions(StateTable[KeyedTable]):
    """The state table of versions, the rows of the right side. `tolerance` (us) is their maximum age, or None."""

    keys: tuple[str, ...]
    schema: pl.Schema
    tolerance: int | None
    clocks = (WATERMARK,)

    @cached_property
    def rows(self) -> pl.Schema:
        """The schema of a stored version: the right side's row, and the time of the next version."""
        own = dict.fromkeys((EVENT_TIME, NUMBER, NEXT, PENDING, HOLD), pl.Int64())
        return pl.Schema({**self.schema, **own})

    @cached_property
    def table(self) -> KeyedTable:
        return KeyedTable(
            row="version",
            waits="is the newest",
            keys=self.keys,
            bounds=(EVENT_TIME, NEXT),
            schema=self.rows,
            incoming=self.rows,
            ends_silently=True,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns the deadline of each version: it is due, and removed, when no further left row can match it,
        because it was replaced or is too old.
        """
        until = [pl.col(NEXT), pl.lit(MAX_TIME, pl.Int64)]
        if self.tolerance is not None:
            until.append(
                pl.col(EVENT_TIME).clip(upper_bound=MAX_TIME - self.tolerance - 1) + self.tolerance + 1
            )
        return {WATERMARK: pl.min_horizontal(until)}

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows

    def newest(self, versions: pl.DataFrame) -> pl.DataFrame:
        """Computes NEXT for all versions of some keys. Of versions with equal times, keeps the last to arrive."""
        # Adjacent rows of one sort are compared, since a shift within each key is ten times as slow.
        ordered = versions.sort(*self.keys, EVENT_TIME, NUMBER)
        following = pl.col(EVENT_TIME).shift(-1)
        of_key = pl.all_horizontal(pl.col(key).eq_missing(pl.col(key).shift(-1)) for key in self.keys)
        replaced = of_key & (pl.col(EVENT_TIME) == following).fill_null(False)
        return ordered.filter(~replaced).with_columns(pl.when(of_key).then(following).alias(NEXT))


@attrs.frozen(slots=False, eq=False)
class AsOfJoin(TimeJoin):
    """The as-of join: joins each left row with the newest row (version) of the right side that is not after it.

    A left row waits until the watermark has passed its time, so that all versions up to it have arrived. A late version
    changes only the results of left rows that are joined afterwards.

    Attributes:
        how: "left" if a left row without a version is emitted, "inner" if it is not.
        tolerance: The maximum age (us) of a version at the time of the left row; None if there is no maximum.
    """

    how: How
    tolerance: int | None = None

    @property
    def text(self) -> str:
        old = "" if self.tolerance is None else f", at most {format_duration(self.tolerance)} old"
        return f"{self.how} as of{old}"

    @property
    def ordered(self) -> bool:
        return True  # of versions with equal times, the last to arrive is used

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.versions, self.pending)

    @cached_property
    def versions(self) -> Versions:
        """The state table of versions, the rows of the right side."""
        return Versions(self.keys, self.columns(RIGHT), self.tolerance)

    @cached_property
    def pending(self) -> PendingRows:
        """The state table of left rows that wait for the watermark. If rows may be retracted, versions wait as well."""
        return PendingRows(self.keys, self.row if self.changes else self.columns(LEFT))

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Stores arriving versions, and joins the left rows whose time the watermark has passed."""
        rows = arrivals[MAIN]
        if self.changes:
            return self._step_of_changes(state, rows, clock)
        numbered = rows.with_columns((state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER))
        left, versions = numbered.filter(~ON_THE_RIGHT), numbered.filter(ON_THE_RIGHT)
        timely = in_time(clock.input_before, self.allowed_lateness)
        # A left row that is late, but within the allowed lateness, is joined at once with the versions still in state.
        due = self._due(state, left.filter(timely), clock)
        panes = self._joined(due, self._versions(state, versions, due, clock))
        late = left.filter(~timely)
        return StepOutput(
            panes,
            len(rows),
            len(rows),
            len(due) + len(versions),
            {LATE: len(late)} if len(late) else {},
            self.shown(late),
        )

    def _step_of_changes(self, state: State, rows: pl.DataFrame, clock: StepClock) -> StepOutput:
        """Stores all rows until the watermark has passed their time, and then processes those that are left."""
        numbered = rows.with_columns((state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER))
        timely = in_time(clock.input_before, self.allowed_lateness)
        settled, unmatched = left_of(self._due(state, numbered.filter(timely), clock), list(self.schema))
        settled = settled.sort(EVENT_TIME, NUMBER)
        due = settled.filter(~ON_THE_RIGHT).select(list(self._stored(LEFT)))
        versions = settled.filter(ON_THE_RIGHT).select(list(self._stored(RIGHT)))
        panes = self._joined(due, self._versions(state, versions, due, clock))
        late = numbered.filter(~timely)
        dropped = {LATE: len(late), UNMATCHED: len(unmatched)}
        shown = [self.shown(late), self.shown(unmatched, UNMATCHED)] if self.late else []
        return StepOutput(
            panes,
            len(rows),
            len(rows),
            len(settled),
            {reason: count for reason, count in dropped.items() if count},
            pl.concat(shown) if shown else pl.DataFrame(),
        )

    def _stored(self, side: str) -> pl.Schema:
        """Returns the schema of a row of one side in a step: the keys and the struct, its time and number."""
        return pl.Schema({**self.columns(side), EVENT_TIME: pl.Int64(), NUMBER: pl.Int64()})

    def _due(self, state: State, left: pl.DataFrame, clock: StepClock) -> pl.DataFrame:
        """Returns the rows, new or stored, whose time the watermark has passed. Stores all other rows."""
        waits = (
            GlobalWindows()
            .assign(left)
            .with_columns(
                pl.lit(1, pl.Int64).alias(PENDING),
                pl.when(pl.col(EVENT_TIME) >= clock.input_before).then(EVENT_TIME).alias(HOLD),
            )
            .select(list(self.pending.schema))
        )
        loaded = state.load(self.pending, waits)
        pool = pl.concat([loaded.rows, loaded.incoming])
        ready = pl.col(EVENT_TIME) < clock.watermark
        state.write_back(self.pending, pool.filter(~ready))
        return pool.filter(ready).sort(EVENT_TIME, NUMBER)

    def _versions(
        self, state: State, new_versions: pl.DataFrame, due: pl.DataFrame, clock: StepClock
    ) -> pl.DataFrame:
        """Stores new versions, and returns all versions, new or stored, of the keys of the rows `due`."""
        table, requested = self.versions, due.select(self.keys).drop_nulls().unique()
        nothing = {NEXT: None, PENDING: 0, HOLD: None}
        new = new_versions.with_columns(
            pl.lit(value, pl.Int64).alias(name) for name, value in nothing.items()
        )
        incoming = new.select(list(table.rows))
        loaded = (
            state.load_with(table, incoming, requested) if len(requested) else state.load(table, incoming)
        )
        # Keys without new versions keep their NEXT.
        changed = loaded.rows.join(loaded.incoming, self.keys, "semi", nulls_equal=True)
        others = loaded.rows.join(loaded.incoming, self.keys, "anti", nulls_equal=True)
        versions = pl.concat([others, table.newest(pl.concat([changed, loaded.incoming]))])
        gone = table.deadlines(clock.now)[WATERMARK] <= clock.watermark
        state.write_back(table, versions.filter(~gone))
        return pl.concat([versions, loaded.requested]).join(requested, self.keys, "semi")

    def _joined(self, due: pl.DataFrame, versions: pl.DataFrame) -> pl.DataFrame:
        known = pl.all_horizontal(pl.col(key).is_not_null() for key in self.keys)
        right = versions.select(*self.keys, RIGHT, EVENT_TIME).sort(EVENT_TIME)
        with_key = due.filter(known).join_asof(
            right,
            on=EVENT_TIME,
            by=list(self.keys),
            strategy="backward",
            tolerance=self.tolerance,
            check_sortedness=False,
        )
        without = due.filter(~known).with_columns(pl.lit(None, self.schema[RIGHT]).alias(RIGHT))
        joined = pl.concat([with_key, without.select(with_key.columns)])
        if self.how == "inner":
            joined = joined.filter(pl.col(RIGHT).is_not_null())
        return joined.sort(EVENT_TIME, NUMBER).select(list(self.given))
