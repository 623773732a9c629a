"""A run on Spark that resumes from its checkpoint has the same watermarks, splits and learned lateness."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.records.model import BatchRecord

SECOND = 1_000_000
FILES = bl.Parquet("plays", schema={"at": int, "split": str}, max_files_per_trigger=1)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def arrive(number: int, **splits: int) -> None:
    """Adds a file with an element of each split, which is read after files with lower numbers."""
    Path("plays").mkdir(exist_ok=True)
    path = Path("plays") / f"{number}.parquet"
    pl.DataFrame({"at": splits.values(), "split": splits.keys()}).write_parquet(path)
    os.utime(path, (number, number))


def go_on(spark: Any, *, drain: bool = False) -> list[BatchRecord]:
    """Runs on the files that have arrived since the last run."""
    p = bl.Pipeline("restart")
    strategy = bl.MonotonousTimestamps(per_split="split", idle_after="1ms")
    plays = p.read("plays", FILES, timestamp="at", timestamp_unit="s", watermark=strategy)
    counts = plays.window_into(bl.FixedWindows("5s")).group_by("split", name="counts").aggregate(n=bl.count())
    counts.write("out", bl.Parquet("out"))
    return list(p.run(bl.SparkRunner("checkpoint", session=spark, shards=2, drain=drain)).batches)


@pytest.mark.slow
@pytest.mark.spark
def test_watermarks_go_on_and_the_time_between_runs_is_held_against_nobody(spark: Any) -> None:
    arrive(0, eu=15, us=6)
    (first,) = go_on(spark)
    assert (first.sources["plays"].watermark, first.stages["counts"].input) == (6 * SECOND, 6 * SECOND)
    arrive(1, eu=40)
    arrive(2, eu=50, us=3)
    arrive(3, eu=60)
    again = go_on(spark)
    # More than a millisecond has passed since the last row of us, but no run was active.
    assert [batch.batch for batch in again] == [1, 2, 3]
    assert [batch.stages["counts"].input // SECOND for batch in again] == [6, 6, 60]
    assert [batch.stages["counts"].dropped for batch in again] == [{}, {"late": 1}, {}]
    assert [batch.sources["plays"].watermark // SECOND for batch in again] == [6, 6, 60]
    assert [batch.sources["plays"].split for batch in again] == ["us", "us", "eu"]
    arrive(4, us=61)
    (third,) = go_on(spark)
    assert third.sources["plays"].watermark == third.stages["counts"].input == 60 * SECOND
    told = CliRunner().invoke(main, ["why", "checkpoint", "--stage", "counts"]).output
    assert "stage `counts` waits for source `plays`, split eu" in told
