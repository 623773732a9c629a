"""The interval join: rows of two sides with equal keys, whose event times are within bounds of each other.

A row is kept as long as a partner may still come, which the watermark says; an outer join then gives it alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, Literal

import attrs
import polars as pl

from stages.dropped import LATE
from stages.joins.base import LEFT, ON_THE_RIGHT, RIGHT, TimeJoin
from stages.joins.pairs import pairs
from stages.operator import HOLD, MAIN, PENDING, Given, Kept, Spread, State, Table
from stages.progress.watermarks import Times, Watermarks
from stages.waiting import NUMBER
from windowing.columns import EVENT_TIME
from windowing.lateness import in_time
from windowing.time import MAX_TIME, MIN_TIME, format_duration
from windowing.triggers.base import WATERMARK

MATCHED: Final = "__matched"
GOES: Final = "__goes"
"""Of a row: the watermark (us) at which it goes."""

How = Literal["inner", "left", "right", "full"]
_SECOND: Final = 1_000_000


@attrs.frozen(slots=False, eq=False)
class Side(Kept):
    """The rows of one side, in a column of structs: for `reach` after its time a partner of a row may come (us).

    `outer`: one without a partner is given alone; `own_time`: with its own time, which it holds until then, or with
    the time at which that was certain.
    """

    name: str
    keys: tuple[str, ...]
    schema: pl.Schema
    reach: int
    lateness: int
    span: int
    outer: bool
    own_time: bool
    clocks = (WATERMARK,)

    @cached_property
    def rows(self) -> pl.Schema:
        """The columns of a row."""
        own = {
            EVENT_TIME: pl.Int64(),
            NUMBER: pl.Int64(),
            MATCHED: pl.Boolean(),
            GOES: pl.Int64(),
            PENDING: pl.Int64(),
            HOLD: pl.Int64(),
        }
        return pl.Schema({**self.schema, **own})

    @cached_property
    def table(self) -> Table:
        """Spread by time: those that are read together, and those that go together, lie together."""
        width = max(self.span, 32 * _SECOND)
        return Table(
            "row",
            "waits for a partner",
            self.keys,
            (EVENT_TIME, GOES),
            self.rows,
            self.rows,
            spread=Spread(EVENT_TIME, _SECOND, width),
            # Of an outer join, rows that come may be marked at once.
            waits_until=None if self.outer else self.deadlines(Times()),
            name="" if self.name == LEFT else self.name,
        )

    @property
    def certain(self) -> pl.Expr:
        """The time (us) from which on no partner can come."""
        latest = self.reach + self.lateness
        return (pl.col(EVENT_TIME).clip(MIN_TIME + abs(latest), MAX_TIME - abs(latest) - 1) + latest).cast(
            pl.Int64
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """When it goes."""
        return {WATERMARK: pl.col(GOES)}

    @property
    def stamp(self) -> pl.Expr:
        """The time of a row that is given alone: not before its own."""
        return pl.col(EVENT_TIME) if self.own_time else pl.max_horizontal(EVENT_TIME, self.certain)

    def with_holds(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Where rows hold that may yet be given alone."""
        alone = ~pl.col(MATCHED) if self.outer else pl.lit(False)
        return rows.with_columns(
            (self.certain + 1).alias(GOES),
            pl.lit(0, pl.Int64).alias(PENDING),
            pl.when(alone).then(self.stamp).alias(HOLD),
        ).select(list(self.rows))


