"""Savepoints on Spark: a run that resumes elsewhere, on other shards or with another plan, emits the same panes."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.cli.main import main
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.savepoint import savepoint as savepoints

pytestmark = pytest.mark.spark

FILES, HALF = 8, 4
COLUMNS = {"user": str, "at": int, "score": int}


def write(folder: Path, first: int, last: int) -> None:
    """Writes plays of forty users, ten seconds a file, in order of arrival; users have different gaps."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, last):
        rows = [
            {"user": f"u{user}", "at": 10 * number + (user * 7 + number) % 10, "score": user + number}
            for user in range(40)
            if (user + number) % 3
        ]
        file = folder / f"{number}.jsonl"
        pl.DataFrame(rows).write_ndjson(file)
        os.utime(file, (1_000_000_000 + number,) * 2)


def pipeline(
    folder: Path,
    out: bl.Memory,
    *,
    gap: str = "12s",
    most: bool = False,
    clicks: bool = False,
    scores: bl.Memory | None = None,
) -> bl.Pipeline:
    """Declares sessions per user with early panes, and the number of panes.

    `most` adds an aggregate, `clicks` a source with a stage of its own, `scores` a stage that reads an existing one.
    """
    p = bl.Pipeline("scores")
    plays = read(p, "../plays", folder / "plays")
    sessions = (
        plays.window_into(
            bl.Sessions(gap),
            trigger=bl.AfterWatermark(early=bl.AfterCount(2)),
            accumulation="accumulating",
            allow_repeats=True,
            timestamp_combiner=bl.EARLIEST,
        )
        .group_by("user", name="sessions")
        .aggregate(
            total=bl.sum("score"),
            n=bl.count(),
            scores=bl.collect("score"),
            **({"most": bl.max("score")} if most else {}),
        )
    )
    sessions.write("sessions out", out)
    per_minute = sessions.window_into(
        bl.FixedWindows("20s"), trigger=bl.DefaultTrigger(), accumulation="discarding"
    )
    per_minute.aggregate(panes=bl.count()).named("everybody").write("everybody out", bl.Memory())
    if clicks:
        windowed = read(p, "clicks", folder / "clicks").window_into(bl.FixedWindows("20s"))
        per_user = windowed.group_by("user", name="clicks per user").aggregate(n=bl.count())
        per_user.write("clicks out", bl.Memory())
    if scores is not None:
        windowed = plays.window_into(bl.FixedWindows("20s")).group_by("score", name="per score")
        windowed.aggregate(n=bl.count()).write("scores out", scores)
    return p


def read(p: bl.Pipeline, name: str, folder: Path) -> bl.Collection:
    return p.read(
        name,
        bl.JSONLines(folder, schema=COLUMNS, max_files_per_trigger=1),
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.BoundedOutOfOrderness("8s"),
    )


def panes(*sinks: bl.Memory) -> list[tuple[Any, ...]]:
    """Returns the panes of all sinks, in an order that does not depend on shards."""
    order = ["user", "window_start", "window_end", "pane_timing", "pane_index", "total", "n", "scores"]
    return sorted(row for sink in sinks for row in sink.frame().select(order).rows())


def run(p: bl.Pipeline, checkpoint: object, **options: Any) -> Any:
    return p.run(bl.SparkRunner(str(checkpoint), **options))


@pytest.fixture(scope="module")
def halfway(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bl.Memory]:
    """A run on two shards that has read half of the files, and its savepoint; the other half has arrived since."""
    folder, sink = tmp_path_factory.mktemp("halfway"), bl.Memory()
    write(folder / "plays", 0, HALF)
    run(pipeline(folder, sink), folder / "two", session=spark, shards=2)
    saved = savepoints.save(str(folder / "two"), str(folder / "saved"), session=spark)
    assert saved.batch == HALF - 1
    write(folder / "plays", HALF, FILES)
    # Whatever a source is called, what is saved of it is in the savepoint.
    assert sorted(path.name for path in (folder / "saved" / "files").iterdir()) == ["..~2Fplays.json"]
    write(folder / "clicks", 0, 2)
    return folder, sink


@pytest.fixture(scope="module")
def undisturbed(
    spark: SparkSession, halfway: tuple[Path, bl.Memory], tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Any, ...]]:
    """The panes of a run that reads all files without a stop."""
    sink = bl.Memory()
    checkpoint = tmp_path_factory.mktemp("undisturbed") / "checkpoint"
    run(pipeline(halfway[0], sink), checkpoint, session=spark, shards=2, drain=True)
    return panes(sink)


