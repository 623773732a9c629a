"""The operator of `running`: adds to each row aggregates of all rows of its key up to this row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Said, Text
from stages.operator import HOLD, PENDING
from stages.pending_rows import NUMBER
from stages.process.by_cell import ByCell, CellsOutput
from stages.process.cumulative import Cumulative
from stages.process.keyed import CELL
from stages.state_tables import KeyedTable, Loaded, StateTable
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS
from windowing.lateness import collected_at

_SO_FAR = -1
"""The number (column NUMBER) of the row with the totals of previous steps, which is before all arrivals."""


@attrs.frozen(slots=False, eq=False)
class Totals(StateTable[KeyedTable]):
    """The state table of totals, the accumulators of all rows so far, with a row for each key and window."""

    keys: tuple[str, ...]
    schema: pl.Schema
    allowed_lateness: int
    missing: Mapping[str, pl.Expr]
    clocks = (WATERMARK,)

    @cached_property
    def table(self) -> KeyedTable:
        held = pl.Schema({**self.schema, PENDING: pl.Int64(), HOLD: pl.Int64()})
        ids = {name: self.schema[name] for name in (*self.keys, *WINDOW_COLUMNS)}
        incoming = pl.Schema(ids)
        return KeyedTable(
            row="key",
            waits="has totals",
            keys=self.keys,
            bounds=WINDOW_COLUMNS,
            schema=held,
            incoming=incoming,
            missing=self.missing,
            ends_silently=True,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns the deadline of each row: it is due when its window is collected."""
        return {WATERMARK: collected_at(self.allowed_lateness)}

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows


@attrs.frozen(slots=False, eq=False)
class Running(ByCell):
    """The operator that adds columns to each row, one for each of the cumulative `aggregates`, by column name."""

    aggregates: Mapping[str, Cumulative]
    kind: ClassVar[str] = "running"

    @cached_property
    def parts(self) -> dict[str, pl.DataType]:
        """The types of the accumulator columns by name."""
        return {
            f"__s.{name}.{part}": dtype
            for name, aggregate in self.aggregates.items()
            for part, dtype in aggregate.parts(self.schema).items()
        }

    @cached_property
    def cells(self) -> Totals:
        ids = {**{key: self.schema[key] for key in self.keys}, **dict.fromkeys(WINDOW_COLUMNS, pl.Int64())}
        schema = pl.Schema({**ids, **self.parts})
        nothing = {name: pl.lit(None, dtype) for name, dtype in self.parts.items()}
        return Totals(self.keys, schema, self.windowing.allowed_lateness, nothing)

    @property
    def kept(self) -> Mapping[str, object]:
        return {name: Said(aggregate, str(aggregate)) for name, aggregate in self.aggregates.items()}

    @property
    def content(self) -> pl.Schema:
        return pl.Schema(self.parts)

    def own_facts(self, text: Text) -> dict[str, str]:
        return {"running": ", ".join(f"{name} = {aggregate}" for name, aggregate in self.aggregates.items())}

    def due(self, clock: StepClock) -> pl.Expr:
        return collected_at(self.windowing.allowed_lateness) <= clock.watermark

    def process_cells(self, cells: pl.DataFrame, rows: pl.DataFrame, clock: StepClock) -> CellsOutput:
        if cells.is_empty():
            times = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS), pl.Int64())
            nothing = pl.DataFrame(schema={CELL: pl.UInt32(), **self.emitted, **times})
            return CellsOutput(nothing, self.cells.table.no_rows)
        shown = [CELL, *self.emitted, EVENT_TIME, *WINDOW_COLUMNS]
        both = self._together(cells, rows)
        totals = both.group_by(CELL, maintain_order=True).agg(pl.col(*self.id, *self.parts).last())
        stored = totals.with_columns(pl.lit(0, pl.Int64).alias(PENDING), pl.lit(None, pl.Int64).alias(HOLD))
        remaining = stored.filter(~self.due(clock)).select(list(self.cells.table.schema))
        results = [self._result(name, aggregate) for name, aggregate in self.aggregates.items()]
        panes = both.filter(pl.col(NUMBER) != _SO_FAR).with_columns(results).select(shown)
        return CellsOutput(panes, remaining)

    def _together(self, cells: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """Puts the totals of previous steps before the rows of each cell, and computes the totals up to each row."""
        lifted = rows.with_columns(
            expression.alias(f"__s.{name}.{part}")
            for name, aggregate in self.aggregates.items()
            for part, expression in aggregate.lift(self.schema).items()
        )
        before = cells.with_row_index(CELL).with_columns(pl.lit(_SO_FAR, pl.Int64).alias(NUMBER))
        # A stable sort keeps the totals of previous steps before the rows of their cell.
        both = pl.concat([before, lifted], how="diagonal").sort(CELL, maintain_order=True)
        return both.with_columns(
            expression.over(CELL).alias(f"__s.{name}.{part}")
            for name, aggregate in self.aggregates.items()
            for part, expression in aggregate.so_far(self._columns(name, aggregate)).items()
        )

    def _result(self, name: str, aggregate: Cumulative) -> pl.Expr:
        return aggregate.extract(self._columns(name, aggregate), self.schema).alias(name)

    def _columns(self, name: str, aggregate: Cumulative) -> dict[str, pl.Expr]:
        return {part: pl.col(f"__s.{name}.{part}") for part in aggregate.parts(self.schema)}

    @cached_property
    def emitted(self) -> pl.Schema:
        results = {name: aggregate.dtype(self.schema) for name, aggregate in self.aggregates.items()}
        return pl.Schema({**self.schema, **results})
