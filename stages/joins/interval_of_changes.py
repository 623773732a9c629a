"""The interval join of changes: each pair of rows that are left, retracted with either of them.

    retracted pairs    retracted left x stored right,  kept left x retracted right
    new pairs          new left x (kept and new) right,  kept left x new right
    then               rows that are removed and have no partner are emitted (outer join): that is final

`stored` are the rows before the step, `kept` those of them that are not retracted. So each pair is in one product.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import polars as pl

from stages.changes import summed, weight, without_retracted
from stages.clock import StepClock
from stages.declared import Text
from stages.dropped import LATE, UNMATCHED
from stages.joins.base import LEFT, ON_THE_RIGHT, RIGHT
from stages.joins.corrected_side import PARTNERS, CorrectedSide, SideChanges, changed_pairs
from stages.joins.interval import IntervalJoin
from stages.operator import MAIN, StepOutput
from stages.pending_rows import NUMBER
from stages.state_tables import State
from windowing.clocks import WATERMARK
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.lateness import in_time


@attrs.frozen(slots=False, eq=False)
class IntervalJoinOfChanges(IntervalJoin):
    """The interval join where rows of some side may retract earlier ones.

    A row without a partner is emitted when neither a partner nor a retraction can arrive any more, so it is never
    retracted.

    Attributes:
        corrected: The sides whose rows may be retracted.
    """

    corrected: tuple[str, ...] = attrs.field(kw_only=True)

    @property
    def gives_changes(self) -> bool:
        return True

    def facts(self, text: Text) -> dict[str, str]:
        return {**super().facts(text), "changes": "retracts a pair with either of its rows"}

    @cached_property
    def left(self) -> CorrectedSide:
        return self._side(LEFT, self.high if isinstance(self.high, int) else None)

    @cached_property
    def right(self) -> CorrectedSide:
        return self._side(RIGHT, -self.low)

    def _side(self, name: str, reach: int | None) -> CorrectedSide:
        side = super()._side(name, reach)
        fields = {field.name: getattr(side, field.name) for field in attrs.fields(type(side))}
        return CorrectedSide(**fields, corrected=name in self.corrected)

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Emits retracted and new pairs, then rows that remain without a partner."""
        rows = arrivals[MAIN]
        timely = in_time(clock.input_before, self.allowed_lateness)
        late, net = rows.filter(~timely), summed(rows.filter(timely), [*self.schema, EVENT_TIME])
        net = net.with_columns((state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER))
        new_left, back_left = self._of(self.left, self._with_until(net.filter(~ON_THE_RIGHT)))
        new_right, back_right = self._of(self.right, net.filter(ON_THE_RIGHT))
        left = self._changes(state, self.left, new_left, back_left, pl.concat([new_right, back_right]))
        right = self._changes(state, self.right, new_right, back_right, pl.concat([new_left, back_left]))
        pairs = self._changed_pairs(left, right)
        parts = [pairs.select(*self.given, PANE_RETRACTED)]
        for side, changes in ((self.left, left), (self.right, right)):
            alone = self._write_changes(state, side, changes, pairs, clock)
            parts.append(alone.with_columns(pl.lit(False).alias(PANE_RETRACTED)))
        dropped = {LATE: len(late), UNMATCHED: len(left.unmatched) + len(right.unmatched)}
        return StepOutput(
            pl.concat(parts),
            len(rows),
            len(rows),
            len(rows) - sum(dropped.values()),
            {reason: count for reason, count in dropped.items() if count},
            self._dropped(late, left.unmatched, right.unmatched),
        )

    def _of(self, side: CorrectedSide, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Divides the arrivals of a side into (new rows, retractions), with the columns of its table."""
        new, retractions = rows.filter(~pl.col(PANE_RETRACTED)), rows.filter(PANE_RETRACTED)
        return side.with_holds(new), side.with_holds(retractions)

    def _changes(
        self,
        state: State,
        side: CorrectedSide,
        new: pl.DataFrame,
        retractions: pl.DataFrame,
        others: pl.DataFrame,
    ) -> SideChanges:
        """Finds the stored rows of a side that are retracted or may be partners of `others`, rows of the other side."""
        ranges = [self._range(others), _extent(retractions[side.spread.column])]
        bounds = [bound for between in ranges if between is not None for bound in between]
        if not bounds:
            return SideChanges(new, new.clear(), new.clear(), retractions)
        keys = pl.concat([others.select(self.keys), retractions.select(self.keys)])
        stored = side.left_of(state.scan(side, (min(bounds), max(bounds)), keys))
        content = [*side.schema, EVENT_TIME]
        kept, retracted, unmatched = without_retracted(stored, retractions, content)
        return SideChanges(new, retracted, kept, unmatched)

    def _changed_pairs(self, left: SideChanges, right: SideChanges) -> pl.DataFrame:
        """Returns the pairs of this step with the numbers of both rows; retractions, which have a flag, are first."""
        pairs = [
            pairs.with_columns(pl.lit(retracted).alias(PANE_RETRACTED))
            for rows, others, retracted in changed_pairs(left, right)
            for pairs in self._paired(rows, others)
        ]
        return pl.concat([self._nothing.with_columns(pl.lit(False).alias(PANE_RETRACTED)), *pairs])

    def _write_changes(
        self, state: State, side: CorrectedSide, changes: SideChanges, pairs: pl.DataFrame, clock: StepClock
    ) -> pl.DataFrame:
        """Stores the changes of a side, removes rows that nothing can change, and emits those without a partner."""
        number = pl.col(f"__{side.name}_number").alias(NUMBER)
        loaded = state.load(side, side.incoming(changes, pairs.select(*self.keys, number, weight())))
        rows = side.updated(loaded)
        over = side.deadlines(clock.now)[WATERMARK] <= clock.watermark
        state.write_back(side, rows.filter(~over))
        unmatched = rows.filter(over & (pl.col(PARTNERS) == 0)) if side.outer else rows.clear()
        other = RIGHT if side.name == LEFT else LEFT
        return unmatched.with_columns(
            side.stamp.alias(EVENT_TIME), pl.lit(None, self.schema[other]).alias(other)
        ).select(list(self.given))

    def _dropped(self, late: pl.DataFrame, *unmatched: pl.DataFrame) -> pl.DataFrame:
        """Returns the dropped arrivals with their reasons; an empty frame if they are not returned."""
        if not self.late:
            return pl.DataFrame()
        flag = pl.lit(True).alias(PANE_RETRACTED)
        lost = pl.concat([rows.with_columns(flag) for rows in unmatched], how="diagonal")
        return pl.concat([self.shown(late), self.shown(lost, UNMATCHED)])


def _extent(times: pl.Series) -> tuple[int, int] | None:
    """Returns the least and the greatest of these times (us); None if there are none."""
    return (times.min(), times.max()) if len(times) else None  # type: ignore[return-value]