@pytest.mark.slow
def test_two_shards_become_five_in_the_middle_of_sessions(
    spark: SparkSession, halfway: tuple[Path, bl.Memory], undisturbed: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    folder, before = halfway
    after = bl.Memory()
    left_out = savepoints.restore(
        str(folder / "saved"), str(tmp_path), pipeline(folder, after).plan(), shards=5, session=spark
    )
    assert left_out == []
    assert (Checkpoint(spark, str(tmp_path)).manifest() or {})["shards"] == 5
    done = run(pipeline(folder, after), tmp_path, session=spark, drain=True)
    # Files that were read before are not read again, and each of the others is a batch, as before.
    read = [batch.sources["../plays"].elements > 0 for batch in done.batches]
    assert read[: FILES - HALF + 1] == [True] * (FILES - HALF) + [False]
    assert panes(before)
    assert panes(before, after) == undisturbed
    elements = sum(batch.sources["../plays"].elements for batch in done.batches)
    counted = Checkpoint(spark, str(folder / "two")).tally().total
    assert Checkpoint(spark, str(tmp_path)).tally().total.rows == counted.rows + elements


@pytest.mark.slow
def test_a_restored_run_may_have_another_plan(
    spark: SparkSession, halfway: tuple[Path, bl.Memory], undisturbed: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    folder, before = halfway
    after = bl.Memory()
    changed = pipeline(folder, after, most=True, clicks=True)
    assert savepoints.restore(str(folder / "saved"), str(tmp_path), changed.plan(), session=spark) == []
    done = run(changed, tmp_path, session=spark, drain=True)
    assert panes(before, after) == undisturbed
    # A source that is new is read from its start.
    written = sum(len(file.read_text().splitlines()) for file in (folder / "clicks").iterdir())
    assert sum(batch.sources["clicks"].elements for batch in done.batches) == written
    check_most(after.frame())


def check_most(frame: pl.DataFrame) -> None:
    """Checks that a new aggregate covers the later rows of open windows, and so at most equals an old one."""
    begun = frame.filter(pl.col("window_start").dt.epoch("s") >= 10 * HALF)
    assert len(begun)
    assert begun["most"].null_count() == 0
    assert frame.filter(pl.col("most") > pl.col("total")).is_empty()


@pytest.mark.slow
def test_the_same_checkpoint_takes_aggregates_stages_and_sinks_that_are_new(
    spark: SparkSession, halfway: tuple[Path, bl.Memory], undisturbed: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    folder, before = halfway
    after, scores = bl.Memory(), bl.Memory()
    checkpoint = shutil.copytree(folder / "two", tmp_path / "two")
    with pytest.raises(bl.CheckpointError, match="source 'clicks' is new") as refused:
        run(pipeline(folder, after, clicks=True), checkpoint, session=spark)
    assert f"beamlike savepoint {checkpoint} SAVEPOINT" in str(refused.value)
    with pytest.raises(bl.CheckpointError, match=r"gap=12s.*gap=30s"):
        run(pipeline(folder, after, gap="30s"), checkpoint, session=spark)
    changed = pipeline(folder, after, most=True, scores=scores)
    run(changed, checkpoint, session=spark, drain=True)
    assert panes(before, after) == undisturbed
    check_most(after.frame())
    assert scores.frame()["n"].sum() == sum(
        len((folder / "plays" / f"{number}.jsonl").read_text().splitlines()) for number in range(HALF, FILES)
    )


MODULE = """
import os
import beamlike as bl

def read(p: bl.Pipeline) -> bl.Collection:
    folder = os.path.abspath("plays")  # Java has a working directory of its own
    source = bl.SparkSource(lambda spark: spark.readStream.schema("user string, at long, score long").json(folder))
    strategy = bl.BoundedOutOfOrderness("8s")
    return p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=strategy)

def scores() -> bl.Pipeline:
    p = bl.Pipeline("scores")
    sessions = read(p).window_into(bl.Sessions("12s")).group_by("user", name="sessions")
    sessions.aggregate(n=bl.count()).write("out", bl.JSONLines("out"))
    return p

def other() -> bl.Pipeline:
    p = bl.Pipeline("other")
    read(p).write("out", bl.JSONLines("out"))
    return p
"""


@pytest.mark.slow
def test_from_the_command_line_a_spark_source_goes_on_from_its_offsets(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "savepoint_mine", raising=False)
    (tmp_path / "savepoint_mine.py").write_text(MODULE)

    def invoke(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == code, result.output
        return result.output

    write(tmp_path / "plays", 0, 2)
    job = ("run", "savepoint_mine:scores", "--runner", "spark", "--checkpoint")
    invoke(*job, "first", "--shards", "2")
    assert "after batch 0, on 2 shards" in invoke("savepoint", "first", "saved", "--conf", "spark.x=1")
    other = sys.modules["savepoint_mine"].other()
    with pytest.raises(ValueError, match=r"spark\.driver\.memory='3g' can only be set when Spark starts"):
        bl.savepoint.restore("saved", "never", other, config={"spark.driver.memory": "3g"})
    write(tmp_path / "plays", 2, 4)
    told = invoke("restore", "saved", "without", "savepoint_mine:other", "--runner", "spark")
    assert "stage 'sessions' is gone: its part of the savepoint is left out" in told
    assert "second is not empty" in invoke(
        "restore",
        "saved",
        str(shutil.copytree("saved", "second")),
        "savepoint_mine:scores",
        "--runner",
        "spark",
        code=1,
    )
    shutil.rmtree("second")
    invoke("restore", "saved", "second", "savepoint_mine:scores", "--shards", "1", "--conf", "spark.x=1")
    invoke(*job, "second", "--drain")
    rows = [pl.read_ndjson(file) for file in sorted((tmp_path / "out").glob("*.jsonl"))]
    written = sum(len(file.read_text().splitlines()) for file in (tmp_path / "plays").iterdir())
    assert pl.concat(rows)["n"].sum() == written
    assert "was drained" in invoke("savepoint", "second", "nothing", code=1)
    assert "there is no run to save" in invoke("savepoint", "third", "nothing", code=1)
    assert "there is no savepoint" in invoke(
        "restore", "first", "third", "savepoint_mine:scores", "--runner", "spark", code=1
    )


@pytest.mark.slow
def test_a_batch_that_was_begun_and_not_finished_is_in_the_way(
    spark: SparkSession, halfway: tuple[Path, bl.Memory], tmp_path: Path
) -> None:
    checkpoint = shutil.copytree(halfway[0] / "two", tmp_path / "two")
    shutil.copy(checkpoint / "offsets" / str(HALF - 1), checkpoint / "offsets" / str(HALF))
    with pytest.raises(bl.CheckpointError, match=f"ended within batch {HALF}.*run it once more"):
        savepoints.save(str(checkpoint), str(tmp_path / "saved"), session=spark)
    # Unless it was held back, as it is when a run is stopped.
    opened = Checkpoint(spark, str(checkpoint))
    opened.save({**(opened.manifest() or {}), "whole": True})
    saved = savepoints.save(str(checkpoint), str(tmp_path / "saved"), session=spark)
    assert saved.batch == HALF - 1
    with pytest.raises(bl.CheckpointError, match="saved is not empty; save into a new folder"):
        savepoints.save(str(checkpoint), str(tmp_path / "saved"), session=spark)


def test_a_plan_that_cannot_go_on_with_the_state_is_refused(
    spark: SparkSession, halfway: tuple[Path, bl.Memory], tmp_path: Path
) -> None:
    folder, _ = halfway
    plan = pipeline(folder, bl.Memory(), gap="30s").plan()
    with pytest.raises(bl.CheckpointError, match=r"does not fit the savepoint.*\n.*gap=30s\)\n.*start again"):
        savepoints.restore(str(folder / "saved"), str(tmp_path), plan, shards=3, session=spark)
    assert list(tmp_path.iterdir()) == []


def test_what_is_kept_in_the_checkpoint_has_no_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    p = bl.Pipeline("memory")
    rows = bl.Rows([{"user": "a", "at": 1}])
    plays = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    plays.write("out", bl.Memory())
    run(p, tmp_path / "checkpoint", session=spark, shards=1)
    with pytest.raises(bl.CheckpointError, match="source 'plays': rows in memory are kept in the checkpoint"):
        savepoints.save(str(tmp_path / "checkpoint"), str(tmp_path / "saved"), session=spark)
