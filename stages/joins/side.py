"""The state table of one side of an interval join: its rows, as long as a partner of them may still arrive."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.joins.base import LEFT
from stages.operator import HOLD, PENDING, Spread, StateTable, Table
from stages.waiting import NUMBER
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

MATCHED: Final = "__matched"
GOES: Final = "__goes"
"""Column of a row: the watermark (us) at which it is removed."""
UNTIL: Final = "__until"
"""Column of a left row, if its interval is computed from the row: the last time (us) of a partner."""

_SECOND: Final = 1_000_000
_HOUR: Final = 3_600 * _SECOND


@attrs.frozen(slots=False, eq=False)
class Side(StateTable):
    """The rows of one side, in a column of structs. A partner may arrive up to `reach` (us) after the time of a row.

    If that is None, a partner may arrive until the time in the row's own `UNTIL`. `outer`: a row without a partner is
    emitted; with its own time if `own_time`, else with the time at which it was certain. `times_pairs`: pairs have the
    time of their row of this side. A row holds the watermark at the earliest time with which it may still be emitted:
    otherwise the result would be late downstream.
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
        until = {UNTIL: pl.Int64()} if self.reach is None else {}
        return pl.Schema({**self.schema, **own, **until})

    @cached_property
    def table(self) -> Table:
        """Spread by time: rows that are read together and removed together are stored together."""
        by_time = Spread(EVENT_TIME, _SECOND, max(self.span, 32 * _SECOND))
        return Table(
            "row",
            "waits for a partner",
            self.keys,
            (EVENT_TIME, GOES),
            self.rows,
            self.rows,
            spread=Spread(GOES, _SECOND, _HOUR) if self.reach is None else by_time,
            # Of an outer join, rows that come may be marked at once, and others are marked later.
            waits_until=None if self.outer else self.deadlines(Times()),
            visited_by_key=self.outer,
            name="" if self.name == LEFT else self.name,
        )

    @property
    def certain(self) -> pl.Expr:
        """The time (us) from which on no partner can arrive."""
        if self.reach is None:
            # A partner is not before a row's own lower bound, and neither is this.
            return pl.col(UNTIL).clip(MIN_TIME, MAX_TIME - self.lateness - 1) + self.lateness
        latest = self.reach + self.lateness
        return (pl.col(EVENT_TIME).clip(MIN_TIME + abs(latest), MAX_TIME - abs(latest) - 1) + latest).cast(
            pl.Int64
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """The time at which a row is removed."""
        return {WATERMARK: pl.col(GOES)}

    @property
    def stamp(self) -> pl.Expr:
        """The time of a row that is emitted without a partner: not before its own."""
        return pl.col(EVENT_TIME) if self.own_time else pl.max_horizontal(EVENT_TIME, self.certain)

    def with_holds(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Prepares rows without a partner for the table, with the holds of those that may be emitted alone."""
        return rows.with_columns(
            pl.lit(False).alias(MATCHED),
            (self.certain + 1).alias(GOES),
            pl.lit(0, pl.Int64).alias(PENDING),
            (self.stamp if self.outer else self._hold_of_pairs).alias(HOLD),
        ).select(list(self.rows))

    def with_partner(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Marks rows that have a partner now: they hold for further pairs only."""
        return rows.with_columns(pl.lit(True).alias(MATCHED), self._hold_of_pairs.alias(HOLD))

    @property
    def _hold_of_pairs(self) -> pl.Expr:
        return pl.col(EVENT_TIME) if self.times_pairs else pl.lit(None, pl.Int64)
