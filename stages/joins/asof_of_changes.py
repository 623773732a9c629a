"""The as-of join of changes with allowed lateness: corrects its results when a row of either side is corrected late.

    versions of a key    v1 at 10 s    v2 at 20 s                     allowed lateness 5 s
    a left row a         at 21 s, joined when the watermark passes it: (a, v2)
    v2 retracted         at watermark 22 s: retracts (a, v2), emits (a, v1)

So versions and joined left rows are stored for the allowed lateness longer. The results of a key from its earliest
correction on are computed twice, with the rows before the step and after it, and their difference is emitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import attrs
import polars as pl

from stages.changes import difference, summed, without_retracted
from stages.clock import StepClock
from stages.declared import Text
from stages.dropped import LATE, UNMATCHED
from stages.joins.asof import NEXT, AsOfJoin, Versions
from stages.joins.base import LEFT, ON_THE_RIGHT, RIGHT
from stages.operator import HOLD, MAIN, PENDING, StepOutput
from stages.pending_rows import NUMBER, PendingRows, by_values
from stages.state_tables import KeyedTable, State, StateTable, Table, TimeTable
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.lateness import in_time
from windowing.time import MAX_TIME, format_duration

_SINCE: Final = "__since"
"""A column of keys: the time (us) of their earliest correction in a step."""


SUPERSEDED: Final = NUMBER
"""A column of each version: 1 if another version of the same time is after it in the order of values, otherwise 0."""


@attrs.frozen(slots=False, eq=False)
class CorrectedVersions(Versions):
    """The state table of versions that may be retracted. Several versions of a key may have equal times."""

    allowed_lateness: int

    @cached_property
    def table(self) -> KeyedTable:
        arrival = {**self.schema, EVENT_TIME: pl.Int64(), PANE_RETRACTED: pl.Boolean()}
        return attrs.evolve(super().table, incoming=pl.Schema(arrival))

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns the deadline of each version: it is due when neither a left row nor a correction can need it."""
        longest = self.allowed_lateness + 1
        replaced = pl.col(NEXT).clip(upper_bound=MAX_TIME - longest) + longest
        until = [replaced, pl.lit(MAX_TIME, pl.Int64)]
        if self.tolerance is not None:
            longest += self.tolerance
            until.append(pl.col(EVENT_TIME).clip(upper_bound=MAX_TIME - longest) + longest)
        return {WATERMARK: pl.min_horizontal(until)}

    def newest(self, versions: pl.DataFrame) -> pl.DataFrame:
        """Computes NEXT, the time of the next later version, and SUPERSEDED for all versions of some keys."""
        ordered = versions.sort(*self.keys, EVENT_TIME)
        following = pl.col(EVENT_TIME).shift(-1)
        of_key = pl.all_horizontal(pl.col(key).eq_missing(pl.col(key).shift(-1)) for key in self.keys)
        tied = (of_key & (pl.col(EVENT_TIME) == following)).fill_null(False)
        # Versions of one time have the NEXT of the last of them.
        later = pl.when(tied).then(None).when(of_key).then(following).otherwise(MAX_TIME).backward_fill()
        return ordered.with_columns(
            pl.when(later != MAX_TIME).then(later).alias(NEXT),
            self._superseded(ordered, ordered.select(tied | tied.shift(1, fill_value=False)).to_series()),
        )

    def _superseded(self, versions: pl.DataFrame, tied: pl.Series) -> pl.Series:
        """Returns SUPERSEDED; `tied` is true for versions that others with the same time are next to."""
        flags = pl.Series(SUPERSEDED, [0]).new_from_index(0, len(versions))
        if not tied.any():
            return flags
        values = by_values(pl.Schema({RIGHT: self.schema[RIGHT]}))
        ordered = versions.with_row_index("__row").filter(tied).sort(*self.keys, EVENT_TIME, *values)
        last = ordered.unique([*self.keys, EVENT_TIME], keep="last", maintain_order=True)
        return flags.scatter(ordered["__row"], 1).scatter(last["__row"], 0)


@attrs.frozen(slots=False, eq=False)
class JoinedRows(PendingRows):
    """The state table of changes of left rows that were joined, as long as their results may be corrected."""

    @cached_property
    def table(self) -> TimeTable:
        return attrs.evolve(super().table, waits="may be corrected", name="joined")


@attrs.frozen(eq=False)
class _Versions:
    """The versions before a step and after it, without superseded ones, and unmatched retractions."""

    before: pl.DataFrame
    after: pl.DataFrame
    unmatched: pl.DataFrame


