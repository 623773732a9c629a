"""Pipelines of many consecutive steps: no function recurses for each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import beamlike as bl
from beamlike.spark.query.modules import modules_of
from beamlike.spark.runner import SparkRunner

STEPS = 800

Step = Callable[[bl.Collection], bl.Collection]


def pipeline(step: Step, count: int) -> tuple[bl.Collection, bl.Memory]:
    rows = bl.Rows([{"user": "ada", "at": 1}])
    read: dict[str, Any] = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
    collection, out = bl.Pipeline("p").read("rows", rows, **read), bl.Memory()
    for _ in range(count):
        collection = step(collection)
    counts = collection.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count())
    return counts.write("out", out), out


@pytest.mark.parametrize(
    "step",
    [
        lambda rows: rows.with_columns(at=bl.col("at") + 1),
        lambda rows: rows.map(dict),
        lambda rows: (
            bl.flatten(rows, rows.filter(bl.col("at") < 0)).filter(bl.col("at") > 0)
            if rows.name == "rows"
            else rows.select("user", "at")
        ),
    ],
    ids=["expressions", "functions", "several inputs"],
)
def test_hundreds_of_steps_in_a_row_are_planned_shown_and_run(step: Step) -> None:
    counts, out = pipeline(step, STEPS)
    p = counts.pipeline
    assert p.explain()
    assert counts.named("counts").collect()["n"].to_list() == [1]
    modules_of(p.plan())
    p.run()
    assert [row["n"] for row in out.rows()] == [1]


def test_dead_letters_of_the_last_step_of_many_are_found() -> None:
    counts, _ = pipeline(lambda rows: rows.map(dict), STEPS)
    last = counts.map(lambda row: {"n": 1 // 0}, schema={"n": int})
    assert last.dead_letters().collect()["error"].str.contains("ZeroDivisionError").all()


@pytest.mark.spark
@pytest.mark.slow
def test_hundreds_of_steps_in_a_row_run_on_spark(spark: Any) -> None:
    counts, out = pipeline(lambda rows: rows.with_columns(at=bl.col("at") + 1), STEPS)
    counts.pipeline.run(SparkRunner(session=spark, shards=1, drain=True))
    assert [row["n"] for row in out.rows()] == [1]
