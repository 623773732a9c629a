"""The interval join: joins rows of two sides with equal keys whose event times are within bounds of each other.

A row is stored until the watermark says that no partner can still arrive; an outer join then emits it without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, Literal, Protocol

import attrs
import polars as pl
from polars.exceptions import PolarsError

from stages.clock import StepClock
from stages.dropped import LATE
from stages.errors import ResultError
from stages.joins.base import LEFT, ON_THE_RIGHT, RIGHT, TimeJoin
from stages.joins.pairs import pairs
from stages.joins.side import MATCHED, UNTIL, Side
from stages.operator import MAIN, Given, State, StateTable
from stages.waiting import NUMBER
from windowing.clocks import WATERMARK
from windowing.columns import EVENT_TIME
from windowing.lateness import in_time
from windowing.time import MAX_TIME, MIN_TIME, format_duration

How = Literal["inner", "left", "right", "full"]
TimeOf = Literal["latest", "left", "right"]
"""The event time of a result: the latest possible one, or that of its row of one side."""
_ALWAYS: Final = (MIN_TIME, MAX_TIME)
_LONGEST: Final = 2**61
"""The longest duration (us) that is computed from a row: added to a time, it does not overflow."""


class Length(Protocol):
    """A duration that is computed from each left row."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        """Returns a duration for each row."""


@attrs.frozen(slots=False, eq=False)
class IntervalJoin(TimeJoin):
    """Pairs with `left time + low <= right time <= left time + high` (us), both ends included.

    `high` may be a length computed from each left row; a row with null matches nothing. With `time_of="latest"`, a pair
    has the later of the two times, and a row without a partner the time from which on none can arrive. With "left" or
    "right", a pair has the time of its row of that side, and a row without a partner its own.
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
    def tables(self) -> tuple[StateTable, ...]:
        return (self.left, self.right)

    @cached_property
    def left(self) -> Side:
        """The left rows. A partner of a row of time t may arrive until t + high."""
        return self._side(LEFT, self.high if isinstance(self.high, int) else None)

    @cached_property
    def right(self) -> Side:
        """The right rows. A partner of a row of time t may arrive until t - low."""
        return self._side(RIGHT, -self.low)

    def _side(self, name: str, reach: int | None) -> Side:
        return Side(
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

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> Given:
        """Emits pairs of new rows with stored rows and with each other, then rows that remain without a partner."""
        rows = arrivals[MAIN]
        may_come = in_time(clock.input_before, self.allowed_lateness)
        late, usable = rows.filter(~may_come), rows.filter(may_come)
        numbered = (state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER)
        usable = usable.with_columns(numbered)
        left = self.left.with_holds(self._with_until(usable.filter(~ON_THE_RIGHT)))
        right = self.right.with_holds(usable.filter(ON_THE_RIGHT))
        old_left, old_right = self._there(state, self.left, right), self._there(state, self.right, left)
        found = [self._paired(left, old_right), self._paired(old_left, right), self._paired(left, right)]
        paired = pl.concat([pair for pairs_of in found for pair in pairs_of] or [self._nothing])
        alone = [
            self._left(state, self.left, left, old_left, paired, clock),
            self._left(state, self.right, right, old_right, paired, clock),
        ]
        panes = pl.concat([paired.select(list(self.given)), *alone])
        dropped = {LATE: len(late)} if len(late) else {}
        return Given(panes, len(rows), len(rows), len(usable), dropped, self.shown(late))

    def _paired(self, left: pl.DataFrame, right: pl.DataFrame) -> list[pl.DataFrame]:
        """The pairs, with the numbers of both rows."""
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
        """The time (us) of a pair, whose left row has `EVENT_TIME` and whose right row has `__time`."""
        left, right = pl.col(EVENT_TIME), pl.col("__time")
        times = {"latest": pl.max_horizontal(left, right), LEFT: left, RIGHT: right}
        return times[self.time_of].alias(EVENT_TIME)

    def _left(
        self,
        state: State,
        side: Side,
        came: pl.DataFrame,
        old: pl.DataFrame,
        paired: pl.DataFrame,
        clock: StepClock,
    ) -> pl.DataFrame:
        """Stores the rows of a side that may still get a partner, and returns the others that never had one."""
        loaded = state.load(side, self._marked(side, came, old, paired) if side.outer else came)
        rows = loaded.rows
        if side.outer:  # What is marked takes the place of what was not.
            rows = rows.join(loaded.incoming, on=[*self.keys, NUMBER], how="anti", nulls_equal=True)
        rows = pl.concat([rows, loaded.incoming])
        over = side.deadlines(clock.now)[WATERMARK] <= clock.watermark
        state.write_back(side, rows.filter(~over))
        alone = rows.filter(over & ~pl.col(MATCHED)) if side.outer else rows.clear()
        other = RIGHT if side.name == LEFT else LEFT
        return alone.with_columns(
            side.stamp.alias(EVENT_TIME), pl.lit(None, self.schema[other]).alias(other)
        ).select(list(self.given))

    def _marked(
        self, side: Side, came: pl.DataFrame, old: pl.DataFrame, paired: pl.DataFrame
    ) -> pl.DataFrame:
        """The new rows, and stored rows with their first partner; each is marked if it has one."""
        id = [*self.keys, NUMBER]
        partners = paired.select(*self.keys, pl.col(f"__{side.name}_number").alias(NUMBER))
        alone = came.join(partners, on=id, how="anti")
        marked = pl.concat([came, old.filter(~pl.col(MATCHED))]).join(partners, on=id, how="semi")
        return pl.concat([alone, side.with_partner(marked)])

    @property
    def _last(self) -> pl.Expr:
        """The last time (us) of a partner of a left row."""
        return pl.col(EVENT_TIME) + self.high if isinstance(self.high, int) else pl.col(UNTIL)

    def _with_until(self, left: pl.DataFrame) -> pl.DataFrame:
        """Adds the end of the interval to left rows if it is computed from each row."""
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
        """The first and last time (us) of the partners of these rows of one side, as their table is spread by it."""
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

    def _there(self, state: State, side: Side, came: pl.DataFrame) -> pl.DataFrame:
        """The stored rows of a side that may be partners of these rows of the other side."""
        between = self._range(came)
        return side.table.no_rows if between is None else state.scan(side, between, came.select(self.keys))

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        numbers = {"__left_number": pl.Int64(), "__right_number": pl.Int64()}
        return pl.DataFrame(schema={**self.given, **numbers})
