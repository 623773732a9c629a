"""A failing sink: the batch fails with an error, and is repeated with nothing lost and nothing doubled."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from tests.support.databases import execute, postgres, rows_of

FORMATS = {"csv": bl.CSV, "json": bl.JSONLines, "parquet": bl.Parquet}
PLAYS = [("a", 1), ("b", 2), ("a", 30), ("a", 70), ("b", 130), ("b", 200), ("a", 290)]


class Disk:
    """A target of `write` calls that is full when batch 2 arrives for the first time."""

    def __init__(self, *, full: bool = True) -> None:
        self.full = full
        self.batches: list[int] = []

    def write(self, frame: pl.DataFrame, batch: int) -> None:
        if batch >= 2 and self.full:
            self.full = False
            raise OSError("disk full")
        self.batches.append(batch)


def pipeline(out: Path, disk: Disk, server: str | None = None) -> bl.Pipeline:
    """Declares sinks of every kind, the failing one last: sinks are written in the order of their names.

    `server` is the URL of a database that tasks can write to.
    """
    p = bl.Pipeline("p")
    source = bl.Rows([{"user": user, "at": at} for user, at in PLAYS], rows_per_batch=2)
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    sessions = plays.window_into(
        bl.Sessions("45s"),
        trigger=bl.AfterWatermark(early=bl.AfterCount(1)),
        accumulation=bl.RETRACTING,
    )
    counts = sessions.group_by("user").aggregate(n=bl.count())
    for name, kind in FORMATS.items():
        counts.write(name, kind(out / name))
    url = f"sqlite:///{out}/out.db"
    counts.write("table", bl.Table(url, "counts"))
    plays.write("log", bl.Table(url, "log", mode="append"))
    if server is not None:
        counts.write("counts there", bl.Table(server, "counts"))
        plays.write("log there", bl.Table(server, "log", mode="append"))
        plays.write("log again", bl.Table(f"{server}&connect_timeout=9", "other.log", mode="append"))
    return counts.write("zz", bl.Callback(disk.write)).pipeline


def found(out: Path) -> dict[str, list[Any]]:
    """Returns the rows of every sink, sorted; the rows of files have a common form."""
    files: dict[str, list[Any]] = {}
    for name, kind in FORMATS.items():
        frame = pl.concat(
            [chunk.lazy().collect() for chunk in kind(out / name).chunks(100)], how="vertical_relaxed"
        )
        shown = frame.select("user", "n", pl.col("window_end").cast(pl.String).str.slice(11, 8), "pane_index")
        retracted = frame["pane_retracted"].cast(pl.String)
        files[name] = shown.with_columns(retracted).sort(pl.all()).rows()
    url = f"sqlite:///{out}/out.db"
    tables = {
        name: [tuple(row.values()) for row in rows_of(url, name, order)]
        for name, order in (("counts", "window_start, user"), ("log", "at"))
    }
    return files | tables


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The rows that an uninterrupted run in process writes."""
    out = tmp_path_factory.mktemp("unbroken")
    pipeline(out, Disk(full=False)).run()
    rows = found(out)
    assert rows["csv"] == rows["json"] == rows["parquet"]
    assert [len(rows[name]) for name in ("counts", "log")] == [5, len(PLAYS)]
    assert len(rows["csv"]) > 5
    return rows


def test_a_run_in_process_fails_and_the_next_one_replaces_what_it_left(
    tmp_path: Path, unbroken: dict[str, list[Any]]
) -> None:
    disk = Disk()
    with pytest.raises(bl.SinkError) as caught:
        pipeline(tmp_path, disk).run()
    assert str(caught.value) == (
        "sink 'zz': batch 2 could not be written to Callback(write): OSError: disk full"
    )
    assert isinstance(caught.value, bl.RunError)
    assert isinstance(caught.value.__cause__, OSError)
    assert disk.batches == [0, 1]
    appended = rows_of(f"sqlite:///{tmp_path}/out.db", "log", "at")
    assert not any(file.is_file() for name in FORMATS for file in (tmp_path / name).rglob("*"))
    pipeline(tmp_path, disk).run()
    after = found(tmp_path)
    # A run in process starts again; rows that were appended stay.
    assert len(after["log"]) == len(appended) + len(PLAYS)
    assert {**after, "log": unbroken["log"]} == unbroken


@pytest.mark.slow
@pytest.mark.spark
def test_on_spark_the_batch_is_done_again_with_nothing_lost_or_doubled(
    spark: SparkSession, tmp_path: Path, unbroken: dict[str, list[Any]]
) -> None:
    runner = bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=2, drain=True)
    disk = Disk()
    with postgres() as server:
        execute(server, "CREATE SCHEMA other")
        fail_once_and_go_on(runner, tmp_path, disk, server, unbroken)
        there = {name: rows_of(server, name) for name in ("counts", "log", "other.log")}
    here = rows_of(f"sqlite:///{tmp_path}/out.db", "counts")
    assert told(there["counts"]) == told(here)
    assert told(there["log"]) == told(there["other.log"]) == sorted(PLAYS, key=str)


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Returns the columns that both kinds of database have, sorted."""
    return sorted((tuple(row[name] for name in ("user", "n", "at") if name in row) for row in rows), key=str)


def fail_once_and_go_on(
    runner: bl.SparkRunner, tmp_path: Path, disk: Disk, server: str, unbroken: dict[str, list[Any]]
) -> None:
    with pytest.raises(bl.RunError) as caught:
        pipeline(tmp_path, disk, server).run(runner)
    says = "sink 'zz': batch 2 could not be written to Callback(write): OSError: disk full"
    assert says in str(caught.value)
    assert disk.batches == [0, 1]
    # The batch is in all other sinks, as after a crash between their writes and Spark's commit.
    assert len(found(tmp_path)["log"]) == len(rows_of(server, "log")) == 6
    pipeline(tmp_path, disk, server).run(runner)
    assert disk.batches[2] == 2
    assert found(tmp_path) == unbroken


@pytest.mark.slow
@pytest.mark.spark
def test_what_a_task_cannot_write_is_named(spark: SparkSession, tmp_path: Path) -> None:
    p = bl.Pipeline("p")
    source = bl.Rows([{"user": "a", "at": 1}])
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    kept = tmp_path / "kept"

    def replace_the_folder(row: dict[str, Any]) -> dict[str, Any]:
        shutil.rmtree(kept)
        kept.touch()
        return row

    plays.map(replace_the_folder).write("kept", bl.JSONLines(kept))
    with pytest.raises(
        bl.RunError, match=r"sink 'kept': batch 0 could not be written to JSONLines\(.*it is a file"
    ):
        p.run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=1))


@pytest.mark.spark
def test_a_table_that_does_not_fit_any_more_is_found_before_spark_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    p = pipeline(tmp_path, Disk(full=False))
    other = bl.Table(f"sqlite:///{tmp_path}/out.db", "counts", mode="append")
    p.run()
    p = bl.Pipeline("q")
    source = bl.Rows([{"x": 1, "at": 1}])
    rows = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    rows.write("x", other)
    with pytest.raises(
        bl.PlanError, match=r"the table 'counts' does not fit this sink: it has no column 'x'"
    ):
        p.run(bl.SparkRunner(str(checkpoint), session=spark))
    assert not checkpoint.exists()


def test_a_sink_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    p = bl.Pipeline("p")
    source = bl.Rows([{"at": 1}])
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    rows.write("out", bl.Parquet(tmp_path / "file"))
    with pytest.raises(bl.SinkError, match=r"sink .out.: Parquet.* cannot be opened: NotADirectoryError"):
        p.run()
