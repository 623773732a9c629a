"""Running aggregates: each row with its key's aggregates of all rows up to it, computed in columns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Said
from stages.operator import HOLD, PENDING, Loaded, State, StateTable, Table, Text
from stages.process.cumulative import Cumulative
from stages.process.keyed import CELL, Keyed, Result, touched
from stages.waiting import NUMBER
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS
from windowing.lateness import collected_at

_SO_FAR = -1
"""The number of the row with the totals of earlier steps, which is before all rows."""


@attrs.frozen(slots=False, eq=False)
class Totals(StateTable):
    """The totals of each key and window."""

    keys: tuple[str, ...]
    schema: pl.Schema
    allowed_lateness: int
    missing: Mapping[str, pl.Expr]
    clocks = (WATERMARK,)

    @cached_property
    def table(self) -> Table:
        held = pl.Schema({**self.schema, PENDING: pl.Int64(), HOLD: pl.Int64()})
        ids = {name: self.schema[name] for name in (*self.keys, *WINDOW_COLUMNS)}
        incoming = pl.Schema(ids)
        return Table(
            "key",
            "has totals",
            self.keys,
            WINDOW_COLUMNS,
            held,
            incoming,
            missing=self.missing,
            visited_by_key=True,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """The time at which the window is collected."""
        return {WATERMARK: collected_at(self.allowed_lateness)}

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows


@attrs.frozen(slots=False, eq=False)
class Running(Keyed):
    """Adds columns to rows: cumulative `aggregates` by name."""

    aggregates: Mapping[str, Cumulative]
    kind: ClassVar[str] = "running"

    @cached_property
    def parts(self) -> dict[str, pl.DataType]:
        """The columns of totals, with their types."""
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

    def process_rows(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Result:
        loaded = state.load(self.cells, rows.select(self.id).unique(maintain_order=True))
        over = collected_at(self.windowing.allowed_lateness) <= clock.watermark
        cells, idle = touched(loaded.rows, loaded.incoming, over, self.id)
        shown = [*self.schema, *self.aggregates, EVENT_TIME, *WINDOW_COLUMNS]
        if cells.is_empty():
            state.write_back(self.cells, idle)
            return Result(pl.DataFrame(schema=self._given()))
        both = self._together(cells, self.by_cell(cells, rows))
        totals = both.group_by(CELL, maintain_order=True).agg(pl.col(*self.id, *self.parts).last())
        kept = totals.with_columns(pl.lit(0, pl.Int64).alias(PENDING), pl.lit(None, pl.Int64).alias(HOLD))
        left = kept.filter(~over).select(list(self.cells.table.schema))
        state.write_back(self.cells, pl.concat([idle, left]))
        results = [self._result(name, aggregate) for name, aggregate in self.aggregates.items()]
        return Result(both.filter(pl.col(NUMBER) != _SO_FAR).with_columns(results).select(shown))

    def _together(self, cells: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """The totals of earlier steps and the rows, by cell and in order, each with the totals up to it."""
        lifted = rows.with_columns(
            expression.alias(f"__s.{name}.{part}")
            for name, aggregate in self.aggregates.items()
            for part, expression in aggregate.lift(self.schema).items()
        )
        before = cells.with_row_index(CELL).with_columns(pl.lit(_SO_FAR, pl.Int64).alias(NUMBER))
        # Stable: what was so far stands before the rows of its cell.
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

    def _given(self) -> pl.Schema:
        results = {name: aggregate.dtype(self.schema) for name, aggregate in self.aggregates.items()}
        times = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS), pl.Int64())
        return pl.Schema({**self.schema, **results, **times})
