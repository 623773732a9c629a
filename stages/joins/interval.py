"""The interval join: joins rows of two sides that have equal keys and event times within bounds of each other.

A row is stored until, by the watermark, no partner can arrive any more. If it had none, an outer join then emits it.

    left  row of time t       partners      t + low <= right time <= t + high
    right row of time t       partners      t - high <= left time <= t - low

    event time   ----- t + low ====== t + high -------------- >
                                            |<- lateness ->| a left row of time t is removed

    step    new left  x stored right        each pair is made once, in the step in which the second row arrives
            stored left x new right
            new left  x new right
            then: rows that are removed and never had a partner are emitted (outer join)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, Protocol

import attrs
import polars as pl
from polars.exceptions import PolarsError

from stages.clock import StepClock
from stages.dropped import LATE
from stages.errors import ResultError
from stages.joins.base import LEFT, ON_THE_RIGHT, RIGHT, TimeJoin
from stages.joins.side import MATCHED, UNTIL, JoinSide
from stages.operator import MAIN, StepOutput
from stages.pending_rows import NUMBER
from stages.state_tables import State, StateTable, Table
from windowing.clocks import WATERMARK
from windowing.columns import EVENT_TIME
from windowing.lateness import in_time
from windowing.time import MAX_TIME, MIN_TIME, format_duration

if TYPE_CHECKING:
    from stages.joins.matched import MatchedRows

How = Literal["inner", "left", "right", "full"]
TimeOf = Literal["latest", "left", "right"]
"""The event time of a result: the latest possible one, or the time of its row of one side."""
_ALWAYS: Final = (MIN_TIME, MAX_TIME)
_LONGEST: Final = 2**61
"""The maximum of a duration (us) that is computed from a row, so that its sum with a time does not overflow."""


class Length(Protocol):
    """An upper bound of the interval that is computed from each left row."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of left rows that the bound is computed from."""

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        """Computes the duration for each row of a frame of left rows."""


