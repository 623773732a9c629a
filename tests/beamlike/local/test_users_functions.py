"""User functions in process: an error keeps its type and names the step, as does an invalid result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import StepError


def read(p: bl.Pipeline) -> bl.Collection:
    rows = bl.Rows([{"n": 0, "at": 1}])
    return p.read("source", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())


def fail(*_: Any) -> Any:
    raise ZeroDivisionError("the user's")


def fail_late(row: Any) -> Iterator[Any]:
    yield row
    fail()


def combined(rows: bl.Collection, name: str) -> bl.Collection:
    fn = type("Failing", (bl.CombineFn,), {"create_accumulator": fail})()
    windowed = rows.window_into(bl.FixedWindows("1m"))
    return windowed.group_by("n", name=name).aggregate(x=bl.combine(fn, "n", int))


@pytest.mark.parametrize(
    "step",
    [
        lambda rows: rows.map(fail, name="risky"),
        lambda rows: rows.flat_map(fail_late, name="risky"),
        lambda rows: rows.map_batches(fail, schema={"n": int}, name="risky"),
        lambda rows: combined(rows, "risky"),
    ],
)
def test_an_error_in_a_users_function_keeps_its_type_and_names_the_step(
    step: Callable[[bl.Collection], bl.Collection],
) -> None:
    p = bl.Pipeline("p", on_error="fail")
    step(read(p)).write("out", bl.Memory())
    with pytest.raises(ZeroDivisionError, match="the user's") as caught:
        p.run()
    assert "step 'risky'" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            lambda rows: rows.map(lambda row: None, name="risky"),
            "step 'risky': expected a dict with the keys n, at",
        ),
        (
            lambda rows: rows.map(lambda row: {"n": "x"}, {"n": int}, name="risky"),
            "step 'risky': column 'n' was",
        ),
        (
            lambda rows: rows.flat_map(lambda row: 3, name="risky"),
            "step 'risky': flat_map expects several dicts",
        ),
        (
            lambda rows: rows.map_batches(
                lambda table: pl.DataFrame({"n": [1, 2]}), {"n": int}, name="risky"
            ),
            "step 'risky': map_batches gave 2 rows for 1",
        ),
    ],
)
def test_a_result_that_the_step_cannot_use_names_the_step(step: Any, message: str) -> None:
    p = bl.Pipeline("p", on_error="fail")
    step(read(p)).write("out", bl.Memory())
    with pytest.raises(StepError, match=message):
        p.run()