@attrs.frozen(slots=False, eq=False)
class AsOfJoinOfChanges(AsOfJoin):
    """The as-of join of changes that may arrive late."""

    @property
    def gives_changes(self) -> bool:
        return True

    def facts(self, text: Text) -> dict[str, str]:
        lateness = format_duration(self.allowed_lateness)
        return {**super().facts(text), "changes": f"corrects what it emitted in the last {lateness}"}

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.versions, self.pending, self.joined)

    @cached_property
    def versions(self) -> CorrectedVersions:
        return CorrectedVersions(self.keys, self.columns(RIGHT), self.tolerance, self.allowed_lateness)

    @cached_property
    def joined(self) -> JoinedRows:
        """The state table of left rows that were joined."""
        left = pl.Schema({**self.columns(LEFT), PANE_RETRACTED: pl.Boolean()})
        return JoinedRows(self.keys, left, self.allowed_lateness)

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Joins left rows whose turn has come, and corrects results of keys with late changes."""
        rows = arrivals[MAIN]
        numbered = rows.with_columns((state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER))
        timely = in_time(clock.input_before, self.allowed_lateness)
        due = self._due(state, numbered.filter(timely), clock)
        net = summed(due, [*self.schema, EVENT_TIME])
        corrected = (
            net.filter(pl.col(EVENT_TIME) < clock.input_before)
            .group_by(self.keys)
            .agg(pl.col(EVENT_TIME).min().alias(_SINCE))
        )
        new = net.filter(~ON_THE_RIGHT).select(list(self.joined.schema))
        before = self._joined_before(state, corrected, clock)
        left, unmatched = self._left(state, before, new, clock)
        versions = self._corrected_versions(state, net.filter(ON_THE_RIGHT), before, left, clock)
        panes = self._changes(
            self._results(before, versions.before), self._results(left, versions.after), corrected
        )
        late, lost = numbered.filter(~timely), [unmatched, versions.unmatched]
        dropped = {LATE: len(late), UNMATCHED: sum(map(len, lost))}
        shown = [self.shown(late), *(self._shown_lost(each) for each in lost)] if self.late else []
        return StepOutput(
            panes,
            len(rows),
            len(rows),
            len(due) - dropped[UNMATCHED],
            {reason: count for reason, count in dropped.items() if count},
            pl.concat(shown) if shown else pl.DataFrame(),
        )

    def _joined_before(self, state: State, corrected: pl.DataFrame, clock: StepClock) -> pl.DataFrame:
        """Reads the left rows that were joined, of each corrected key from its earliest correction on."""
        if corrected.is_empty():
            return self.joined.table.no_rows
        first: int = corrected[_SINCE].min()  # type: ignore[assignment]
        found = state.scan(self.joined, (first, clock.input_before), corrected.select(self.keys))
        late = found.join(corrected, on=self.keys, nulls_equal=True).filter(
            pl.col(EVENT_TIME) >= pl.col(_SINCE)
        )
        return summed(late.select(found.columns), self._content)

    def _left(
        self, state: State, before: pl.DataFrame, new: pl.DataFrame, clock: StepClock
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Stores new changes of left rows. Returns (all left rows to join, retractions without a row)."""
        net = summed(pl.concat([before, new]), self._content)
        left, unmatched = net.filter(~pl.col(PANE_RETRACTED)), net.filter(PANE_RETRACTED)
        stored = new.join(unmatched, on=NUMBER, how="anti").with_columns(
            pl.lit(0, pl.Int64).alias(PENDING), pl.lit(None, pl.Int64).alias(HOLD)
        )
        loaded = state.load(self.joined, stored)
        over = self.joined.deadlines(clock.now)[WATERMARK] <= clock.watermark
        state.write_back(self.joined, pl.concat([loaded.rows, loaded.incoming]).filter(~over))
        return left, unmatched

    @property
    def _content(self) -> list[str]:
        return [*self.columns(LEFT), EVENT_TIME]

    def _corrected_versions(
        self, state: State, changes: pl.DataFrame, before: pl.DataFrame, left: pl.DataFrame, clock: StepClock
    ) -> _Versions:
        """Stores changes of versions. Returns the versions for left rows `before` the step, and for those after it."""
        own: dict[str, Any] = {"on": self.keys, "how": "semi"}
        table = self.versions
        keys = pl.concat([rows.select(self.keys) for rows in (before, left)]).unique().drop_nulls()
        loaded = state.load_with(table, changes.select(list(table.table.incoming)), keys)
        is_changed = loaded.incoming.select(self.keys).unique()
        known = loaded.rows.join(is_changed, on=self.keys, how="semi", nulls_equal=True)
        others = loaded.rows.join(is_changed, on=self.keys, how="anti", nulls_equal=True)
        content = [*table.schema, EVENT_TIME]
        new, retractions = (
            loaded.incoming.filter(flag) for flag in (~pl.col(PANE_RETRACTED), pl.col(PANE_RETRACTED))
        )
        kept, _, unmatched = without_retracted(known, retractions, content)
        nothing = {SUPERSEDED: 0, NEXT: None, PENDING: 0, HOLD: None}
        arrived = new.select(
            *content, *(pl.lit(value, pl.Int64).alias(name) for name, value in nothing.items())
        )
        after = pl.concat([others, table.newest(pl.concat([kept, arrived.select(list(table.rows))]))])
        gone = table.deadlines(clock.now)[WATERMARK] <= clock.watermark
        state.write_back(table, after.filter(~gone))
        return _Versions(
            pl.concat([loaded.rows, loaded.requested]).join(before, **own).filter(pl.col(SUPERSEDED) == 0),
            pl.concat([after, loaded.requested]).join(left, **own).filter(pl.col(SUPERSEDED) == 0),
            unmatched,
        )

    def _results(self, left: pl.DataFrame, versions: pl.DataFrame) -> pl.DataFrame:
        return self._joined(left.select(list(self._stored(LEFT))), versions)

    def _changes(self, before: pl.DataFrame, after: pl.DataFrame, corrected: pl.DataFrame) -> pl.DataFrame:
        """Returns the differences of corrected keys, and the results of others."""
        own: dict[str, Any] = {"on": self.keys, "nulls_equal": True, "maintain_order": "left"}
        again, new = after.join(corrected, how="semi", **own), after.join(corrected, how="anti", **own)
        return pl.concat([difference(before, again), new.with_columns(pl.lit(False).alias(PANE_RETRACTED))])

    def _shown_lost(self, unmatched: pl.DataFrame) -> pl.DataFrame:
        """Adds the reason to retractions of one side, and the other side."""
        others = [
            pl.lit(None, dtype).alias(side)
            for side in (LEFT, RIGHT)
            if side not in unmatched.columns
            for dtype in (self.schema[side],)
        ]
        return self.shown(unmatched.with_columns(others), UNMATCHED)
