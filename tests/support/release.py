"""A user-defined operator in one file, with public names only: it releases each row at the row's own time."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import polars as pl

import beamlike as bl
from beamlike.operators import (
    EVENT_TIME,
    HOLD,
    MAIN,
    PENDING,
    WATERMARK,
    Input,
    KeyedTable,
    State,
    StateTable,
    StepClock,
    StepOutput,
    Table,
    Times,
)

DUE = "__due"
"""The column of state with the time (us) at which a row is released."""


@attrs.frozen
class Held(StateTable[KeyedTable]):
    """The state table of rows that are not released yet."""

    keys: tuple[str, ...]
    columns: pl.Schema
    clocks = (WATERMARK,)

    @property
    def schema(self) -> pl.Schema:
        return pl.Schema({**self.columns, DUE: pl.Int64(), PENDING: pl.Int64(), HOLD: pl.Int64()})

    @property
    def table(self) -> KeyedTable:
        return KeyedTable(
            row="row",
            waits="waits for its release",
            keys=self.keys,
            bounds=(EVENT_TIME, DUE),
            schema=self.schema,
            incoming=self.schema,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: pl.col(DUE)}


@attrs.frozen
class Release(bl.CustomOperator):
    """Emits each row when the watermark reaches its column `until`, in seconds since 1970."""

    key: str
    until: str
    rows: pl.Schema = attrs.field(factory=pl.Schema, repr=False)

    def fitted(self, rows: pl.Schema) -> Release:
        return attrs.evolve(self, rows=rows)

    @property
    def inputs(self) -> Mapping[str, Input]:
        return {MAIN: Input((self.key,), pl.Schema({**self.rows, EVENT_TIME: pl.Int64()}))}

    @property
    def output(self) -> pl.Schema:
        return self.rows

    @property
    def held(self) -> Held:
        return Held((self.key,), self.inputs[MAIN].schema)

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.held,)

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        held, arrived = self.held, arrivals[MAIN]
        due = pl.col(self.until) * 1_000_000
        holds = pl.when(pl.col(EVENT_TIME) >= clock.input_before).then(EVENT_TIME)  # a late row holds nothing
        rows = arrived.with_columns(due.alias(DUE), pl.lit(1, pl.Int64).alias(PENDING), holds.alias(HOLD))
        loaded = state.load(held, rows)
        pool = pl.concat([loaded.rows, loaded.incoming])
        is_due = pl.col(DUE) <= clock.watermark
        state.write_back(held, pool.filter(~is_due))
        released = pool.filter(is_due).select(list(held.columns))
        return StepOutput(released, elements=len(arrived), placed=len(arrived), emitted=len(released))
