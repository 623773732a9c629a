"""The state table of snapshots: for each cell and step, what is needed to process the rows of the step again.

    allowed lateness 5 s          step until 10 s          step until 16 s
    snapshots of a cell           state | rows | emitted   state | rows | emitted
    a correction at 8 s           begins with the state before the first step that ends after 8 s, processes the rows of
                                  all steps from there on, and replaces their snapshots by one

A snapshot is removed when no row before the end of its step can be corrected any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import attrs
import polars as pl

from stages.operator import HOLD, PENDING
from stages.state_tables import Spread, State, StateTable, TimeTable
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS
from windowing.time import MAX_TIME

ORDINAL: Final = "__ordinal"
"""A column of each snapshot: a number that is greater than those of the snapshots that it replaces."""
REPLACES: Final = "__replaces"
"""A column of each snapshot: earlier snapshots of the cell are void if their steps end after this time (us)."""
ENDS: Final = "__ends"
"""A column of each snapshot: the watermark (us) after its step."""
BEFORE: Final = "__before"
"""A column of each snapshot: the state of the cell before the step, a struct; null if the cell did not exist."""
ROWS: Final = "__rows"
"""A column of each snapshot: the rows that the step processed, a list of structs."""
EMITTED: Final = "__emitted"
"""A column of each snapshot: the rows that the step emitted, a list of structs."""
FIRINGS: Final = "__firings"
"""A column of each snapshot: the firings of timers that became dead letters, a list of structs."""
FIRING: Final = pl.Schema({"__timer": pl.String(), "__tag": pl.String(), "__time": pl.Int64()})
"""The columns of a firing: the name of its timer, the tag if it belongs to a family, and its time (us)."""
FAILED: Final = "__failed"
"""A column of each row of a snapshot: true if the row is a dead letter."""

_SECOND: Final = 1_000_000


@attrs.frozen(eq=False)
class Past:
    """The content of the snapshots that a step replaces.

    Attributes:
        ids: The keys and windows of the cells that have such snapshots.
        cells: The state of these cells before the first of their snapshots. Cells that did not exist are missing.
        rows: The rows of the snapshots, with their windows.
        emitted: The rows that were emitted, with their windows.
        firings: The firings that became dead letters, each with key and window.
    """

    ids: pl.DataFrame
    cells: pl.DataFrame
    rows: pl.DataFrame
    emitted: pl.DataFrame
    firings: frozenset[tuple[object, ...]]


@attrs.frozen(slots=False, eq=False)
class Snapshots(StateTable[TimeTable]):
    """The state table of snapshots.

    Attributes:
        keys: The key columns.
        row: The columns of a row that is processed.
        cell: The columns of a cell, its keys and window included.
        emitted: The columns of an emitted row.
        allowed_lateness: The time (us) for which a row may be corrected.
    """

    keys: tuple[str, ...]
    row: pl.Schema
    cell: pl.Schema
    emitted: pl.Schema
    allowed_lateness: int
    clocks = (WATERMARK,)

    @property
    def id(self) -> list[str]:
        """The columns that identify a cell."""
        return [*self.keys, *WINDOW_COLUMNS]

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns of a snapshot."""
        ids = {name: self.cell[name] for name in self.id}
        state = {name: dtype for name, dtype in self.cell.items() if name not in ids}
        time = {EVENT_TIME: pl.Int64()}
        return pl.Schema(
            {
                **ids,
                **dict.fromkeys((ORDINAL, REPLACES, ENDS), pl.Int64()),
                BEFORE: pl.Struct(state),
                ROWS: pl.List(pl.Struct({**self.row, **time, FAILED: pl.Boolean()})),
                EMITTED: pl.List(pl.Struct({**self.emitted, **time})),
                FIRINGS: pl.List(pl.Struct(FIRING)),
                **dict.fromkeys((PENDING, HOLD), pl.Int64()),
            }
        )

    @cached_property
    def table(self) -> TimeTable:
        return TimeTable(
            row="snapshot",
            waits="may be corrected",
            keys=self.keys,
            bounds=(ENDS, ENDS),
            schema=self.schema,
            incoming=self.schema,
            spread=Spread(ENDS, _SECOND, max(32 * _SECOND, self.allowed_lateness)),
            waits_until=self.deadlines(Times()),
            name="snapshots",
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns the deadline of each snapshot: it is due, and removed, when no row before ENDS can be corrected."""
        latest = MAX_TIME - self.allowed_lateness
        return {WATERMARK: pl.col(ENDS).clip(upper_bound=latest) + self.allowed_lateness}

    def find(self, state: State, corrected: pl.DataFrame, watermark: int) -> Past:
        """Reads the snapshots that corrections replace. `corrected` has the id of each cell, and in `REPLACES` the
        time (us) of its earliest correction.
        """
        found = self.table.no_rows
        if len(corrected):
            first: int = corrected[REPLACES].min()  # type: ignore[assignment]
            found = self._valid(state.scan(self, (first, watermark), corrected.select(self.keys)), corrected)
        begin = found.group_by(self.id, maintain_order=True).agg(pl.col(BEFORE).first())
        fields = [name for name in self.cell if name not in self.id]
        cells = begin.filter(pl.col(BEFORE).is_not_null()).select(
            *self.id, pl.col(BEFORE).struct.field(*fields)
        )
        return Past(
            begin.select(self.id),
            cells.select(list(self.cell)),
            self._exploded(found, ROWS, WINDOW_COLUMNS),
            self._exploded(found, EMITTED, WINDOW_COLUMNS),
            frozenset(self._exploded(found, FIRINGS, self.id).rows()),
        )

    def _valid(self, found: pl.DataFrame, corrected: pl.DataFrame) -> pl.DataFrame:
        """Returns the snapshots that end after the earliest correction of their cell, without void ones, by time."""
        same: dict[str, Any] = {"on": self.id, "nulls_equal": True}
        since = corrected.select(*self.id, pl.col(REPLACES).alias("__since"))
        late = found.join(since, **same).filter(pl.col(ENDS) > pl.col("__since")).drop("__since")
        replacing = late.filter(pl.col(REPLACES).is_not_null()).select(
            *self.id, pl.col(ORDINAL).alias("__later"), pl.col(REPLACES).alias("__after")
        )
        replaced = (pl.col(ORDINAL) < pl.col("__later")) & (pl.col(ENDS) > pl.col("__after"))
        void = late.select(*self.id, ORDINAL, ENDS).join(replacing, **same).filter(replaced)
        return late.join(void, on=[*self.id, ORDINAL, ENDS], how="anti", nulls_equal=True).sort(ENDS)

    def _exploded(self, found: pl.DataFrame, column: str, beside: Sequence[str]) -> pl.DataFrame:
        """Returns the structs of a list column as rows, with these columns of their snapshot."""
        fields = self.schema[column].inner.fields  # type: ignore[attr-defined]
        items = found.select(*beside, column).explode(column, keep_nulls=False, empty_as_null=False)
        return items.select(*beside, pl.col(column).struct.field(*(field.name for field in fields)))
