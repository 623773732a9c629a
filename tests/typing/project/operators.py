"""A user-defined operator, with tables of two kinds."""

# pyright: strict

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import attrs
import polars as pl

import beamlike as bl
from beamlike.operators import (
    EVENT_TIME,
    HOLD,
    MAIN,
    PANE_RETRACTED,
    PENDING,
    PROCESSING_TIME,
    WATERMARK,
    WINDOW_END,
    WINDOW_START,
    AppendTable,
    Declaration,
    Input,
    KeyedTable,
    Loaded,
    Refused,
    SharedTable,
    Spread,
    State,
    StateTable,
    StepClock,
    StepOutput,
    Table,
    Times,
    TimeTable,
    Watermarks,
    WindowTable,
)

KINDS: tuple[type[Table], ...] = (AppendTable, KeyedTable, SharedTable, TimeTable, WindowTable)
NOW = StepClock(Watermarks(), Times(), Times({WATERMARK: 0, PROCESSING_TIME: 0}))
BY_TIME = Spread("__due", 1_000_000, 3_600_000_000)
WINDOW = (WINDOW_START, WINDOW_END)


@attrs.frozen
class Held(StateTable[KeyedTable]):
    """The table of rows that are not released yet."""

    columns: pl.Schema

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK,)

    @property
    def table(self) -> KeyedTable:
        rows = pl.Schema({**self.columns, "__due": pl.Int64(), PENDING: pl.Int64(), HOLD: pl.Int64()})
        return KeyedTable(
            row="row",
            waits="waits for its release",
            keys=("user",),
            bounds=(EVENT_TIME, "__due"),
            schema=rows,
            incoming=rows,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: pl.col("__due")}


@attrs.frozen
class Released(StateTable[AppendTable]):
    """The users whose rows have been released."""

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK,)

    @property
    def table(self) -> AppendTable:
        rows = pl.Schema({"user": pl.String(), PENDING: pl.Int64(), HOLD: pl.Int64()})
        return AppendTable(
            row="user",
            waits="waits for nothing",
            keys=("user",),
            bounds=(PENDING, HOLD),
            schema=rows,
            name="users",
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: pl.lit(None, pl.Int64)}


@attrs.frozen
class Release(bl.CustomOperator):
    """Emits each row when the watermark reaches the time (s) in the column `until`."""

    until: str
    rows: pl.Schema = attrs.field(factory=pl.Schema, repr=False)

    def fitted(self, rows: pl.Schema) -> Self:
        return attrs.evolve(self, rows=rows)

    @property
    def inputs(self) -> Mapping[str, Input]:
        return {MAIN: Input(("user",), pl.Schema({**self.rows, EVENT_TIME: pl.Int64()}))}

    @property
    def output(self) -> pl.Schema:
        return self.rows

    @property
    def gives_changes(self) -> bool:
        return PANE_RETRACTED in self.rows

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.held, self.released)

    @property
    def declared(self) -> Declaration:
        return Declaration("release", {"until": self.until})

    @property
    def held(self) -> Held:
        return Held(self.inputs[MAIN].schema)

    @property
    def released(self) -> Released:
        return Released()

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        arrived = arrivals[MAIN]
        rows = arrived.with_columns(
            (pl.col(self.until) * 1_000_000).alias("__due"),
            pl.lit(1, pl.Int64).alias(PENDING),
            pl.col(EVENT_TIME).alias(HOLD),
        )
        loaded: Loaded = state.load_with(self.held, rows, rows.select("user").clear())
        every = pl.concat([loaded.rows, loaded.incoming])
        due = pl.col("__due") <= clock.watermark
        state.write_back(self.held, every.filter(~due))
        known = state.lookup(self.released, every.select("user"))
        users = every.filter(due).select("user").unique().join(known, on="user", how="anti")
        nothing = pl.lit(None, pl.Int64)
        state.append(self.released, users.with_columns(nothing.alias(PENDING), nothing.alias(HOLD)))
        panes = every.filter(due).select(list(self.held.columns))
        refused = (Refused(arrived.clear(), ()),)
        return StepOutput(
            panes, elements=len(arrived), placed=len(arrived), emitted=len(panes), refused=refused
        )


def declared(p: bl.Pipeline) -> bl.Collection:
    stream = bl.TestStream({"user": str, "at": int, "until": int})
    played = stream.add_elements([{"user": "ada", "at": 1, "until": 9}]).advance_watermark_to(10)
    posts = p.read("posts", played, timestamp="at", timestamp_unit="s")
    return posts.apply(Release("until"), others={}, name="released")
