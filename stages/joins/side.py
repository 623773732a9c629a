"""The state table of one side of an interval join: each row is stored as long as a partner of it may still arrive.

event time    t ------------ t + reach ------- certain = t + reach + lateness ---- GOES = certain + 1
              |              last time of a    from here on no partner             the row is removed; an outer
              the row        partner           can arrive                          join emits it, if not MATCHED
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.joins.base import LEFT
from stages.operator import HOLD, PENDING
from stages.pending_rows import NUMBER
from stages.state_tables import BucketFacts, KeyedTable, Spread, StateTable, TimeTable
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

MATCHED: Final = "__matched"
"""A column of each row: true if it has been in a pair. Set only in sides of outer joins. If `JoinSide.marks_apart`, it
is set only in the step in which the row arrives, and later pairs are in `stages.joins.matched`.
"""
GOES: Final = "__goes"
"""A column of each row: the watermark (us) at which it is removed."""
UNTIL: Final = "__until"
"""A column of left rows whose upper bound is computed from the row: the last possible time (us) of a partner."""

_SECOND: Final = 1_000_000
_HOUR: Final = 3_600 * _SECOND


@attrs.frozen(slots=False, eq=False)
class JoinSide(StateTable[TimeTable | KeyedTable]):
    """The state table of one side of an interval join.

    A row holds the watermark at the earliest event time with which it may still be emitted, in a pair or without a
    partner. Otherwise the result would be late downstream.

    Attributes:
        name: The side, "left" or "right".
        keys: The key columns.
        schema: The keys and the struct of the side.
        reach: The last time of a partner, relative to the time of a row (us). If None, it is the row's column `UNTIL`.
        lateness: The allowed lateness (us).
        span: The length of the interval of partners (us).
        outer: True if a row without a partner is emitted when it is removed.
        own_time: True if such a row is emitted with its own event time, false for the time from which no partner can
            arrive.
        times_pairs: True if a pair has the event time of its row of this side.
    """

    name: str
    keys: tuple[str, ...]
    schema: pl.Schema
    reach: int | None
    lateness: int
    span: int
    outer: bool
    own_time: bool
    times_pairs: bool
    clocks = (WATERMARK,)

    @property
    def marks(self) -> Mapping[str, tuple[pl.DataType, object]]:
        """The columns with the partners of a row: their types, and their values without a partner."""
        return {MATCHED: (pl.Boolean(), False)}

    @cached_property
    def rows(self) -> pl.Schema:
        """The schema of this state table: the side's struct, system columns and hold."""
        own = {
            EVENT_TIME: pl.Int64(),
            NUMBER: pl.Int64(),
            **{name: dtype for name, (dtype, _) in self.marks.items()},
            GOES: pl.Int64(),
            PENDING: pl.Int64(),
            HOLD: pl.Int64(),
        }
        until = {UNTIL: pl.Int64()} if self.reach is None else {}
        return pl.Schema({**self.schema, **own, **until})

    @property
    def spread(self) -> Spread:
        """The placement of rows by time, so that rows that are read and removed together are stored together."""
        if self.reach is None:
            return Spread(GOES, _SECOND, _HOUR)
        return Spread(EVENT_TIME, _SECOND, max(self.span, 32 * _SECOND))

    @cached_property
    def table(self) -> TimeTable | KeyedTable:
        facts: BucketFacts = {
            "row": "row",
            "waits": "waits for a partner",
            "keys": self.keys,
            "bounds": (EVENT_TIME, GOES),
            "schema": self.rows,
            "incoming": self.rows,
            "ends_silently": not self.outer,
        }
        name = "" if self.name == LEFT else self.name
        # MATCHED of stored rows of an outer join may be set later, which is an update by key, and earlier versions
        # always did so. Other rows never change.
        if self.outer:
            return KeyedTable(**facts, spread=self.spread, name=name)
        return TimeTable(
            **facts,
            spread=self.spread,
            name=name,
            waits_until=self.deadlines(Times()),
            overstay=self.overstay,
        )

    @property
    def overstay(self) -> int:
        """The time (us) for which rows may be stored longer than they are needed; see `TimeTable`."""
        return 0 if self.reach is None else max(0, self.reach + self.lateness)

    @property
    def marks_apart(self) -> bool:
        """True if the first partner of a stored row changes nothing in the row, so that it is stored apart from it.

        Otherwise the row holds the output watermark only until then: at its own time, which pairs do not have. If it is
        emitted at the time from which no partner can arrive, its hold is never before the watermark.
        """
        return self.outer and (self.times_pairs or not self.own_time)

    @property
    def certain(self) -> pl.Expr:
        """An expression for the time (us) from which no partner of a row can arrive."""
        if self.reach is None:
            # If the interval of a row is empty, UNTIL is just before its lower bound (`IntervalJoin._with_until`).
            return pl.col(UNTIL).clip(MIN_TIME, MAX_TIME - self.lateness - 1) + self.lateness
        latest = self.reach + self.lateness
        return (pl.col(EVENT_TIME).clip(MIN_TIME + abs(latest), MAX_TIME - abs(latest) - 1) + latest).cast(
            pl.Int64
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns the deadline of each row: it is due, and removed, when no partner can arrive any more, by the
        watermark.
        """
        return {WATERMARK: pl.col(GOES)}

    @property
    def stamp(self) -> pl.Expr:
        """An expression for the event time (us) with which a row without a partner is emitted."""
        return pl.col(EVENT_TIME) if self.own_time else pl.max_horizontal(EVENT_TIME, self.certain)

    def with_holds(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Converts arrivals of this side to rows of the table, with their holds, as rows without a partner yet."""
        marks = [pl.lit(value, dtype).alias(name) for name, (dtype, value) in self.marks.items()]
        return rows.with_columns(
            *marks,
            (self.certain + 1).alias(GOES),
            pl.lit(0, pl.Int64).alias(PENDING),
            (self.stamp if self.outer else self._hold_of_pairs).alias(HOLD),
        ).select(list(self.rows))

    def with_partners(self, rows: pl.DataFrame, matched: pl.Expr) -> pl.DataFrame:
        """Sets MATCHED in the rows for which `matched` is true. Their hold is then only for further pairs."""
        hold = pl.when(matched).then(self._hold_of_pairs).otherwise(HOLD)
        return rows.with_columns(pl.col(MATCHED) | matched, hold.alias(HOLD))

    @property
    def _hold_of_pairs(self) -> pl.Expr:
        return pl.col(EVENT_TIME) if self.times_pairs else pl.lit(None, pl.Int64)
