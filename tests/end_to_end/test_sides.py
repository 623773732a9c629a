"""Side inputs, compared with the naive model, on any number of shards and restored on another number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beamlike as bl
from beamlike.local.engine import Engine
from beamlike.plan.model import Plan
from beamlike.runtime.batch.batch_sinks import BatchSinks
from beamlike.runtime.loop.batch_input import batch_inputs
from beamlike.spark.checkpoint.commands import EndSources, PlayStep
from beamlike.testing.player import Recorder
from tests.cases.process import Move, stream_of
from tests.support.examples import share, times
from tests.support.model_sides import END, Row, Sides
from tests.support.shards import Query, reshard
from windowing.time import MAX_TIME

SECOND = 1_000_000
SCHEMA = pl.Schema({"value": pl.Int64(), "at": pl.Int64()})

moments = st.lists(st.integers(0, 30), max_size=4)


@attrs.frozen
class Step:
    main: list[int]
    side: list[int]
    watermark: int
    side_watermark: int


steps = st.lists(
    st.builds(Step, moments, moments, st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6
)
models = st.builds(Sides, st.sampled_from([5, 10]), st.sampled_from([5, 10, 20, None]), st.booleans())
HOW = ("map", "process", "process in order", "process_batches", "process_batches in order")
"""The steps that read a side."""


def model_of(model: Sides, how: str) -> Sides:
    drops = how != "map" or model.side_size is not None
    return attrs.evolve(model, ordered="in order" in how, drops=drops)


class Passing(bl.Process):
    """Emits rows with the side; its state and a timer have no effect on them."""

    side: list[int]
    n = bl.Value(int, default=0)
    done = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.n += 1
        self.done.after("1s")
        yield {"value": row["value"], "side": sorted(self.side), "at": row["at"]}

    def on_done(self) -> None:
        self.n = len(self.side)


def passing(
    rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame, side: list[int]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    seen = pl.lit(sorted(side), pl.List(pl.Int64)).alias("side")
    return rows.select("value", seen, "at", "event_time", "window_start", "window_end"), state


GIVES: Any = {"value": int, "side": list[int], "at": int}


def reading(rows: bl.Collection, how: str, side: Any) -> bl.Collection:
    """Returns the rows with their value of the side."""
    if how == "map":
        return rows.map(
            lambda row, side: {"value": row["value"], "side": sorted(side), "at": row["at"]},
            GIVES,
            side=side,
            name="seen",
        )
    keyed = rows.with_columns(k=bl.col("value") % 2).group_by("k", name="seen")
    order: Any = "time" if "in order" in how else "arrival"
    if "batches" in how:
        return keyed.process_batches(passing, GIVES, state={"n": int}, order=order, side=side)
    return keyed.process(Passing(), GIVES, order=order, side=side)


def numbered(given_: Sequence[Step]) -> list[tuple[list[Row], list[Row], int, int]]:
    """Returns the steps with numbered rows; at the end, both inputs end."""
    number, found = iter(range(1000)), []
    for step in [*given_, Step([], [], END, END)]:
        sides = [[Row(at, next(number)) for at in own] for own in (step.main, step.side)]
        found.append((*sides, step.watermark, step.side_watermark))
    return found  # type: ignore[return-value]


def moves(rows: list[Row], watermark: int) -> list[Move]:
    """Returns the steps with the clocks moved in separate batches: rows meet the watermark of the step before."""
    own = tuple({"value": row.value, "at": row.at * SECOND} for row in rows)
    return [Move(own), Move(watermark=MAX_TIME if watermark == END else watermark * SECOND)]


def pipeline(model: Sides, given_: Sequence[Step], how: str) -> Plan:
    p, rows = bl.Pipeline("sides"), numbered(given_)
    main, side = (
        p.read(
            name,
            stream_of([move for step in rows for move in moves(step[index], step[index + 2])], SCHEMA),
            timestamp="at",
            timestamp_unit="us",
        )
        for index, name in enumerate(("main", "side"))
    )
    # A side grows as if it had a pane, with all rows so far, in each batch with new rows.
    growing = model.side_size is None and model.early and len(given_) % 2 == 1
    windowed = side.window_into(
        bl.GlobalWindows() if model.side_size is None else bl.FixedWindows(model.side_size),
        trigger=bl.Repeatedly(bl.AfterCount(1)) if model.early and not growing else None,
        accumulation="accumulating",
    )
    side_input = {"side": bl.as_list(windowed.select("value"), "value", growing=growing)}
    seen = reading(main.window_into(bl.FixedWindows(model.size)), how, side_input)
    seen.write("out", bl.Memory())
    seen.late().write("late", bl.Memory())
    return p.plan()


def found(frames: Sequence[pl.DataFrame]) -> list[tuple[int, list[int], int]]:
    rows = [row for frame in frames for row in frame.select("value", "side", "at").rows()]
    return sorted((value, list(side), at // SECOND) for value, side, at in rows)


def by_hand(model: Sides, given_: Sequence[Step]) -> list[tuple[list[Any], int]]:
    """Returns the result of each step, and the output watermark after it (s)."""
    told, output = [], -1
    for step in numbered(given_):
        rows = model.step(*step)
        held = [row.at for row in model.waiting if row.value not in model.silent]
        output = max(output, min([model.watermark, *held]))
        told.append((rows, output))
    return told


def seconds(time: int) -> int:
    return END if time >= MAX_TIME else max(-1, time // SECOND)


@settings(max_examples=times(1.5))
@given(st.sampled_from(HOW), models, steps)
def test_a_run_in_process_gives_what_the_model_gives(how: str, model: Sides, given_: list[Step]) -> None:
    plan, model = pipeline(model, given_, how), model_of(model, how)
    out, late, got = Recorder(), Recorder(), []
    engine, sinks = Engine(plan, lambda: 0), BatchSinks(plan, {"out": out, "late": late}, plan.name)
    for number, batch in enumerate(batch_inputs(plan, 1, engine.clock, engine.inputs)):
        record = engine.run(batch, number, sinks)
        if number % 2 and number < 2 * len(given_) + 2:
            rows = [frame for batch in (number - 1, number) for frame in out.frames.get(batch, [])]
            got.append((found(rows), seconds(record.stages["seen"].output)))
    assert got == by_hand(model, given_)
    assert sorted(row["value"] for row in late.rows(range(99))) == sorted(model.late)
    assert (record.stages["seen"].pending, record.stages["seen"].live) == (0, 0)


@share(2)
@given(st.sampled_from(HOW), models, steps, st.integers(1, 3), st.integers(1, 3), st.integers(0, 12))
def test_so_does_any_number_of_shards_restored_on_others(
    how: str, model: Sides, given_: list[Step], before: int, after: int, at: int
) -> None:
    plan, model = pipeline(model, given_, how), model_of(model, how)
    query, got = Query(plan, before), []
    orders = [*map(PlayStep, range(2 * len(given_) + 2)), EndSources(tuple(plan.sources))]
    for number, order in enumerate(orders):
        if number == at:
            query = reshard(query, plan, after)
        batch = query.ordered(order)
        got += found(batch.frames("out"))
    told = [row for rows, _ in by_hand(model, given_) for row in rows]
    assert sorted(got) == sorted(told)
    assert query.latest["seen"].live == 0


def test_a_side_is_read_once_by_a_run_that_is_stopped_and_goes_on(tmp_path: Path) -> None:
    for name, rows in {"orders/1": "USD,2\nEUR,1\n", "rates/1": "EUR,1.5\n", "rates/2": "EUR,2.5\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.csv").write_text(f"currency,n\n{rows}")

    def run() -> list[tuple[str, float | None]]:
        p = bl.Pipeline("orders")
        files = bl.CSV(tmp_path / "orders", {"currency": str, "n": int})
        orders = p.read(
            "orders", files, timestamp="n", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
        )
        one_by_one = bl.CSV(tmp_path / "rates", {"currency": str, "n": float}, 1)
        rates = bl.lookup(p.read("rates", one_by_one), on="currency")
        orders.with_columns(rate=rates["n"]).write("out", out := bl.Memory())
        p.run(bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint")))
        return sorted(out.frame().select("currency", "rate").rows())

    assert run() == [("EUR", 2.5), ("USD", None)]
    (tmp_path / "orders/2.csv").write_text("currency,n\nUSD,3\nEUR,4\n")
    (tmp_path / "rates/3.csv").write_text("currency,n\nUSD,9\n")
    assert run()[-2:] == [("EUR", 2.5), ("USD", None)]


@pytest.mark.parametrize("how", ["process in order", "process_batches in order"])
def test_late_rows_that_wait_for_a_side_are_in_order_of_time_with_those_that_wait_there(how: str) -> None:
    p = bl.Pipeline("sides")
    orders = [Move(({"value": 2, "at": 2 * SECOND},)), Move(watermark=5 * SECOND)]
    orders += [Move(({"value": at, "at": at * SECOND},)) for at in (4, 0)]
    inputs = {"main": [*orders, Move(watermark=MAX_TIME)], "side": [Move(), Move(), Move(), Move()]}
    main, side = (
        p.read(
            name, stream_of([*moves, Move(watermark=MAX_TIME)], SCHEMA), timestamp="at", timestamp_unit="us"
        )
        for name, moves in inputs.items()
    )
    windowed = main.window_into(bl.FixedWindows("10s"), allowed_lateness="20s")
    seen = reading(windowed, how, {"side": bl.as_list(side.window_into(bl.FixedWindows("10s")), "value")})
    seen.write("out", out := bl.Memory())
    seen.late().write("late", bl.Memory())
    p.run()
    assert [row["value"] for row in out.rows()] == [0, 2, 4]
