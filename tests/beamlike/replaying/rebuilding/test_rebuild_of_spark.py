"""A run on Spark is rebuilt in process, and resumes there or on Spark with another number of shards."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from tests.beamlike.replaying.rebuilding.test_rebuild import FILES, pipeline, run
from tests.beamlike.replaying.test_replay import fill


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_on_spark_goes_on_as_if_the_stage_had_always_been_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path, FILES[:4])
    checkpoint = str(tmp_path / "checkpoint")
    pipeline(tmp_path, {}).run(bl.SparkRunner(checkpoint, shards=2, session=spark))
    run(tmp_path, "always", gap=1)
    new = pipeline(tmp_path, {}, gap=1)
    found = bl.rebuild(checkpoint, tmp_path / "new", new, stage="sessions", session=spark)
    assert found.read == {"plays": sum(map(len, FILES[:4]))}
    assert (found.runner, found.shards) == ("spark", 2)
    bl.savepoint.restore(tmp_path / "new", tmp_path / "after", new, runner="local")
    bl.savepoint.restore(tmp_path / "new", tmp_path / "on spark", new, shards=3, session=spark)
    fill(tmp_path, FILES[4:], 4)
    always = run(tmp_path, "always", gap=1)
    assert run(tmp_path, "after", gap=1) == always
    out = dict[str, bl.Memory]()
    goes_on = pipeline(tmp_path, out, gap=1)
    goes_on.run(bl.SparkRunner(str(tmp_path / "on spark"), shards=3, session=spark))
    assert {name: sorted(map(str, memory.rows())) for name, memory in out.items()} == always