@attrs.frozen(slots=False, eq=False)
class IntervalJoin(TimeJoin):
    """The join of rows with equal keys and `left time + low <= right time <= left time + high`.

    Attributes:
        low: The lower bound (us, inclusive).
        high: The upper bound (us, inclusive), or a duration that is computed from each left row. If it is null, the row
            matches nothing.
        how: "inner" for pairs only; "left", "right" or "full" to emit rows of this side, or of both, without a partner.
        time_of: The event time of results. With "latest", that of a pair is the later of its two times, and that of a
            row without a partner is the time from which none can arrive. With "left" or "right", that of a pair is the
            time of its row of this side, and that of a row without a partner is its own.
    """

    low: int
    high: int | Length
    how: How
    time_of: TimeOf = "latest"

    @property
    def text(self) -> str:
        time = "" if self.time_of == "latest" else f", at the time of the {self.time_of} row"
        high = format_duration(self.high) if isinstance(self.high, int) else self.high
        return f"{self.how} within {format_duration(self.low)} to {high}{time}"

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.left, self.right, *self._matched.values())

    @cached_property
    def _matched(self) -> dict[str, MatchedRows]:
        """The state tables of matched rows, by side."""
        from stages.joins.matched import MatchedRows  # only outer joins need it

        return {side.name: MatchedRows(side) for side in (self.left, self.right) if side.marks_apart}

    @cached_property
    def left(self) -> JoinSide:
        """The state table of left rows. The last possible partner of a row of time t has time t + high."""
        return self._side(LEFT, self.high if isinstance(self.high, int) else None)

    @cached_property
    def right(self) -> JoinSide:
        """The state table of right rows. The last possible partner of a row of time t has time t - low."""
        return self._side(RIGHT, -self.low)

    def _side(self, name: str, reach: int | None) -> JoinSide:
        return JoinSide(
            name,
            self.keys,
            self.columns(name),
            reach,
            self.allowed_lateness,
            self.high - self.low if isinstance(self.high, int) else 0,
            outer=self.how in (name, "full"),
            own_time=self.time_of != "latest",
            times_pairs=self.time_of == name,
        )

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Emits pairs of new rows with stored rows and with each other, then rows that remain without a partner."""
        rows = arrivals[MAIN]
        timely = in_time(clock.input_before, self.allowed_lateness)
        late, usable = rows.filter(~timely), rows.filter(timely)
        # Numbers continue from step to step. Key and number identify a row of a table.
        numbered = (state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER)
        usable = usable.with_columns(numbered)
        left = self.left.with_holds(self._with_until(usable.filter(~ON_THE_RIGHT)))
        right = self.right.with_holds(usable.filter(ON_THE_RIGHT))
        old_left = self._stored_partners(state, self.left, right)
        old_right = self._stored_partners(state, self.right, left)
        # Tables lack the new rows until `_write_side` writes them, so a pair is in exactly one of the three products.
        found = [self._paired(left, old_right), self._paired(old_left, right), self._paired(left, right)]
        paired = pl.concat([pair for pairs_of in found for pair in pairs_of] or [self._nothing])
        unmatched = [
            self._write_side(state, self.left, left, old_left, paired, clock),
            self._write_side(state, self.right, right, old_right, paired, clock),
        ]
        panes = pl.concat([paired.select(list(self.given)), *unmatched])
        dropped = {LATE: len(late)} if len(late) else {}
        return StepOutput(panes, len(rows), len(rows), len(usable), dropped, self.shown(late))

    def _paired(self, left: pl.DataFrame, right: pl.DataFrame) -> list[pl.DataFrame]:
        """Computes all pairs of these left and right rows, with the numbers of both, as several frames."""
        from stages.joins.pairs import pairs

        found = []
        first, last = pl.col(EVENT_TIME) + self.low, self._last
        for ours, theirs in pairs(left, right, self.keys, first, last):
            one, other = left[ours], right[theirs]
            both = one.select(*self.keys, LEFT, EVENT_TIME, pl.col(NUMBER).alias("__left_number")).hstack(
                other.select(
                    RIGHT, pl.col(EVENT_TIME).alias("__time"), pl.col(NUMBER).alias("__right_number")
                )
            )
            found.append(both.with_columns(self._time_of_pair).select(list(self._nothing.schema)))
        return found

    @property
    def _time_of_pair(self) -> pl.Expr:
        """An expression for the event time (us) of a pair. The left time is `EVENT_TIME`, the right time `__time`."""
        left, right = pl.col(EVENT_TIME), pl.col("__time")
        times = {"latest": pl.max_horizontal(left, right), LEFT: left, RIGHT: right}
        return times[self.time_of].alias(EVENT_TIME)

    def _write_side(
        self,
        state: State,
        side: JoinSide,
        new: pl.DataFrame,
        old: pl.DataFrame,
        paired: pl.DataFrame,
        clock: StepClock,
    ) -> pl.DataFrame:
        """Stores the new rows of a side (`new`), removes rows that can match no more, and emits unmatched ones.

        `old` are the stored rows of the side that may be in `paired`, the pairs of this step.
        """
        if not side.outer:
            self._written(state, side, new, clock)
            return self._nothing.select(list(self.given))
        partners = paired.select(*self.keys, pl.col(f"__{side.name}_number").alias(NUMBER))
        # The numbers of new rows are greater than those of all stored rows, so no key is needed to find them.
        written = side.with_partners(new, pl.col(NUMBER).is_in(partners[NUMBER].implode()))
        matched = old.filter(~pl.col(MATCHED)).join(partners, on=[*self.keys, NUMBER], how="semi")
        if not side.marks_apart:
            written = pl.concat([written, side.with_partners(matched, pl.lit(True))])
        removed = self._written(state, side, written, clock).filter(~pl.col(MATCHED))
        if side.marks_apart:
            removed = self._matched[side.name].update(state, matched, removed, clock)
        other = RIGHT if side.name == LEFT else LEFT
        return removed.with_columns(
            side.stamp.alias(EVENT_TIME), pl.lit(None, self.schema[other]).alias(other)
        ).select(list(self.given))

    def _written(self, state: State, side: JoinSide, rows: pl.DataFrame, clock: StepClock) -> pl.DataFrame:
        """Stores rows of a side, instead of earlier versions, and returns the rows that can match no more, which it
        removes.
        """
        loaded = state.load(side, rows)
        earlier = loaded.rows
        if side.outer and not side.marks_apart:
            on = [*self.keys, NUMBER]
            earlier = earlier.join(loaded.incoming, on=on, how="anti", nulls_equal=True)
        rows = pl.concat([earlier, loaded.incoming])
        over = side.deadlines(clock.now)[WATERMARK] <= clock.watermark
        state.write_back(side, rows.filter(~over))
        return rows.filter(over)

    @property
    def _last(self) -> pl.Expr:
        """An expression for the last possible time (us) of a partner of a left row."""
        return pl.col(EVENT_TIME) + self.high if isinstance(self.high, int) else pl.col(UNTIL)

    def _with_until(self, left: pl.DataFrame) -> pl.DataFrame:
        """Adds the column UNTIL to left rows if the upper bound is computed from each row."""
        if isinstance(self.high, int):
            return left
        try:
            length = self.high.evaluate(left[LEFT].struct.unnest()).dt.total_microseconds()
        except PolarsError as error:
            reason = str(error).partition("\n")[0]
            raise ResultError(f"the upper bound {self.high} of within= fails: {reason}") from error
        longest = length.fill_null(self.low - 1).clip(self.low - 1, _LONGEST)
        return left.with_columns((pl.col(EVENT_TIME) + longest).alias(UNTIL))

    def _range(self, rows: pl.DataFrame) -> tuple[int, int] | None:
        """Returns the range (us, inclusive) of the times by which the partners of these rows are spread in their table.

        All rows must be of one side. None if there are no rows.
        """
        if rows.is_empty():
            return None
        if LEFT in rows.columns:
            first, last = pl.col(EVENT_TIME) + self.low, self._last
        elif isinstance(self.high, int):
            first, last = pl.col(EVENT_TIME) - self.high, pl.col(EVENT_TIME) - self.low
        else:
            return _ALWAYS
        least, most = rows.select(first.min(), last.max().alias("last")).row(0)
        return least, most

    def _stored_partners(self, state: State, side: JoinSide, new: pl.DataFrame) -> pl.DataFrame:
        """Reads the stored rows of a side that may be partners of the rows `new` of the other side."""
        between = self._range(new)
        return side.table.no_rows if between is None else state.scan(side, between, new.select(self.keys))

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        numbers = {"__left_number": pl.Int64(), "__right_number": pl.Int64()}
        return pl.DataFrame(schema={**self.given, **numbers})
