"""A Spark that only columns were asked of is no Spark of the user, and a stopped session is refused in words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import beamlike as bl
from pyspark import SparkContext
from pyspark.sql import SparkSession

def pipeline():
    p = bl.Pipeline("p")
    source = bl.SparkSource(lambda spark: spark.readStream.schema("at timestamp").json("in"))
    p.read("rows", source, timestamp="at", watermark=bl.MonotonousTimestamps()).write("out", bl.JSONLines("out"))
    return p

first = pipeline()
asked = SparkContext._active_spark_context
assert asked.master == "local[*]", asked.master
runner = {"checkpoint": "checkpoint", "master": "local[2]", "config": {"spark.app.x": "1"}, "quiet": True}
run = first.run(bl.SparkRunner(**runner))
used = run.session.sparkContext
assert (used.master, used.getConf().get("spark.app.x")) == ("local[2]", "1"), used.master
assert sum(batch.sinks["out"] for batch in run.batches) == 3

# From now on the Spark is that of a run, and is kept.
pipeline()
assert SparkContext._active_spark_context is used
for changed in ({"master": "local[3]"}, {"config": {"spark.driver.memory": "3g"}}):
    try:
        first.run(bl.SparkRunner(**{**runner, **changed}))
    except ValueError as error:
        print("kept", str(error)[:60])

session = SparkSession.builder.getOrCreate()
session.stop()
for given in (session, run.session, "local", SparkSession):
    try:
        first.run(bl.SparkRunner(checkpoint="other", session=given))
    except bl.PlanError as error:
        print("refused", error)
"""


@pytest.mark.slow
@pytest.mark.long
def test_a_spark_that_was_only_asked_gives_way_and_a_stopped_session_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"at": "2026-01-01T00:00:00Z"}\n' * 3)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = ran.stdout.splitlines()
    assert len([line for line in lines if line.startswith("kept")]) == 2, ran.stdout
    refused = [line for line in lines if line.startswith("refused")]
    assert [("was stopped" in line, "leave out session=" in line) for line in refused[:2]] == [
        (True, True)
    ] * 2
    assert ["must be a SparkSession" in line for line in refused[2:]] == [True, True]
