"""The operator that keeps the newest row of each key of a table, and emits what its log changes.

log       1: a      1: b                       1 deleted
emitted   1: a      1: a retracted, 1: b       1: b retracted
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Final

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Text
from stages.frames import split
from stages.operator import HOLD, PENDING, Refused
from stages.pending_rows import NUMBER
from stages.process.keyed import CELL, Keyed, Result
from stages.state_tables import KeyedTable, Loaded, State, StateTable
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.lateness import collected_at

NOT_SENT: Final = "__debezium_unavailable_value"
"""The value that Debezium writes for a large value of the table that did not change."""

_PLACE: Final = "__place"
"""A column of rows during a step: the position of the row in order of key and arrival."""


@attrs.frozen(slots=False, eq=False)
class NewestRows(StateTable[KeyedTable]):
    """The state table of the newest row of each key that was not deleted."""

    keys: tuple[str, ...]
    schema: pl.Schema
    clocks = (WATERMARK,)

    @cached_property
    def table(self) -> KeyedTable:
        own = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS, PENDING, HOLD), pl.Int64())
        return KeyedTable(
            row="key",
            waits="has a row",
            keys=self.keys,
            bounds=WINDOW_COLUMNS,
            schema=pl.Schema({**self.schema, **own}),
            incoming=pl.Schema({key: self.schema[key] for key in self.keys}),
            ends_silently=True,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: collected_at(0)}

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows


@attrs.frozen(slots=False, eq=False)
class NewestOfKey(Keyed):
    """The operator that replaces the row of a key by each row that arrives, and removes it by a retraction.

    A row retracts the row that it replaces. Of a retraction, only the key is read. A text that was not sent is that of
    the row before.
    """

    kind: ClassVar[str] = "newest of key"

    @cached_property
    def cells(self) -> NewestRows:
        return NewestRows(self.keys, self.schema)

    @property
    def gives_changes(self) -> bool:
        return True

    @property
    def kept(self) -> Mapping[str, object]:
        return {"row": "newest"}

    @property
    def content(self) -> pl.Schema:
        return self.schema

    def own_facts(self, text: Text) -> dict[str, str]:
        return {"changes": "keeps the newest row of each key"}

    def process_rows(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Result:
        table = self.cells.table
        keys = rows.select(self.keys).unique(maintain_order=True)
        mine, others = split(state.load(self.cells, keys).rows, keys, list(self.keys))
        stored = mine.with_columns(pl.lit(-1, pl.Int64).alias(NUMBER), pl.lit(False).alias(PANE_RETRACTED))
        columns = [*self.schema, EVENT_TIME, *WINDOW_COLUMNS, NUMBER, PANE_RETRACTED]
        both = self._sorted(pl.concat([stored.select(columns), rows.select(columns)]), keys)
        found, refused = self._complete(both)
        same = pl.col(CELL) == pl.col(CELL).shift(1)
        replaces = (same & ~pl.col(PANE_RETRACTED).shift(1)).fill_null(False) & (pl.col(NUMBER) >= 0)
        found = found.with_row_index(_PLACE).with_columns(replaces.alias("__replaces"))
        later = found.filter("__replaces").select(pl.col(_PLACE) - 1, NUMBER)
        gone = found.drop(NUMBER, PANE_RETRACTED).join(later, on=_PLACE, maintain_order="right")
        new = found.filter(~pl.col(PANE_RETRACTED) & (pl.col(NUMBER) >= 0))
        given = [*self.schema, EVENT_TIME, *WINDOW_COLUMNS, PANE_RETRACTED, NUMBER]
        panes = pl.concat(
            [gone.with_columns(pl.lit(True).alias(PANE_RETRACTED)).select(given), new.select(given)]
        )
        left = found.filter(pl.col(CELL).is_last_distinct() & ~pl.col(PANE_RETRACTED)).with_columns(
            pl.lit(0, pl.Int64).alias(PENDING), pl.lit(None, pl.Int64).alias(HOLD)
        )
        over = self.cells.deadlines(clock.now)[WATERMARK] <= clock.watermark
        state.write_back(self.cells, pl.concat([others, left.select(list(table.schema))]).filter(~over))
        unmatched = found.filter(pl.col(PANE_RETRACTED) & ~pl.col("__replaces"))
        ordered = panes.sort(NUMBER, maintain_order=True).drop(NUMBER)
        lost = sum(len(part.rows) for part in refused)
        return Result(ordered, refused, refused_rows=lost, unmatched=unmatched.select(given[:-1]))

    def _sorted(self, rows: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
        """Adds the column CELL, the number of the key, and sorts rows by key and arrival."""
        numbers = keys.with_row_index(CELL)
        return rows.join(numbers, on=list(self.keys), nulls_equal=True, maintain_order="left").sort(
            CELL, NUMBER, maintain_order=True
        )

    def _complete(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Refused, ...]]:
        """Fills in values that were not sent. Rows without a row before them that has the value are dead letters."""
        missing = {name: not_sent(name) for name, dtype in self.schema.items() if dtype == pl.String}
        here = ~pl.col(PANE_RETRACTED)
        if not missing or not rows.select(pl.any_horizontal(missing.values()) & here).to_series().any():
            return rows, ()
        from_place = {
            name: pl.when(here & ~absent.fill_null(False)).then(_PLACE).forward_fill().over(CELL)
            for name, absent in missing.items()
        }
        places = rows.with_row_index(_PLACE).select(**from_place)
        unknown = rows.select(
            here & pl.any_horizontal(absent & places[name].is_null() for name, absent in missing.items())
        ).to_series()
        filled = rows.with_columns(
            pl.when(here & absent).then(rows[name].gather(places[name])).otherwise(pl.col(name)).alias(name)
            for name, absent in missing.items()
        )
        if not unknown.any():
            return filled, ()
        lost = rows.filter(unknown).select(*self.schema, PANE_RETRACTED)
        error = ValueError(
            f"it has {NOT_SENT!r} for a value that did not change, and no row of its key was in the log"
        )
        return filled.filter(~unknown), (Refused(lost, (error,) * len(lost)),)


def not_sent(name: str) -> pl.Expr:
    """Returns an expression that is true if the text of a column stands for a value that was not sent."""
    return pl.col(name) == NOT_SENT
