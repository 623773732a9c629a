"""Functions and processes of objects on Spark: the same rows and dead letters as in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from tests.support.row_classes import Latest, scored

pytestmark = pytest.mark.spark

ROWS = [
    {"user": user, "points": points, "at": at}
    for at, (user, points) in enumerate([("ada", 3), (None, 4), ("bob", -1), ("ada", 4), ("bob", 2)])
]


def run(runner: Any) -> tuple[list[Any], list[Any]]:
    p = bl.Pipeline("p", max_dead_letters=100)
    source = bl.Rows(ROWS, rows_per_batch=2)
    plays = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    scores, out, bad = plays.map(scored), bl.Memory(), bl.Memory()
    scores.group_by("user").process(Latest()).write("out", out)
    scores.dead_letters().write("bad", bad)
    p.run(runner)
    return pl.DataFrame(out).sort("user", "event_time", "points").to_dicts(), bad.rows()


@pytest.mark.slow
def test_objects_are_the_same_on_spark(spark: Any, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    assert run(bl.SparkRunner(session=spark, checkpoint=checkpoint, drain=True)) == run(bl.LocalRunner())
