"""The columns of a sink, chosen with `write(columns=)`: of rows and of the engine, in any order, on both runners."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import beamlike as bl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAYS = [{"k": "a", "at": 1}, {"k": "b", "at": 2}, {"k": "a", "at": 70}]


def read(pipeline: bl.Pipeline) -> bl.Collection:
    source = bl.Rows(PLAYS, {"k": str, "at": int})
    return pipeline.read(
        "plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )


def minutes(plays: bl.Collection) -> bl.Collection:
    return plays.window_into(bl.FixedWindows("1m")).group_by("k").aggregate(n=bl.count())


def current(plays: bl.Collection) -> bl.Collection:
    each = bl.Repeatedly(bl.AfterCount(1))
    windowed = plays.window_into(bl.GlobalWindows(), trigger=each, accumulation=bl.RETRACTING)
    return windowed.group_by("k").aggregate(n=bl.count())


def table(database: Path, name: str) -> pl.DataFrame:
    with sqlite3.connect(database) as connection:
        return pl.read_database(f"select * from {name}", connection)


def write_all(folder: Path, runner: Any) -> None:
    p = bl.Pipeline("p")
    plays, url = read(p), f"sqlite:///{folder}/out.db"
    plays.write("rows", bl.CSV(folder / "rows"), columns=["at", "event_time", "k"])
    plays.write("parts", bl.Parquet(folder / "parts", partition_by="k"), columns=["at", "k"])
    counts = minutes(plays)
    key = ["k", "window_start", "window_end"]
    counts.write("ends", bl.JSONLines(folder / "ends"), columns=["n", "window_end", "pane_timing"])
    counts.write("table", bl.Table(url, "counts"), columns=["n", *key])
    counts.write("delta", bl.Delta(str(folder / "delta"), mode="upsert"), columns=["n", *key])
    now = current(plays)
    now.write("now", bl.Table(url, "now"), columns=["n", "k"])
    now.write("now delta", bl.Delta(str(folder / "now"), mode="upsert"), columns=["n", "k"])
    now.write("usual", bl.Table(url, "usual"))
    now.write("log", bl.CSV(folder / "log"), columns=["k", "window_start", "event_time"])
    p.run(runner)


def check_all(folder: Path) -> None:
    rows = pl.concat(map(pl.read_csv, (folder / "rows").glob("*.csv"))).sort("at")
    assert rows.columns == ["at", "event_time", "k"]
    assert rows.rows()[-1] == (70, "1970-01-01T00:01:10.000000Z", "a")
    assert {
        tuple(pl.read_parquet(file, hive_partitioning=False).columns)
        for file in (folder / "parts").glob("*/*")
    } == {("at",)}
    ends = pl.concat(map(pl.read_ndjson, (folder / "ends").glob("*.jsonl")))
    assert ends.columns == ["n", "window_end", "pane_timing"]
    assert set(ends["pane_timing"]) == {"on_time"}
    database = folder / "out.db"
    for found in table(database, "counts"), pl.read_delta(str(folder / "delta")):
        assert found.columns == ["n", "k", "window_start", "window_end"]
        assert sorted(found.select("k", "n").rows()) == [("a", 1), ("a", 1), ("b", 1)]
    for found in table(database, "now"), pl.read_delta(str(folder / "now")):
        assert found.columns == ["n", "k"]
        assert sorted(found.select("k", "n").rows()) == [("a", 2), ("b", 1)]
    assert table(database, "usual").columns == ["k", "n", "pane_timing", "pane_index"]
    log = pl.concat(
        pl.read_csv(file, schema_overrides={"event_time": pl.String})
        for file in (folder / "log").glob("*.csv")
    )
    assert log.columns == ["k", "window_start", "event_time"]
    assert log.select(pl.all_horizontal(pl.col("window_start", "event_time").is_null()).all()).item()


def test_sinks_get_the_chosen_columns_in_process(tmp_path: Path) -> None:
    write_all(tmp_path, bl.LocalRunner())
    check_all(tmp_path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
def test_sinks_get_the_chosen_columns_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    write_all(tmp_path, bl.SparkRunner(checkpoint=str(tmp_path / "checkpoint"), drain=True))
    check_all(tmp_path)


def test_columns_can_be_chosen_on_a_checkpoint_that_is_there(tmp_path: Path) -> None:
    for columns in (None, ["n"]):
        p = bl.Pipeline("p")
        minutes(read(p)).write("out", bl.JSONLines(tmp_path / "out"), columns=columns)
        p.run(bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"), drain=columns is not None))
    widths = [pl.read_ndjson(file).width for file in sorted((tmp_path / "out").glob("*.jsonl"))]
    assert widths[-1] == 1
    assert len(widths) == 1 or widths[0] > 1


def test_a_table_of_current_values_that_has_columns_of_the_engine_stays_usable(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/out.db"
    with sqlite3.connect(tmp_path / "out.db") as connection:
        connection.execute(
            "create table t (window_start text, k text unique, n bigint, event_time text, pane_timing text)"
        )
    p = bl.Pipeline("p")
    current(read(p)).write("t", bl.Table(url, "t"))
    p.run()
    assert sorted(table(tmp_path / "out.db", "t").rows()) == [
        (None, "a", 2, None, "on_time"),
        (None, "b", 1, None, "on_time"),
    ]


UPSERTS = [lambda: bl.Table("sqlite:///o.db", "t"), lambda: bl.Delta("d", mode="upsert")]


@pytest.mark.parametrize("sink", UPSERTS)
@pytest.mark.parametrize(
    ("columns", "lacks"), [(["n", "k"], "window_start, window_end"), (["n"], "k, window_start")]
)
def test_keys_may_not_be_left_out(sink: Any, columns: list[str], lacks: str) -> None:
    with pytest.raises(bl.PlanError, match=f"step 'out': columns= leaves out {lacks}"):
        minutes(read(bl.Pipeline("p"))).write("out", sink(), columns=columns)


def test_the_pane_is_a_part_of_the_key_if_each_has_a_row() -> None:
    sink = bl.Table("sqlite:///o.db", "t", per_pane=True)
    with pytest.raises(bl.PlanError, match="columns= leaves out pane_index"):
        minutes(read(bl.Pipeline("p"))).write("out", sink, columns=["n", "k", "window_start", "window_end"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["evnt_time"], "there is no column 'evnt_time'; .* did you mean 'event_time'"),
        (["at", "at"], "'at' is named twice"),
        ([], "columns must be a list of names"),
        ([1], "columns must be a list of names"),
        ({"at": "time"}, "columns must be a list of names"),
        (["window_start"], "there is no column 'window_start'"),
    ],
)
def test_columns_that_are_none_are_refused(columns: Any, message: str) -> None:
    with pytest.raises(bl.PlanError, match=message):
        read(bl.Pipeline("p")).write("out", bl.Memory(), columns=columns)


def test_a_refused_write_leaves_the_pipeline_as_it_was() -> None:
    plays, out = read(bl.Pipeline("p")), bl.Memory()
    with pytest.raises(bl.PlanError):
        plays.write("out", bl.Parquet("o", partition_by="k"), columns=["at"])
    plays.write("out", out, columns="k")
    assert "out.columns  select k" in str(plays.pipeline.explain())
    plays.pipeline.run()
    assert out.frame().columns == ["k"]
