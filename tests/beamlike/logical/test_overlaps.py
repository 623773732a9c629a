"""Folders that sinks must not share with each other or with sources."""

from __future__ import annotations

import contextlib
import re
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io import Part
from beamlike.logical.overlaps import require_apart
from tests.support.pipelines import plays


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `link` leads to `plays`, and `other` into it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plays" / "some").mkdir(parents=True)
    (tmp_path / "link").symlink_to("plays")
    (tmp_path / "other").symlink_to("plays/some")
    return tmp_path


def read(source: Any) -> bl.Collection:
    strategy = bl.MonotonousTimestamps()
    return bl.Pipeline("p").read("plays", source, timestamp="at", timestamp_unit="s", watermark=strategy)


def test_one_folder_in_two_spellings_is_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = plays()
    rows.write("one", bl.Parquet("out"))
    with pytest.raises(bl.PlanError, match="so does 'one'; give it a folder of its own"):
        rows.write("two", bl.Parquet(tmp_path / "out"))


@pytest.mark.parametrize("inner", ["out/day=1", "out/late", "out/../out/late/", "link/late"])
@pytest.mark.parametrize("turned", [False, True])
def test_no_sink_writes_in_the_folder_of_another(
    inner: str, turned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    Path("link").symlink_to("out")
    rows, (first, second) = plays(), (inner, "out") if turned else ("out", inner)
    rows.write("one", bl.Parquet(first))
    rows.write("beside", bl.Parquet("outer/late"))
    rows.write("passed over", bl.Parquet("out/_late"))
    told = f"step 'two': writes to {second!r}, and 'one' to {first!r}: a reader of the outer folder"
    with pytest.raises(bl.PlanError, match=re.escape(told)):
        rows.write("two", bl.CSV(second))


def test_sinks_of_two_kinds_do_not_share_a_folder() -> None:
    rows = plays()
    rows.write("one", bl.Parquet("out"))
    with pytest.raises(bl.PlanError, match="so does 'one'; give it a folder of its own"):
        rows.write("two", bl.SparkSink("delta", "file:///" + str(Path("out").absolute())))


READ = [
    ("plays", bl.CSV("plays")),
    ("plays/", bl.CSV("plays/out")),
    ("plays", bl.CSV("./other/../plays//out")),
    ("plays", bl.CSV("link/out")),
    ("link", bl.CSV("plays/out")),
    ("link/*", bl.CSV("plays/out")),
    ("plays", bl.CSV("other")),  # a link into plays
    ("plays/*", bl.JSONLines("plays/out")),
    ("pl*", bl.JSONLines("plays/out")),
    ("plays/*.csv", bl.CSV("plays")),
    ("plays/p*", bl.CSV("plays")),
    ("plays/**/*.csv", bl.CSV("plays/some/out")),
    ("**", bl.CSV("plays/some/out")),
    ("*/out/*.csv", bl.CSV("plays/out")),
    ("plays/[n-p]ut/*.csv", bl.CSV("plays/out")),
    ("plays/*/*.csv", bl.CSV("plays", partition_by="user")),
    ("plays/user=ada", bl.CSV("plays", partition_by="user")),
    ("plays/*/out/part-*", bl.SparkSink("parquet", "plays/2026/out")),
    ("plays/*", bl.Table("sqlite:///plays/out.db", "t", "append")),
    (["some", "plays"], bl.CSV("plays/out")),
    ("s3://bucket/plays/*", bl.CSV("s3a://bucket/plays/out")),
]


@pytest.mark.parametrize(("path", "sink"), READ, ids=str)
def test_no_sink_writes_where_a_source_would_read_it(path: Any, sink: Any, place: Path) -> None:
    rows = read(bl.CSV(path, schema={"at": int, "user": str}))
    rows.write("out", sink)
    read_by = path[-1] if isinstance(path, list) else path
    with pytest.raises(
        bl.PlanError,
        match=rf"step 'plays': reads {re.escape(repr(read_by))}, and 'out' writes to '.*', which is a part of that",
    ):
        rows.pipeline.plan()


APART = [
    ("plays", bl.CSV("_out")),
    ("plays", bl.CSV("plays/_out")),
    ("plays/*", bl.CSV("plays/_out")),
    ("plays/*", bl.CSV("plays/.tmp/out")),
    ("plays/**/*.csv", bl.CSV("plays/.tmp/out")),
    ("plays", bl.CSV("plays-out")),
    ("plays/*.csv", bl.JSONLines("plays")),
    ("plays/*.csv", bl.CSV("plays/out")),
    ("plays/plays-*.csv", bl.CSV("plays")),
    ("plays/2026-*/*.csv", bl.CSV("plays/out")),
    ("plays/*/*.csv", bl.CSV("plays")),
    ("plays/in", bl.CSV("plays")),
    ("plays/in.csv", bl.CSV("plays")),
    ("s3://bucket/plays/*", bl.CSV("s3://other/plays/out")),
    ("plays/*.csv", bl.Table("sqlite:///plays/out.db", "t", "append")),
]


@pytest.mark.parametrize(("path", "sink"), APART, ids=str)
def test_what_a_source_passes_over_may_be_written(path: Any, sink: Any, place: Path) -> None:
    rows = read(bl.CSV(path, schema={"at": int, "user": str}))
    rows.write("out", sink)
    assert set(rows.pipeline.plan().sinks) == {"out"}


NAMES = st.sampled_from(["a", "b", "_c", ".d", "k=1", "part-x-000000-000.csv", "x.csv"])
FOLDERS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
PATTERNS = st.lists(
    st.one_of(
        NAMES, st.sampled_from(["*", "**", "?", "[ab]", "*.csv", "part-*", "k=*", "*x*", "_*", "[!a]*"])
    ),
    min_size=1,
    max_size=4,
).map("/".join)


@given(PATTERNS, FOLDERS, st.sampled_from([(), ("k",)]))
def test_whatever_a_source_would_find_is_refused(pattern: str, folder: str, columns: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as root, contextlib.chdir(root):
        source, sink = bl.CSV(pattern), bl.CSV(folder, partition_by=columns)
        sink.write(pl.DataFrame({"k": [1], "n": [2]}), Part("p", 0))
        written = {str(file) for file in Path(folder).rglob("*.csv")}
        try:
            found = {file.path for file in source.found()}
        except FileNotFoundError:
            found = set()
        if found & written:
            with pytest.raises(bl.PlanError, match="which is a part of that"):
                require_apart(source, {"out": sink}, "plays")


def test_a_path_of_a_users_own_class_may_be_anything(place: Path) -> None:
    class Own(bl.Callback):
        path: Any

    rows = read(bl.CSV("plays", schema={"at": int}))
    for number, path in enumerate([7, None, Path("own")]):
        sink = Own(print)
        object.__setattr__(sink, "path", path)
        rows.write(f"{number}", sink)
    rows.write("out", bl.CSV("out"))
    rows.pipeline.plan()
    with pytest.raises(bl.PlanError, match="'own/out', and '2' to 'own'"):
        rows.write("more", bl.CSV("own/out"))


def test_what_a_run_keeps_for_itself_does_not_lie_where_a_source_reads(place: Path) -> None:
    def run(path: str, **options: Any) -> None:
        read(bl.JSONLines(path, schema={"at": int})).write("out", bl.Memory()).pipeline.run(
            bl.LocalRunner(**options)
        )

    Path("plays/in.jsonl").touch()
    for path in (".", "*", "**"):
        with pytest.raises(
            bl.PlanError, match=r"step 'plays': reads .* 'p-dead-letters' is .* without a consumer"
        ):
            run(path)
    for path in ("plays", "link/*.jsonl"):
        with pytest.raises(
            bl.PlanError, match=r"of which 'plays/run.jsonl' is a part, the records of the run"
        ):
            run(path, records="plays/run.jsonl")
    run("plays", records="run.jsonl")
    run("plays/in*", records="plays/run.jsonl")


def test_a_checkpoint_does_not_lie_where_a_source_reads(place: Path) -> None:
    rows = read(bl.JSONLines("plays", schema={"at": int}))
    rows.write("out", bl.JSONLines("out"))
    with pytest.raises(
        bl.PlanError, match=r"step 'plays': reads 'plays', of which '.*link/c' is a part, the checkpoint"
    ):
        bl.SparkRunner("link/c").start(rows.pipeline.plan())


def test_collections_with_other_columns_do_not_share_a_sink_in_memory() -> None:
    """A sink in memory has one frame, and polars could not concatenate the rows after the run."""
    rows, out = plays(), bl.Memory()
    rows.filter(bl.col("score") > 1).write("good", out)
    rows.filter(bl.col("score") <= 1).write("bad", out)
    with pytest.raises(
        bl.errors.UnlikeCollections,
        match=r"step 'users': its columns are not those of 'good', which writes to",
    ):
        rows.select("user").write("users", out)
    rows.select("user").write("users", bl.Memory())
