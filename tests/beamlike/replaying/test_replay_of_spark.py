"""A batch of a run on Spark is played again in process: from its first batch, and from the state store of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from tests.beamlike.replaying.test_replay import USERS, fill, pipeline


@pytest.mark.slow
@pytest.mark.spark
def test_batches_of_spark_have_the_same_panes_in_process(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, USERS)
    checkpoint = str(tmp_path / "checkpoint")
    runner = bl.SparkRunner(checkpoint, shards=2, session=spark)
    pipeline(tmp_path).run(runner)
    options: dict[str, Any] = {"session": spark}
    for number in range(len(USERS)):
        replay = bl.replay(checkpoint, pipeline(tmp_path), batch=number, **options)
        assert replay.origin.startswith("from the first batch")
        assert replay.comparison.differences == ()
        assert any("rows in" in line for line in replay.comparison.compared)
    found = bl.record(checkpoint, pipeline(tmp_path), batches=(2, 3), key={"user": "a"}, **options)
    assert found.sinks == ["out", "streaks out"]
    (tmp_path / "in" / "0.jsonl").unlink()
    replay = bl.replay(checkpoint, pipeline(tmp_path), batch=3, **options)
    assert replay.origin == "from the state store of Spark"
    assert replay.comparison.differences == ()
    assert replay.state("streaks", {"user": "a"})["s.n"].item() > 0
