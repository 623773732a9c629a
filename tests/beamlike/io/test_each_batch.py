"""A function that receives each batch: the frame that it gets, and the runners on which it can be used."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import beamlike as bl

ROWS = [{"user": user, "at": at} for user, at in [("ada", 1), ("bob", 2), ("ada", 3)]]


def plays() -> bl.Collection:
    source = bl.Rows(ROWS, rows_per_batch=2)
    return bl.Pipeline("p").read(
        "plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )


def test_a_function_of_polars_frames_runs_in_process() -> None:
    given: list[tuple[int, list[str]]] = []

    def keep(frame: pl.DataFrame, batch: int) -> None:
        given.append((batch, frame["user"].to_list()))

    plays().write("out", bl.ForEachBatch(keep)).pipeline.run()
    assert given == [(0, ["ada", "bob"]), (1, ["ada"])]


@pytest.mark.parametrize("function", [lambda rows, batch: None, print, lambda *given: None])
def test_any_other_function_needs_spark(function: Any) -> None:
    p = plays().write("out", bl.ForEachBatch(function)).pipeline
    with pytest.raises(bl.PlanError, match=r"out.*only Spark can write this sink.*SparkRunner"):
        p.run()


def test_its_argument_is_a_function() -> None:
    with pytest.raises(TypeError, match="ForEachBatch: fn must be a function, not 'out'"):
        bl.ForEachBatch("out")  # type: ignore[arg-type]
