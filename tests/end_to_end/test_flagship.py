"""The flagship example equals a plain computation over the whole input, and holds what its peers lose."""

from __future__ import annotations

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

COMBINERS = [bl.END_OF_WINDOW, bl.EARLIEST]


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty thousand plays, among them pairs exactly one session gap apart."""
    folder = tmp_path_factory.mktemp("flagship") / "plays"
    return generate.write(folder, generate.Plays(20_000, files=4, seed=5, ties=True))


def assert_right(out: Path, plays: Path, combiner: bl.TimestampCombiner) -> None:
    expected = oracle.averages(oracle.read(plays), combiner.value)
    assert oracle.differences(oracle.written(out), expected) == []


@pytest.mark.parametrize("combiner", COMBINERS)
def test_in_process_it_equals_the_plain_computation(
    plays: Path, tmp_path: Path, combiner: bl.TimestampCombiner
) -> None:
    run = pipeline(plays, tmp_path / "out", combiner).run()
    assert_right(tmp_path / "out", plays, combiner)
    # Without watermarks between the stages, most sessions would be late at the second one.
    average = [batch.stages["average"] for batch in run.batches]
    assert all(not stage.dropped for stage in average)
    assert sum(stage.elements for stage in average) == sum(
        frame.collect().height for frame in map(oracle.sessions, oracle.read(plays).values())
    )


@pytest.mark.spark
@pytest.mark.parametrize(
    "combiner", [COMBINERS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in COMBINERS[1:])]
)
def test_on_spark_it_equals_the_plain_computation(
    spark: SparkSession, plays: Path, tmp_path: Path, combiner: bl.TimestampCombiner
) -> None:
    runner = bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, drain=True)
    pipeline(plays, tmp_path / "out", combiner).run(runner)
    assert_right(tmp_path / "out", plays, combiner)


def test_earliest_holds_the_second_stage_back(plays: Path, tmp_path: Path) -> None:
    inputs = {}
    for combiner in COMBINERS:
        run = pipeline(plays, tmp_path / combiner.value, combiner).run()
        inputs[combiner] = [batch.stages["average"].input for batch in run.batches]
    pairs = list(zip(inputs[bl.EARLIEST], inputs[bl.END_OF_WINDOW], strict=True))
    assert all(held <= free for held, free in pairs)
    assert any(held < free for held, free in pairs[:-1])


def test_the_second_stage_waits_for_the_slower_of_both_sources(plays: Path, tmp_path: Path) -> None:
    run = pipeline(plays, tmp_path / "out", bl.EARLIEST).run()
    for batch in run.batches:
        outputs = [batch.stages[f"sessions of {name}"].output for name in ("mobile", "console")]
        assert batch.stages["average"].input == min(outputs)


def test_two_plays_exactly_one_gap_apart_are_two_sessions(tmp_path: Path) -> None:
    seconds = [0, 60, 119]
    frame = pl.DataFrame({"event_time": seconds, "user": [1, 1, 1]}).with_columns(
        pl.from_epoch("event_time").dt.replace_time_zone("UTC")
    )
    sink = bl.Memory()
    p = bl.Pipeline("ties")
    rows = p.read("plays", bl.Rows(frame), timestamp="event_time", watermark=bl.MonotonousTimestamps())
    rows.window_into(bl.Sessions("1m")).group_by("user").aggregate(length=bl.window_length()).write(
        "out", sink
    )
    p.run()
    assert sorted(sink.frame()["length"]) == [60.0, 119.0]


CLUSTER_JOB = """
import sys
import beamlike as bl
from examples.session_lengths import pipeline

plays, out, checkpoint = sys.argv[1:]
runner = bl.SparkRunner(checkpoint, master="local-cluster[2,1,1024]", shards=2, drain=True)
pipeline(plays, out, bl.EARLIEST).run(runner)
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
def test_it_runs_on_executors_that_are_processes_of_their_own(plays: Path, tmp_path: Path) -> None:
    arguments = [str(plays), str(tmp_path / "out"), str(tmp_path / "checkpoint")]
    job = [sys.executable, "-c", CLUSTER_JOB, *arguments]
    done = subprocess.run(job, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert_right(tmp_path / "out", plays, bl.EARLIEST)