@attrs.frozen(slots=False, eq=False)
class IntervalJoin(TimeJoin):
    """Pairs with `left time + low <= right time <= left time + high` (us), both ends included.

    A pair has the later of the two times. `own_time` has the sides of which a row without a partner is given with its
    own time.
    """

    low: int
    high: int
    how: How
    own_time: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """How, and within which bounds."""
        own = f", {' and '.join(self.own_time)} rows alone at their own time" if self.own_time else ""
        return f"{self.how} within {format_duration(self.low)} to {format_duration(self.high)}{own}"

    @property
    def tables(self) -> tuple[Kept, ...]:
        """Of each side the rows for which a partner may come."""
        return (self.left, self.right)

    @cached_property
    def left(self) -> Side:
        """A partner of one of time t may come until t + high."""
        return self._side(LEFT, self.high)

    @cached_property
    def right(self) -> Side:
        """A partner of one of time t may come until t - low."""
        return self._side(RIGHT, -self.low)

    def _side(self, name: str, reach: int) -> Side:
        outer, own = self.how in (name, "full"), name in self.own_time
        return Side(
            name,
            self.keys,
            self.columns(name),
            reach,
            self.allowed_lateness,
            self.high - self.low,
            outer,
            own,
        )

    def step(
        self,
        state: State,
        arrivals: Mapping[str, pl.DataFrame],
        before: Watermarks,
        then: Times,
        now: Times,
    ) -> Given:
        """Pairs of what has come with what is there and with each other, then rows without a partner."""
        rows = arrivals[MAIN]
        may_come = in_time(before.input, self.allowed_lateness)
        late, usable = rows.filter(~may_come), rows.filter(may_come)
        usable = usable.with_columns(
            (state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER),
            pl.lit(False).alias(MATCHED),
        )
        left = self.left.with_holds(usable.filter(~ON_THE_RIGHT))
        right = self.right.with_holds(usable.filter(ON_THE_RIGHT))
        old_left = _there(state, self.left, right, (-self.high, -self.low))
        old_right = _there(state, self.right, left, (self.low, self.high))
        found = [self._paired(left, old_right), self._paired(old_left, right), self._paired(left, right)]
        paired = pl.concat([pair for pairs_of in found for pair in pairs_of] or [self._nothing])
        alone = [
            self._left(state, self.left, left, right, (-self.high, -self.low), paired, now),
            self._left(state, self.right, right, left, (self.low, self.high), paired, now),
        ]
        panes = pl.concat([paired.select(list(self.given)), *alone])
        dropped = {LATE: len(late)} if len(late) else {}
        return Given(panes, len(rows), len(rows), len(usable), dropped, self.shown(late))

    def _paired(self, left: pl.DataFrame, right: pl.DataFrame) -> list[pl.DataFrame]:
        """The pairs, with the numbers of both."""
        found = []
        for ours, theirs in pairs(left, right, self.keys, self.low, self.high):
            one, other = left[ours], right[theirs]
            time = pl.max_horizontal(EVENT_TIME, "__time").alias(EVENT_TIME)
            both = one.select(*self.keys, LEFT, EVENT_TIME, pl.col(NUMBER).alias("__left_number")).hstack(
                other.select(
                    RIGHT, pl.col(EVENT_TIME).alias("__time"), pl.col(NUMBER).alias("__right_number")
                )
            )
            found.append(both.with_columns(time).select(list(self._nothing.schema)))
        return found

    def _left(
        self,
        state: State,
        side: Side,
        came: pl.DataFrame,
        others: pl.DataFrame,
        reach: tuple[int, int],
        paired: pl.DataFrame,
        now: Times,
    ) -> pl.DataFrame:
        """What is given alone of a side; the rows whose time is not up are kept, those with a partner marked."""
        visit = state.visit(side, came, _range(others, reach) if side.outer else None)
        rows = pl.concat([visit.rows, visit.incoming])
        if side.outer:
            marked = pl.col(NUMBER).is_in(paired[f"__{side.name}_number"].unique().implode())
            rows = side.with_holds(rows.with_columns((pl.col(MATCHED) | marked).alias(MATCHED)))
        over = side.deadlines(now)[WATERMARK] <= now.time(WATERMARK)
        state.leave(side, rows.filter(~over))
        alone = rows.filter(over & ~pl.col(MATCHED)) if side.outer else rows.clear()
        other = RIGHT if side.name == LEFT else LEFT
        return alone.with_columns(
            side.stamp.alias(EVENT_TIME), pl.lit(None, self.schema[other]).alias(other)
        ).select(list(self.given))

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        numbers = {"__left_number": pl.Int64(), "__right_number": pl.Int64()}
        return pl.DataFrame(schema={**self.given, **numbers})


def _there(state: State, side: Side, others: pl.DataFrame, reach: tuple[int, int]) -> pl.DataFrame:
    """The rows of a side that were there before, and may be partners of these of the other one."""
    between = _range(others, reach)
    return side.table.no_rows if between is None else state.peek(side, between)


def _range(others: pl.DataFrame, reach: tuple[int, int]) -> tuple[int, int] | None:
    """From when to when partners of these are."""
    if others.is_empty():
        return None
    times = others[EVENT_TIME]
    return int(times.min()) + reach[0], int(times.max()) + reach[1]  # type: ignore[arg-type]
