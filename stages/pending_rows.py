"""Pending rows: rows that wait until the watermark has passed their event time, to be processed in order of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.changes import summed
from stages.operator import HOLD, PENDING
from stages.packed import sorted_by
from stages.state_tables import Spread, StateTable, TimeTable
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.time import MAX_TIME

WAITING: Final = "waiting"
"""The name of the state table of pending rows."""

NUMBER: Final = "__number"
"""The column with the number of a row in order of arrival."""

_SECOND: Final = 1_000_000
_LIVE: Final = 3600 * _SECOND
"""The assumed time for which a row waits (us): an hour. It determines the span of time of a bucket."""


@attrs.frozen(slots=False, eq=False)
class PendingRows(StateTable[TimeTable]):
    """The state table of pending rows. Once the watermark has passed a row's time, no earlier row can arrive.

    `columns` is the schema of the rows as they arrive, including the columns `keys`. `delay` (us) is the duration for
    which rows wait longer.
    """

    keys: tuple[str, ...]
    columns: pl.Schema
    delay: int = 0
    clocks = (WATERMARK,)

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns of a row in the table: those of the arrival, its window, number and hold."""
        own = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS, NUMBER, PENDING, HOLD), pl.Int64())
        return pl.Schema({**self.columns, **own})

    @cached_property
    def table(self) -> TimeTable:
        return TimeTable(
            row="row",
            waits="waits for its turn in the order of time",
            keys=self.keys,
            bounds=(EVENT_TIME, EVENT_TIME),
            schema=self.schema,
            incoming=self.schema,
            spread=Spread(EVENT_TIME, _SECOND, _LIVE),
            waits_until=self.deadlines(Times()),
            name=WAITING,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns the deadline of each row: a row of time t is due at t + 1 us, since further rows of time t may arrive
        before.
        """
        if not self.delay:
            return {WATERMARK: pl.col(EVENT_TIME) + 1}
        longest = self.delay + 1
        return {WATERMARK: pl.col(EVENT_TIME).clip(upper_bound=MAX_TIME - longest) + longest}


def left_of(rows: pl.DataFrame, columns: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Removes rows that are retracted, with their retractions. Returns (the remaining rows without the flag,
    retractions without a row to retract).

    The remaining rows get new numbers in the column `NUMBER`, by the order of their values in `columns`, nulls first.
    Their order of arrival has no meaning, since a row may have replaced an earlier one.
    """
    there = [name for name in (EVENT_TIME, *WINDOW_COLUMNS) if name in rows.columns]
    net = summed(rows, [*columns, *there])
    unmatched = net.filter(PANE_RETRACTED)
    left = net.filter(~pl.col(PANE_RETRACTED)).drop(PANE_RETRACTED)
    ordered = sorted_by(left, by_values(left.select(columns).schema))
    return ordered.with_columns(pl.int_range(pl.len()).alias(NUMBER)), unmatched


def by_values(schema: pl.Schema) -> list[pl.Expr]:
    """Returns expressions that sort rows by the values of these columns, null first."""
    # A sort by columns is several times as fast as one by a struct, which only nested columns need.
    return [pl.struct(name) if dtype.is_nested() else pl.col(name) for name, dtype in schema.items()]
