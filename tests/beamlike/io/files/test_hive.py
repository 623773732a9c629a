"""Columns in folder names, `date=2026-01-01/country=de`: read, written, replaced, and read by other programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import beamlike as bl
from beamlike.io import CSV, JSONLines, Parquet, Part
from beamlike.io.files import hive
from beamlike.io.files.files import Files
from beamlike.io.files.hive import split, values_of
from tests.beamlike.io.test_sources import put, sorted_out, whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = [Parquet, CSV, JSONLines]
INT128 = st.integers(-(2**127), 2**127 - 1)
NAMES = ["", "ü/ö", "a=b", "100%", "x.y", "_", " ", 'q"', "c:d", "[1]", "{2}", "e\\f", "new\nline", None]


def save(files: type[Files], file: Path, frame: pl.DataFrame, **options: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    files(file.parent, **options)._save(frame, str(file))


@pytest.mark.parametrize("files", FORMATS)
def test_declared_columns_that_folders_name_come_from_there(files: type[Files], tmp_path: Path) -> None:
    frame = pl.DataFrame({"n": [1, 2], "country": ["in the file"] * 2})
    save(files, tmp_path / "day=2026-01-01/country=de/a", frame)
    save(files, tmp_path / "day=2026-01-02/country=c%C3%B4te%2Fx/a", frame.select("n"))
    save(files, tmp_path / "day=__HIVE_DEFAULT_PARTITION__/country=__HIVE_DEFAULT_PARTITION__/a", frame)
    found, letters = sorted_out(files(tmp_path, schema={"country": str, "n": int, "day": date}))
    assert letters == []
    assert sorted(found, key=str) == [
        ("côte/x", 1, date(2026, 1, 2)),
        ("côte/x", 2, date(2026, 1, 2)),
        ("de", 1, date(2026, 1, 1)),
        ("de", 2, date(2026, 1, 1)),
        (None, 1, None),
        (None, 2, None),
    ]


@pytest.mark.parametrize("files", FORMATS)
def test_a_folder_whose_value_is_not_of_its_type_makes_its_rows_letters(
    files: type[Files], tmp_path: Path
) -> None:
    save(files, tmp_path / "hour=07/a", pl.DataFrame({"n": [1, 2]}))
    save(files, tmp_path / "hour=late/a", pl.DataFrame({"n": [3, 4]}))
    found, letters = sorted_out(files(tmp_path, schema={"n": int, "hour": int}))
    assert found == [(1, 7), (2, 7)]
    why = "a: the folder 'hour' is 'late', expected Int64"
    assert letters == [(why, '{"n":3}'), (why, '{"n":4}')]


@pytest.mark.parametrize("files", FORMATS)
def test_without_a_schema_folders_are_columns_of_text(files: type[Files], tmp_path: Path) -> None:
    save(files, tmp_path / "hour=07/kind=a/f", pl.DataFrame({"n": [1]}))
    save(files, tmp_path / "hour=08/f", pl.DataFrame({"n": [2]}))
    source = files(tmp_path)
    assert source.schema() == {"hour": pl.String, "kind": pl.String, "n": pl.Int64}
    save(files, tmp_path / "other/hour=07/f", pl.DataFrame({"n": [1]}))
    only = files(tmp_path / "other", schema={"hour": str})
    with pytest.raises(
        ValueError, match="its folders give all columns of schema=; declare one of the file's, too"
    ):
        whole(only)


def test_files_without_a_header_have_the_columns_that_no_folder_names(tmp_path: Path) -> None:
    put(tmp_path / "day=2026-01-01/a", "1,x\n")
    source = CSV(tmp_path, schema={"n": int, "day": date, "t": str}, header=False)
    assert sorted_out(source) == ([(1, date(2026, 1, 1), "x")], [])


VALUES: dict[str, tuple[Any, list[Any]]] = {
    "text": (pl.String, NAMES),
    "whole": (pl.Int64, [0, -1, None]),
    "flag": (pl.Boolean, [True, False, None]),
    "day": (pl.Date, [date(2026, 1, 1), None]),
    "moment": (pl.Datetime("us", "UTC"), [datetime(2026, 1, 1, 12, 30, tzinfo=UTC), None]),
    "price": (pl.Decimal(10, 2), [Decimal("1.50"), None]),
    "share": (pl.Float64, [0.5, 1e300, None]),
}


@pytest.mark.parametrize("files", FORMATS)
@pytest.mark.parametrize("kind", VALUES)
def test_what_partition_by_writes_is_read_again(files: type[Files], kind: str, tmp_path: Path) -> None:
    dtype, values = VALUES[kind]
    frame = pl.DataFrame({"n": range(len(values)), "key": values}, schema={"n": pl.Int64, "key": dtype})
    files(tmp_path, partition_by="key").write(frame, Part("q", 0))
    assert not any(file.is_file() for file in tmp_path.iterdir())
    found = whole(files(tmp_path, schema={"n": int, "key": dtype})).sort("n")
    assert_frame_equal(
        found, frame.with_columns(pl.col("key").replace("", None)) if kind == "text" else frame
    )
    if files is Parquet:
        theirs = pl.scan_parquet(tmp_path, hive_schema={"key": pl.String}).collect().sort("n")
        assert theirs.height == frame.height
        assert theirs.drop("key").equals(frame.drop("key"))


@given(st.lists(st.tuples(st.text(max_size=4) | st.none(), st.booleans(), INT128), max_size=9))
def test_rows_are_split_by_the_values_in_the_names_of_their_folders(rows: list[tuple[Any, ...]]) -> None:
    columns = {"a/b": pl.String, "=": pl.Boolean, "n": pl.Int128}
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    found = list[tuple[Any, ...]]()
    split_up = dict(split(frame, ("a/b", "=")))
    for folder, part in split_up.items():
        values = values_of(f"{folder}/file")
        assert list(values) == ["a/b"] + ["="] * ("=" in values)
        found += [(values["a/b"], n) for (n,) in part.rows()]
    assert sorted(found, key=str) == sorted(((text or None, n) for text, _, n in rows), key=str)


@pytest.mark.parametrize("files", FORMATS)
def test_what_has_the_folder_of_nulls_is_written_together(files: type[Files], tmp_path: Path) -> None:
    frame = pl.DataFrame({"n": [1, 2, 3], "key": ["__HIVE_DEFAULT_PARTITION__", None, ""]})
    files(tmp_path, partition_by="key").write(frame, Part("q", 0))
    found = whole(files(tmp_path, schema={"n": int, "key": str}))
    assert sorted(found.rows()) == [(1, None), (2, None), (3, None)]


@pytest.mark.parametrize("files", FORMATS)
def test_a_replay_replaces_the_parts_of_its_batch_in_all_folders(files: type[Files], tmp_path: Path) -> None:
    sink = files(tmp_path, partition_by=["a", "b"])
    sink.start("q")
    frame = pl.DataFrame({"n": [1, 2, 3], "a": ["x", "x", "y"], "b": [1, 2, 1]})
    for task in (0, 1):
        sink.write(frame, Part("q", 0, task))
    sink.write(frame.head(1), Part("q", 1))
    stale = tmp_path / f"a=y/b=1/.part-q-000000-001.{sink.extension}.0.tmp"
    stale.touch()
    first = sink.prepare(frame, Part("q", 0, 0))
    second = sink.prepare(frame[[1]].with_columns(n=7), Part("q", 0, 1))
    sink.settle("q", 0, {**first, **second}, again=True)
    left = [f"{n}-{task}" for n, task in parts(tmp_path)]
    assert left == ["x/1:0-0", "x/1:1-0", "x/2:0-0", "x/2:0-1", "y/1:0-0"]
    assert not stale.exists()
    schema = {"n": int, "a": str, "b": int}
    assert sorted(whole(files(tmp_path, schema=schema))["n"]) == [1, 1, 2, 3, 7]
    assert sink.prepare(frame.clear(), Part("q", 0, 0)) == {}
    sink.settle("q", 0, sink.prepare(frame[[1]].with_columns(n=7), Part("q", 0, 1)), again=True)
    assert sorted(whole(files(tmp_path, schema=schema))["n"]) == [1, 7]
    files(tmp_path).start("q")  # however it was partitioned
    assert list(tmp_path.iterdir()) == []


def parts(folder: Path) -> Iterator[tuple[str, str]]:
    """Returns `value of a/value of b:batch` and task of each part."""
    for file in sorted(folder.glob("a=*/b=*/part-*")):
        _, _, batch, task = file.stem.split("-")
        values = values_of(str(file.relative_to(folder)))
        yield f"{values['a']}/{values['b']}:{int(batch)}", str(int(task))


def test_columns_that_cannot_name_folders_are_refused_when_the_sink_is_declared(tmp_path: Path) -> None:
    rows = pl.DataFrame({"at": [1], "tags": [["a"]], "_kind": ["x"]})
    read = bl.Pipeline("p").read(
        "rows", bl.Rows(rows), timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    refused = {
        "knd": "step 'out': there is no column 'knd'; the columns are at, tags, _kind, event_time",
        "tags": r"step 'out': partition_by: column 'tags' is List\(String\), which cannot name a folder",
        "_kind": "step 'out': partition_by: readers skip folders that begin like '_kind' does; rename the column",
    }
    for column, error in refused.items():
        with pytest.raises(bl.PlanError, match=error):
            read.write("out", Parquet(tmp_path, partition_by=[column]))
    with pytest.raises(bl.PlanError, match="step 'out': partition_by: column 'at' is named twice"):
        read.write("out", Parquet(tmp_path, partition_by=["at", "at"]))
    with pytest.raises(bl.PlanError, match="step 'out': partition_by: takes all columns, and leaves none"):
        read.select("at").write("out", Parquet(tmp_path, partition_by=["at", "event_time"]))


@pytest.mark.slow
@pytest.mark.spark
def test_folders_are_the_same_on_both_runners_and_spark_reads_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    for hour in (1, 2):
        frame = pl.DataFrame({"at": range(hour * 3_600, hour * 3_600 + 60), "user": ["ada", "böb/x"] * 30})
        save(JSONLines, tmp_path / f"in/hour={hour}/f", frame)
    save(JSONLines, tmp_path / "in/hour=late/f", pl.DataFrame({"at": [1], "user": ["eve"]}))
    results = []
    runners = {
        "local": None,
        "spark": bl.SparkRunner(str(tmp_path / "c"), session=spark, shards=2, drain=True),
    }
    for name, runner in runners.items():
        p, lost = bl.Pipeline("folders"), bl.Memory()
        source = JSONLines(tmp_path / "in", schema={"at": int, "user": str, "hour": int})
        read = p.read(
            "rows", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("1d")
        )
        counts = read.window_into(bl.FixedWindows("1h")).group_by("user", "hour").aggregate(n=bl.count())
        counts.write("out", Parquet(tmp_path / name, partition_by=["hour", "user"]))
        read.dead_letters().write("lost", lost)
        p.run(runner)
        theirs = spark.read.parquet(str(tmp_path / name)).select("hour", "user", "n").collect()
        ours = whole(Parquet(tmp_path / name, schema={"hour": int, "user": str, "n": int}))
        assert sorted(map(tuple, theirs)) == sorted(ours.rows())
        folders = sorted(
            str(file.parent.relative_to(tmp_path / name)) for file in (tmp_path / name).rglob("part-*")
        )
        results.append((sorted(ours.rows()), folders, [json.loads(row["row"]) for row in lost.rows()]))
    assert results[0] == results[1]
    assert results[0][0] == [(hour, user, 30) for hour in (1, 2) for user in ("ada", "böb/x")]
    assert results[0][1] == [f"hour={hour}/user={user}" for hour in (1, 2) for user in ("ada", "böb%2Fx")]
    assert results[0][2] == [{"at": 1, "user": "eve"}]


LONG = ["x" * 260, "x" * 261, "é" * 130, "/" * 90, "a%" * 200, "😀" * 70, "x" * 300 + "\n"]


def longs(names: list[str]) -> pl.DataFrame:
    """Returns rows with these names, and another column that is never too long."""
    return pl.DataFrame({"n": range(len(names)), "name": names, "kind": ["a/b"] * len(names)})


@pytest.mark.parametrize("files", FORMATS)
def test_a_value_that_is_too_long_for_a_folder_is_shortened_there_and_read_back_whole(
    files: type[Files], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hive._warn_long.cache_clear()
    frame = longs([*LONG, "short"])
    for batch in range(2):
        files(tmp_path, partition_by=["kind", "name"]).write(frame, Part("q", batch))
    assert caplog.text.count("'name' has values that are too long for the name of a folder") == 1
    written = files(tmp_path, schema={"n": int, "name": str, "kind": str})
    assert_frame_equal(whole(written), pl.concat([frame, frame]), check_row_order=False)
    folders = [folder.name for folder in tmp_path.glob("*/*")]
    assert len(folders) == len(frame)
    assert max(len(name.encode()) for name in folders) <= 255


def test_a_value_that_looks_like_a_shortened_one_stays_what_it_is(tmp_path: Path) -> None:
    [(made, _)] = split(longs(["x" * 300]), ("name",))
    text = made.removeprefix("name=")
    frame = longs([text, "y"])
    Parquet(tmp_path, partition_by="name").write(frame, Part("q", 0))
    found = whole(Parquet(tmp_path, schema={"n": int, "name": str, "kind": str}))
    assert_frame_equal(found, frame, check_row_order=False)


def test_a_column_whose_name_is_too_long_for_a_folder_is_refused() -> None:
    rows = bl.Pipeline("p").read("rows", bl.Rows([{"k" * 201: "a", "n": 1}]))
    with pytest.raises(bl.PlanError, match="is too long for the name of a folder; rename it"):
        rows.write("out", Parquet("o", partition_by="k" * 201))


@pytest.mark.slow
@pytest.mark.spark
def test_long_values_are_shortened_on_spark_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    folders = []
    for name, runner in {"local": bl.LocalRunner(), "spark": bl.SparkRunner()}.items():
        p = bl.Pipeline("p")
        p.read("rows", bl.Rows(longs(LONG))).write("out", Parquet(tmp_path / name, partition_by="name"))
        p.run(runner)
        folders.append({folder.name for folder in (tmp_path / name).glob("name=*")})
    assert folders[0] == folders[1]
    assert len(folders[0]) == len(LONG)
