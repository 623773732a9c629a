"""Mistakes that type checkers must report: a comment that ignores no error is an error itself.

A line has the error of mypy, and that of pyright, in which `enableTypeIgnoreComments` is off. If a line has only one of
them, only that checker finds the mistake.
"""

# ruff: noqa: B018

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import polars as pl

import beamlike as bl
from beamlike.operators import KeyedTable, State, StateTable, Table, TimeTable, WindowTable
from tests.typing.project.operators import Held, Released

Row = dict[str, Any]


def names(p: bl.Pipeline, rows: bl.Collection) -> None:
    bl.nothing_here  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    bl.observe.nothing_here  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    p.nothing_here  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    p.run().nothing_here  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    rows.groupby("user")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    rows.pipeline.nothing_here  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def sources(p: bl.Pipeline) -> None:
    p.read("memory", bl.Memory())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    p.read("rows", [{"user": "ada"}])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    p.read("class", bl.Rows)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    p.read("unit", bl.Rows([]), timestamp="at", timestamp_unit="sec")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    p.read("mark", bl.Rows([]), timestamp="at", watermark="5s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    bl.Parquet(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    bl.CSV("a", delimeter=";")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    bl.Pipeline("p", on_error="stop")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def steps(rows: bl.Collection) -> None:
    rows.window_into("1m")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.window_into(trigger="early")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.window_into(accumulation="accumulate")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.window_into(bl.FixedWindows(["1m"]))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.aggregate(n=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.group_by(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.group_by("user").collect()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    rows.map({"user": str})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.join(bl.Rows([]), on="user")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.write("rows", bl.Rows([]))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows.filter(side={"ages": rows})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]


def runs(p: bl.Pipeline) -> None:
    p.run("spark")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    p.run().stop()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    bl.LocalRunner(checkpoint=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    bl.LocalRunner(shards=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


class Mistaken(bl.Process):
    n: bl.Value[int] = bl.Value(int, default=0)
    since: bl.Value[timedelta | None] = bl.Value(timedelta)
    users: bl.List[str] = bl.List(str)
    quiet: bl.EventTimer = bl.EventTimer()
    retry: bl.EventTimers = bl.EventTimers()
    total: bl.Combining = bl.Combining("points")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tick: bl.EventTimer = bl.EventTimer(at_end="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    short: bl.Value[int] = bl.Value(int, default=0, by="arrival")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]

    def element(self, row: Row) -> Iterator[Row]:
        self.n += "a"  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
        self.n = None  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
        self.since.seconds  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
        self.users.append(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        self.users = {"ada"}  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
        self.quiet.afer("1m")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        self.quiet.after("1m", tag="a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        self.quiet.after(["1m"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        self.retry.after("5s")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        self.quiet = 3  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
        self.time = 3  # type: ignore[assignment, misc]  # pyright: ignore[reportAttributeAccessIssue]
        yield 3  # type: ignore[misc]  # pyright: ignore[reportReturnType]


class Unannotated(bl.Process):
    n = bl.Value(int, default=0)
    quiet = bl.EventTimer()

    def element(self, row: Row) -> None:
        self.n.append(1)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        self.quiet.afer("1m")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        self.quiet.after("1m", tag="a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def processes(rows: bl.Collection) -> None:
    keyed = rows.group_by("user")
    keyed.process(Mistaken, {"n": int})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    keyed.process(Mistaken(), {"n": int}, order="late")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    keyed.process_batches(lambda rows, state, due: rows, {"n": int})  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    keyed.process_batches(lambda rows, state, due: (rows, state), {"n": int}, timers={"quiet": "10m"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    keyed.running(n=bl.col("n"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class OfAnotherKind(StateTable[KeyedTable]):
    @property
    def table(self) -> TimeTable:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        raise NotImplementedError


def tables(
    state: State, held: Held, released: Released, spread: StateTable[TimeTable], rows: pl.DataFrame
) -> None:
    state.load(released, rows)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    state.write_back(released, rows)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    state.scan(released, (0, 1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    state.lookup(held, rows)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    state.append(held, rows)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    state.load_with(spread, rows, rows)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    state.load_between(held, rows, None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    kept: StateTable[Table] = held
    state.load(kept, rows)  # type: ignore[arg-type]
    WindowTable(row="row", waits="", keys=(), bounds=("", ""), schema=rows.schema, incoming=rows.schema)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    KeyedTable(row="row", waits="", keys="user", bounds=("", ""), schema=rows.schema, incoming=rows.schema)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
