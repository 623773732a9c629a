"""Sides that grow: their state keeps only rows that may still be read; unsupported sides are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import beamlike as bl
from beamlike.local.engine import Engine
from beamlike.runtime.batch.batch_sinks import BatchSinks
from beamlike.runtime.loop.batch_input import batch_inputs
from beamlike.testing.player import Recorder


def read(p: bl.Pipeline, name: str, rows: list[dict[str, Any]], rows_per_batch: int) -> bl.Collection:
    given = bl.Rows(rows, rows_per_batch=rows_per_batch)
    return p.read(name, given, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())


def of_stage(p: bl.Pipeline, name: str, batches: int) -> tuple[int, list[Any]]:
    """Returns the number of rows of the side in state after `batches` batches, and the emitted rows."""
    plan, out = p.plan(), Recorder()
    engine, sinks = Engine(plan, lambda: 0), BatchSinks(plan, {"out": out}, plan.name)
    for number, batch in zip(
        range(batches), batch_inputs(plan, 1, engine.clock, engine.inputs), strict=False
    ):
        engine.run(batch, number, sinks)
    tables = plan.stages[name].stage.tables(engine.store)
    (table,) = [one for one in plan.stages[name].stage.operator.tables if one.table.name == "side.prices"]
    return len(tables.scan(table, (0, 2**62))), out.rows(range(batches))


@pytest.mark.parametrize(("growing_list", "stored"), [(False, 2_010), (True, 9_000)])
def test_a_dict_stores_the_newest_row_of_each_key_and_a_list_all(growing_list: bool, stored: int) -> None:
    p = bl.Pipeline("growing")
    prices = [{"k": number % 10, "v": number, "at": number} for number in range(9_000)]
    side = read(p, "prices", prices, 500)
    view = bl.as_list(side, "v", growing=True) if growing_list else bl.as_dict(side, "k", "v", growing=True)
    rows = read(p, "rows", [{"at": number} for number in range(18)], 1)
    newest = max if growing_list else lambda seen: seen[9]
    rows.map(lambda row, seen: {"at": row["at"], "v": newest(seen)}, side={"seen": view}, name="seen",
             schema={"at": int, "v": int}).write("out", bl.Memory())  # fmt: skip
    found, emitted = of_stage(p, "seen", 18)
    assert [row["v"] for row in emitted] == [500 * number + 499 for number in range(18)]
    assert found <= stored


WRONG: dict[str, tuple[Callable[[bl.Pipeline, bl.Collection, bl.Collection], Any], str]] = {
    "windows": (
        lambda p, rows, side: bl.as_dict(side.window_into(bl.FixedWindows("1m")), "k", growing=True),
        "it is in FixedWindows.*leave growing= out: each window is read when it is complete",
    ),
    "retractions": (
        lambda p, rows, side: bl.as_list(
            side.window_into(
                bl.GlobalWindows(), trigger=bl.Repeatedly(bl.AfterCount(1)), accumulation="retracting"
            )
            .group_by("k")
            .aggregate(v=bl.sum("v")),
            growing=True,
        ),
        'its rows may be retracted.*a trigger such as .* with accumulation="accumulating" reads what is left',
    ),
    "readings": (
        lambda p, rows, side: bl.as_list(
            p.read("again", bl.Refreshed(bl.Rows([{"k": 1}]), every="1m")), growing=True
        ),
        "it is read again and again; leave growing= out: each reading replaces the one before",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_side_that_does_not_only_grow_is_refused(case: str) -> None:
    p = bl.Pipeline("growing")
    side = read(p, "prices", [{"k": 1, "v": 2, "at": 3}], 1)
    rows = read(p, "rows", [{"k": 1, "at": 3}], 1).window_into(bl.FixedWindows("1m"))
    view, said = WRONG[case]
    with pytest.raises(bl.PlanError, match=said):
        rows.map(lambda row, seen: row, side={"seen": view(p, rows, side)})


def test_one_step_reads_a_side_in_one_way() -> None:
    p = bl.Pipeline("growing")
    side = read(p, "prices", [{"k": 1, "v": 2, "at": 3}], 1)
    both = {"a": bl.as_list(side), "b": bl.as_dict(side, "k", growing=True)}
    with pytest.raises(bl.PlanError, match="'prices' is read with growing=True and without"):
        side.map(lambda row, a, b: row, side=both)
