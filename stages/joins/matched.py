"""The state table that has the stored rows of a side that have been in a pair: their ids, beside the rows themselves.

    rows of the side    k1 #3   k2 #4   k1 #7   k3 #9       each is written when it arrives, and then never changes
    matched rows        k1 #3           k1 #7               each is written when the row has its first partner
    removed, unmatched          k2 #4           k3 #9       emitted by an outer join

The partners of a batch have times in the whole interval, so they are in nearly all buckets of their side. To write that
they are matched into all of these buckets costs many times as much as to append their ids to few buckets of this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.clock import StepClock
from stages.joins.side import GOES, JoinSide
from stages.operator import HOLD, PENDING
from stages.pending_rows import NUMBER
from stages.state_tables import State, StateTable, TimeTable
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME

_WIDER: Final = 32
"""The factor by which buckets are wider than those of the side: few, as each batch appends ids to all of them."""


@attrs.frozen(slots=False, eq=False)
class MatchedRows(StateTable[TimeTable]):
    """The state table of the ids of stored rows of a side that have been in a pair.

    An id is stored as long as its row.
    """

    side: JoinSide
    clocks = (WATERMARK,)

    @cached_property
    def rows(self) -> pl.Schema:
        """The schema of this state table."""
        system = (EVENT_TIME, NUMBER, GOES, PENDING, HOLD)
        return pl.Schema({name: self.side.rows[name] for name in (*self.side.keys, *system)})

    @cached_property
    def table(self) -> TimeTable:
        live = self.side.spread.live * (1 if self.side.reach is None else _WIDER)
        return TimeTable(
            row="matched row",
            waits="has had a partner",
            keys=self.side.keys,
            bounds=(EVENT_TIME, GOES),
            schema=self.rows,
            incoming=self.rows,
            ends_silently=True,
            spread=attrs.evolve(self.side.spread, column=GOES, live=live),
            name=f"{self.side.name}_matched",
            may_be_new=True,
            waits_until=self.deadlines(Times()),
            overstay=self.side.overstay,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: pl.col(GOES)}

    def update(
        self, state: State, matched: pl.DataFrame, removed: pl.DataFrame, clock: StepClock
    ) -> pl.DataFrame:
        """Stores the ids of `matched`, and returns the rows of `removed` that have never been in a pair.

        Both are rows of the side. `matched` have a partner in this step, `removed` no longer are in the state after it.
        """
        # The ids of rows that arrive in this step are not stored yet.
        stored = removed.filter(pl.col(NUMBER) < state.arrived)
        ids = pl.concat([matched.select(list(self.rows)), stored.select(list(self.rows))])
        known = self._known(state, ids)
        new = self._without(ids.head(len(matched)), known)
        stays = pl.col(GOES) > clock.watermark
        loaded = state.load(self, new.filter(stays).with_columns(pl.lit(None, pl.Int64).alias(HOLD)))
        state.write_back(self, pl.concat([loaded.rows, loaded.incoming]).filter(stays))
        return self._without(removed, pl.concat([known, new]))

    def _known(self, state: State, rows: pl.DataFrame) -> pl.DataFrame:
        """Reads the stored ids of these rows, and perhaps others."""
        if rows.is_empty():
            return rows
        first, last = rows.select(pl.col(GOES).min(), pl.col(GOES).max().alias("last")).row(0)
        return state.scan(self, (first, last), rows.select(self.side.keys))

    def _without(self, rows: pl.DataFrame, ids: pl.DataFrame) -> pl.DataFrame:
        """Leaves out the rows with one of these ids."""
        if ids.is_empty():
            return rows
        return rows.join(ids, on=[*self.side.keys, NUMBER], how="anti", nulls_equal=True)
