"""A new run replaces the files of the last run at its end, and not before it knows that it can."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import RecordsInUse
from beamlike.io import CSV, JSONLines, Parquet, Part
from beamlike.io.files.files import Files
from beamlike.io.files.part_files import _retrying
from tests.beamlike.io.test_sources import whole

PLAYS = [{"user": user, "at": at} for at, user in enumerate(["ada", "bob", "ada", "eve"])]


@pytest.fixture(params=["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def runner(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    if request.param == "local":
        return bl.LocalRunner()
    return bl.SparkRunner(session=request.getfixturevalue("spark"), shards=2, drain=True)


def pipeline(factor: int, seen: Callable[[int], object]) -> bl.Pipeline:
    """Declares a batch per play, to files of every kind; the last sink calls `seen`."""
    p = bl.Pipeline("p")
    source = bl.Rows(PLAYS, rows_per_batch=1)
    read = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    plays = read.with_columns(n=bl.col("at") * factor)
    plays.write("csv", CSV("out/csv"))
    plays.write("json", JSONLines("out/json", partition_by="user"))
    plays.write("parquet", Parquet("out/parquet"))
    return plays.write("zz", bl.Callback(lambda frame, batch: seen(batch))).pipeline


def numbers() -> list[list[int]]:
    """Returns the published numbers of each sink."""
    return [sorted(whole(kind(f"out/{name}"))["n"]) for name, kind in KINDS.items()]


KINDS = {"csv": CSV, "json": JSONLines, "parquet": Parquet}


def files() -> dict[str, bytes]:
    """Returns all files, including hidden ones."""
    return {str(file): file.read_bytes() for file in Path("out").rglob("*") if file.is_file()}


def test_a_run_that_fails_leaves_the_old_result_and_one_that_ends_replaces_it_at_once(runner: Any) -> None:
    pipeline(1, lambda batch: None).run(runner)
    assert numbers() == [[0, 1, 2, 3]] * 3
    Path("out/parquet/part-other-000000-000.parquet").write_bytes(
        next(Path("out/parquet").iterdir()).read_bytes()
    )
    before = files()
    shown = []

    def fail(batch: int) -> None:
        shown.append(numbers()[:2])
        if batch == 2:
            raise OSError("disk full")

    with pytest.raises(bl.RunError, match="disk full"):
        pipeline(10, fail).run(runner)
    assert files() == before
    assert shown == [[[0, 1, 2, 3]] * 2] * 3
    # Leftovers of a killed run are not read as results.
    Parquet("out/parquet").beside("p").write(pl.DataFrame({"n": [7]}), Part("p", 9))
    pipeline(10, lambda batch: shown.append(numbers()[:2])).run(runner)
    assert shown[-1] == [[0, 1, 2, 3]] * 2
    assert numbers()[:2] == [[0, 10, 20, 30]] * 2
    assert {0, 10, 20, 30} <= {*numbers()[2]}  # beside the files of another run
    assert not any(re.search(r"/\.part-", file) for file in files())
    assert {str(file.parent) for file in Path("out/json").rglob("part-*")} == {
        f"out/json/user={user}" for user in ("ada", "bob", "eve")
    }


def test_dead_letters_are_those_of_the_last_run_also_if_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(lines: str, runner: bl.LocalRunner | None = None, **options: Any) -> None:
        Path("in.jsonl").write_text(lines)
        p = bl.Pipeline("p", **options)
        source = JSONLines("in.jsonl", schema={"at": int})
        read = p.read(
            "lines", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
        )
        read.write("out", JSONLines("out"))
        p.run(runner)

    def result() -> tuple[list[int], list[str]]:
        letters = [row for file in Path("p-dead-letters").glob("*") for row in pl.read_ndjson(file)["row"]]
        return whole(JSONLines("out"))["at"].to_list(), letters

    run('{"at": 1}\nfirst')
    assert result() == ([1], ["first"])
    with pytest.raises(bl.RunError, match="more than max_dead_letters=0 allows"):
        run('{"at": 2}\nsecond', max_dead_letters=0)
    assert result() == ([1], ["second"])
    with pytest.raises(ZeroDivisionError):
        run('{"at": 2}', bl.LocalRunner(on_batch=lambda record: 1 // 0))  # type: ignore[arg-type,return-value]
    assert result() == ([1], ["second"])
    run('{"at": 3}')
    assert result() == ([3], [])


def test_a_sink_that_cannot_be_opened_costs_no_other_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline(1, lambda batch: None).run()
    before = files()
    p = pipeline(2, lambda batch: None)
    Path("taken").touch()
    p_read = p.read(
        "more", bl.Rows(PLAYS), timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    p_read.write("zzz", CSV("taken"))
    with pytest.raises(bl.SinkError, match=r"sink 'zzz': .*it is a file"):
        p.run()
    assert files() == before


@pytest.mark.parametrize("kind", KINDS.values())
def test_files_of_an_object_store_are_replaced_at_the_end_too(
    kind: type[Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import fs

    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    for module in ("part_files", "paths"):
        monkeypatch.setattr(
            f"beamlike.io.files.{module}.file_system",
            lambda path: (store, path.removeprefix("mock://").strip("/")),
        )

    def save(self: Files, frame: pl.DataFrame, target: str) -> None:
        file = tmp_path / target.removeprefix("mock://")
        file.parent.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(file)

    monkeypatch.setattr(kind, "_save", save)
    old, sink = kind("mock://out", partition_by="k"), kind("mock://out", partition_by="k").beside("q")
    old.start("q")
    for batch in (0, 1):
        old.write(pl.DataFrame({"n": [1], "k": [batch]}), Part("q", batch))
    sink.start("q")
    sink.write(pl.DataFrame({"n": [2], "k": [1]}), Part("q", 0))
    assert len(names(tmp_path / "out")) == 2
    sink.publish("q")
    assert names(tmp_path / "out") == [f"k=1/part-q-000000-000.{kind.extension}"]
    parts = old.prepare(pl.DataFrame({"n": [3], "k": [2]}), Part("q", 0))
    old.settle("q", 0, parts, again=True)
    assert names(tmp_path / "out") == [f"k=2/part-q-000000-000.{kind.extension}"]
    # A store that decodes what is escaped in names.
    (tmp_path / "out" / "k=2").rename(tmp_path / "out" / "k=7:00")
    name = f"k=7%3A00/part-q-000000-000.{kind.extension}"
    old.settle("q", 0, {name: name}, again=True)
    assert names(tmp_path / "out") == [f"k=7:00/part-q-000000-000.{kind.extension}"]
    sink.write(pl.DataFrame({"n": [3], "k": [1]}), Part("q", 0))
    sink.forget("q")
    assert [*map(str, tmp_path.rglob(".*"))] == []
    old.start("q")
    assert names(tmp_path / "out") == []


def names(folder: Path) -> list[str]:
    """Returns the names of the files that readers see."""
    found = (file.relative_to(folder) for file in folder.rglob("part-*"))
    return sorted(str(file) for file in found if not str(file).startswith("."))


def test_a_run_that_is_refused_its_records_leaves_the_files_of_the_run_that_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    local = bl.LocalRunner(records="run.jsonl")

    def run_another(batch: int) -> None:
        if batch == 3:
            with pytest.raises(RecordsInUse):
                pipeline(10, lambda batch: None).run(attrs.evolve(local, run_id="other"))

    run = pipeline(1, run_another).run(local)
    assert len(run.batches) > 3
    assert numbers() == [[0, 1, 2, 3]] * 3


def test_a_folder_that_another_run_removes_while_it_is_created_is_created_again(tmp_path: Path) -> None:
    folder, tries = tmp_path / "k=5", list[bool]()

    def write() -> None:
        tries.append(folder.exists())
        if len(tries) == 1:
            # What `os.makedirs` does if the folder is there, but is gone when it looks whether that is a folder.
            folder.mkdir()
            try:
                folder.mkdir()
            finally:
                folder.rmdir()
        folder.mkdir()

    _retrying(write)
    assert tries == [False, False]
    assert folder.is_dir()
