"""The join without bounds of time of changes: each pair of rows that are left, retracted with either of them.

A retraction is appended to the table beside its row, with the weight -1 and the number of the row. Readers leave both
out, and they are removed when the runs in which they are become one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import polars as pl

from stages.changes import WEIGHT, summed, weight, without_retracted
from stages.clock import StepClock
from stages.declared import Text
from stages.dropped import UNMATCHED
from stages.joins.base import LEFT, RIGHT
from stages.joins.corrected_side import SideChanges, changed_pairs
from stages.joins.lasting import LastingJoin, RetainedRows
from stages.operator import MAIN, StepOutput
from stages.pending_rows import NUMBER
from stages.state_tables import State
from windowing.columns import EVENT_TIME, PANE_RETRACTED


@attrs.frozen(slots=False, eq=False)
class CorrectedRows(RetainedRows):
    """The state table of all rows of one side, with a weight, and of retractions."""

    @property
    def marks(self) -> Mapping[str, pl.DataType]:
        return {NUMBER: pl.Int64(), WEIGHT: pl.Int32()}

    def merged(self, rows: pl.DataFrame) -> pl.DataFrame:
        # A retraction whose row is in another run stays.
        id = [*self.keys, NUMBER]
        both = rows.filter(pl.col(WEIGHT) < 0).join(rows.filter(pl.col(WEIGHT) > 0), on=id, how="semi")
        return rows.join(both, on=id, how="anti") if len(both) else rows


@attrs.frozen(slots=False, eq=False)
class LastingJoinOfChanges(LastingJoin):
    """The join of all rows with equal keys, at any times, where rows may retract earlier ones."""

    @property
    def gives_changes(self) -> bool:
        return True

    def facts(self, text: Text) -> dict[str, str]:
        return {**super().facts(text), "changes": "retracts a pair with either of its rows"}

    @cached_property
    def left(self) -> CorrectedRows:
        return CorrectedRows(LEFT, self.keys, self.columns(LEFT))

    @cached_property
    def right(self) -> CorrectedRows:
        return CorrectedRows(RIGHT, self.keys, self.columns(RIGHT))

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Emits retracted and new pairs, and stores the changes."""
        rows = arrivals[MAIN]
        net = summed(rows, [*self.schema, EVENT_TIME]).with_columns(
            (state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER),
            weight().cast(pl.Int32),
        )
        arrived = {side.name: side.of(net) for side in (self.left, self.right)}
        left = self._changes(state, self.left, arrived[LEFT], arrived[RIGHT])
        right = self._changes(state, self.right, arrived[RIGHT], arrived[LEFT])
        panes = pl.concat(
            self._pairs(rows, others).with_columns(pl.lit(retracted).alias(PANE_RETRACTED))
            for rows, others, retracted in changed_pairs(left, right)
        )
        lost = pl.concat([left.unmatched, right.unmatched], how="diagonal")
        lost = lost.with_columns(pl.lit(True).alias(PANE_RETRACTED))
        return StepOutput(
            panes,
            len(rows),
            len(rows),
            len(rows) - len(lost),
            {UNMATCHED: len(lost)} if len(lost) else {},
            self.shown(lost, UNMATCHED),
        )

    def _changes(
        self, state: State, side: CorrectedRows, own: pl.DataFrame, others: pl.DataFrame
    ) -> SideChanges:
        """Finds the stored rows that `own` retract or that may be partners of `others`, and appends the changes."""
        new, retractions = own.filter(pl.col(WEIGHT) > 0), own.filter(pl.col(WEIGHT) < 0)
        keys = pl.concat([others.select(self.keys), retractions.select(self.keys)]).unique()
        stored = side.merged(state.lookup(side, keys))
        kept, retracted, unmatched = without_retracted(stored, retractions, [*side.schema, EVENT_TIME])
        gone = retracted.with_columns(pl.lit(-1, pl.Int32).alias(WEIGHT))
        state.append(side, pl.concat([new, gone]))
        return SideChanges(new, retracted, kept, unmatched)
