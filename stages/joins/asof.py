"""The as-of join: joins each row of the left side with the newest version of its key at the time of the row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, Literal

import attrs
import polars as pl

from stages.clock import StepClock
from stages.dropped import LATE
from stages.joins.base import LEFT, ON_THE_RIGHT, RIGHT, TimeJoin
from stages.operator import HOLD, MAIN, PENDING, Given, Loaded, State, StateTable, Table
from stages.waiting import NUMBER, Waiting
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME
from windowing.lateness import in_time
from windowing.time import MAX_TIME, format_duration
from windowing.windows import GlobalWindows

NEXT: Final = "__next"
"""Column of a version: the time of the version that replaces it; null if there is none."""

How = Literal["left", "inner"]


@attrs.frozen(slots=False, eq=False)
class Versions(StateTable):
    """The versions of each key. A version is removed when no row to come can see it: it was replaced, or is too old."""

    keys: tuple[str, ...]
    schema: pl.Schema
    tolerance: int | None
    clocks = (WATERMARK,)

    @cached_property
    def rows(self) -> pl.Schema:
        """The columns of a version."""
        own = dict.fromkeys((EVENT_TIME, NUMBER, NEXT, PENDING, HOLD), pl.Int64())
        return pl.Schema({**self.schema, **own})

    @cached_property
    def table(self) -> Table:
        return Table(
            "version",
            "is the newest",
            self.keys,
            (EVENT_TIME, NEXT),
            self.rows,
            self.rows,
            visited_by_key=True,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """The time at which a version is removed: the next one counts for all rows to come, or it is too old."""
        until = [pl.col(NEXT), pl.lit(MAX_TIME, pl.Int64)]
        if self.tolerance is not None:
            until.append(
                pl.col(EVENT_TIME).clip(upper_bound=MAX_TIME - self.tolerance - 1) + self.tolerance + 1
            )
        return {WATERMARK: pl.min_horizontal(until)}

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows

    def newest(self, versions: pl.DataFrame) -> pl.DataFrame:
        """Keeps a version for each time of a key, the last to arrive, and adds the time of the next version."""
        # Neighbours in one order are compared: a shift within each key takes ten times as long.
        ordered = versions.sort(*self.keys, EVENT_TIME, NUMBER)
        following = pl.col(EVENT_TIME).shift(-1)
        of_key = pl.all_horizontal(pl.col(key).eq_missing(pl.col(key).shift(-1)) for key in self.keys)
        replaced = of_key & (pl.col(EVENT_TIME) == following).fill_null(False)
        return ordered.filter(~replaced).with_columns(pl.when(of_key).then(following).alias(NEXT))


@attrs.frozen(slots=False, eq=False)
class AsOfJoin(TimeJoin):
    """Joins rows of the left side with the newest version of the right side that is not after them; `tolerance` in us.

    A left row waits until all versions up to its time have arrived. If a version is corrected after its time, the
    correction counts for rows still to come.
    """

    how: How
    tolerance: int | None = None

    @property
    def text(self) -> str:
        old = "" if self.tolerance is None else f", at most {format_duration(self.tolerance)} old"
        return f"{self.how} as of{old}"

    @property
    def ordered(self) -> bool:
        """True: of two versions of one time, the last to arrive counts."""
        return True

    @property
    def tables(self) -> tuple[StateTable, ...]:
        return (self.versions, self.waiting)

    @cached_property
    def versions(self) -> Versions:
        """The table of versions, of the right side."""
        return Versions(self.keys, self.columns(RIGHT), self.tolerance)

    @cached_property
    def waiting(self) -> Waiting:
        """The table of pending rows, of the left side."""
        return Waiting(self.keys, self.columns(LEFT))

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> Given:
        """Joins the rows whose time the watermark has passed with their versions."""
        rows = arrivals[MAIN]
        numbered = rows.with_columns((state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER))
        left, versions = numbered.filter(~ON_THE_RIGHT), numbered.filter(ON_THE_RIGHT)
        may_come = in_time(clock.input_before, self.allowed_lateness)
        due = self._due(state, left.filter(may_come), clock)
        panes = self._joined(due, self._versions(state, versions, due, clock))
        late = left.filter(~may_come)
        return Given(
            panes,
            len(rows),
            len(rows),
            len(due) + len(versions),
            {LATE: len(late)} if len(late) else {},
            self.shown(late),
        )

    def _due(self, state: State, left: pl.DataFrame, clock: StepClock) -> pl.DataFrame:
        """The rows of the left side that no longer wait."""
        waits = (
            GlobalWindows()
            .assign(left)
            .with_columns(
                pl.lit(1, pl.Int64).alias(PENDING),
                pl.when(pl.col(EVENT_TIME) >= clock.input_before).then(EVENT_TIME).alias(HOLD),
            )
            .select(list(self.waiting.schema))
        )
        loaded = state.load(self.waiting, waits)
        pool = pl.concat([loaded.rows, loaded.incoming])
        come = pl.col(EVENT_TIME) < clock.watermark
        state.write_back(self.waiting, pool.filter(~come))
        return pool.filter(come).sort(EVENT_TIME, NUMBER)

    def _versions(
        self, state: State, came: pl.DataFrame, due: pl.DataFrame, clock: StepClock
    ) -> pl.DataFrame:
        """The versions of the keys of these rows, new ones among them; all are stored."""
        table, asked = self.versions, due.select(self.keys).drop_nulls().unique()
        nothing = {NEXT: None, PENDING: 0, HOLD: None}
        new = came.with_columns(pl.lit(value, pl.Int64).alias(name) for name, value in nothing.items())
        loaded = state.load(table, new.select(list(table.rows)), requested_keys=asked)
        # Those of keys for which none has come are as they were.
        changed = loaded.rows.join(loaded.incoming, self.keys, "semi", nulls_equal=True)
        others = loaded.rows.join(loaded.incoming, self.keys, "anti", nulls_equal=True)
        versions = pl.concat([others, table.newest(pl.concat([changed, loaded.incoming]))])
        gone = table.deadlines(clock.now)[WATERMARK] <= clock.watermark
        state.write_back(table, versions.filter(~gone))
        return pl.concat([versions, loaded.requested]).join(asked, self.keys, "semi")

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
