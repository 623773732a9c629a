"""A run on Spark that is killed and restarted emits the same as an uninterrupted run."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from examples import generate, oracle
from examples.session_lengths import pipeline
from tests.support.places import ROOT

pytestmark = pytest.mark.spark

# After its second batch, the process ends as if the machine had: the sinks have the batch, Spark has not yet
# noted that. The batch is done again by the next run.
KILLED = """
import os, signal, sys
import beamlike as bl
from examples.session_lengths import pipeline

plays, out, checkpoint = sys.argv[1:]

def kill(record):
    if record.batch == 1:
        os.kill(os.getpid(), signal.SIGKILL)

pipeline(plays, out, bl.EARLIEST).run(bl.SparkRunner(checkpoint, master="local[2]", shards=2, on_batch=kill))
"""


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate.write(
        tmp_path_factory.mktemp("recovery") / "plays", generate.Plays(5_000, files=4, seed=9)
    )


def rows(out: Path) -> pl.DataFrame:
    return oracle.written(out).sort("window_start")


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(spark: SparkSession, plays: Path, tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "out", str(tmp_path / "checkpoint")
    job = [sys.executable, "-c", KILLED, str(plays), str(out), checkpoint]
    died = subprocess.run(job, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert died.returncode == -signal.SIGKILL, died.stderr[-3000:]
    runner = bl.SparkRunner(checkpoint, session=spark, shards=2, drain=True)
    resumed = pipeline(plays, out, bl.EARLIEST).run(runner)
    assert resumed.batches[0].batch == 1
    pipeline(plays, tmp_path / "unbroken", bl.EARLIEST).run()
    assert oracle.differences(rows(out), rows(tmp_path / "unbroken")) == []


@pytest.mark.slow
def test_a_run_in_parts_gives_what_a_run_at_once_gives(
    spark: SparkSession, plays: Path, tmp_path: Path
) -> None:
    part = tmp_path / "plays"
    for name in ("mobile", "console"):
        (part / name).mkdir(parents=True)
    checkpoint, out = str(tmp_path / "checkpoint"), tmp_path / "out"
    for first, drain in ((0, False), (2, True)):
        for name in ("mobile", "console"):
            for file in sorted((plays / name).glob("*.parquet"))[first : first + 2]:
                file_copy(file, part / name / file.name)
        runner = bl.SparkRunner(checkpoint, session=spark, shards=3, drain=drain)
        pipeline(part, out, bl.END_OF_WINDOW).run(runner)
    expected = oracle.averages(oracle.read(plays), "end_of_window")
    assert oracle.differences(rows(out), expected) == []


def file_copy(source: Path, target: Path) -> None:
    """Copies a file with its time, which is its place in the order of arrival."""
    shutil.copy2(source, target)


def small(gap: str = "1m", extra: bool = False, last: int = 2) -> bl.Pipeline:
    p = bl.Pipeline("small")
    source = bl.Rows([{"user": "a", "at": 1}, {"user": "b", "at": last}])
    rows = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    sessions = rows.window_into(bl.Sessions(gap)).group_by("user").aggregate(n=bl.count()).named("sessions")
    sessions.write("out", bl.Memory())
    if extra:
        total = sessions.window_into(bl.FixedWindows("1m")).aggregate(n=bl.sum("n")).named("total")
        total.write("totals", bl.Memory())
    return p


def test_a_plan_that_does_not_fit_the_checkpoint_is_refused_stage_by_stage(
    spark: SparkSession, tmp_path: Path
) -> None:
    runner = bl.SparkRunner(str(tmp_path), session=spark, shards=1)
    small().run(runner)
    with pytest.raises(
        bl.CheckpointError, match=r"stage 'sessions': windows was Sessions\(gap=1m\), now Sessions\(gap=30s\)"
    ):
        small(gap="30s").run(runner)
    with pytest.raises(bl.CheckpointError, match="stage 'total' is new"):
        small(extra=True).run(runner)
    with pytest.raises(bl.CheckpointError, match="shards: it has 1, this run 2"):
        small().run(bl.SparkRunner(str(tmp_path), session=spark, shards=2))
    with pytest.raises(bl.CheckpointError, match="source 'plays' has other rows"):
        small(last=3).run(runner)
    # Without a number it has the shards of the checkpoint.
    small().run(bl.SparkRunner(str(tmp_path), session=spark))


def test_a_drained_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    runner = bl.SparkRunner(str(tmp_path), session=spark, shards=1, drain=True)
    small().run(runner)
    with pytest.raises(bl.CheckpointError, match="was drained"):
        small().run(runner)


def test_a_run_that_died_while_it_was_drained_can_only_be_drained(
    spark: SparkSession, tmp_path: Path
) -> None:
    drain = bl.SparkRunner(str(tmp_path), session=spark, shards=1, drain=True)
    go_on = bl.SparkRunner(str(tmp_path), session=spark, shards=1)
    run = go_on.run(small().plan())
    # As after a death between the note in the manifest and the end of the last batch.
    run.checkpoint.save({**run.checkpoint.manifest(), "draining": True})
    run.checkpoint.end(("plays",))
    with pytest.raises(bl.CheckpointError, match="finish that with drain=True"):
        small().run(go_on)
    drained = small().run(drain)
    assert drained.batches[-1].stages["sessions"].panes == {"on_time": 2}
