"""Folders that sinks must not share: with each other, or with what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

import beamlike as bl
from tests.pipelines import plays


def read(source: bl.CSV) -> bl.Collection:
    strategy = bl.MonotonousTimestamps()
    return bl.Pipeline("p").read("plays", source, timestamp="at", timestamp_unit="s", watermark=strategy)


def test_one_folder_in_two_spellings_is_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = plays()
    rows.write("one", bl.Parquet("out"))
    with pytest.raises(bl.PlanError, match="so does 'one'; give it a folder of its own"):
        rows.write("two", bl.Parquet(tmp_path / "out"))


@pytest.mark.parametrize(("first", "second"), [("out", "out/day=1"), ("out/day=1/kind=a", "out")])
def test_no_sink_writes_where_the_columns_of_another_have_their_folders(
    first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = plays()
    rows.write("one", bl.Parquet(first))
    rows.write("csv", bl.CSV(second))
    rows.write("beside", bl.Parquet("out/other"))
    with pytest.raises(
        bl.PlanError, match=f"step 'two': writes to '{second}', and 'one' to '{first}'; one would"
    ):
        rows.write("two", bl.Parquet(second))


@pytest.mark.parametrize("place", ["plays", "plays/out"])
def test_no_sink_writes_into_a_folder_that_is_read(place: str, tmp_path: Path) -> None:
    source = bl.CSV(tmp_path / "plays", schema={"at": int})
    rows = read(source)
    rows.write("out", bl.CSV(tmp_path / place))
    with pytest.raises(
        bl.PlanError, match=r"step 'plays': reads '.*plays', and 'out' writes to '.*plays.*part of"
    ):
        rows.pipeline.plan()


def test_what_readers_pass_over_may_lie_in_a_folder_that_is_read(tmp_path: Path) -> None:
    source = bl.CSV(tmp_path, schema={"at": int})
    rows = read(source)
    rows.write("out", bl.CSV(tmp_path / "_out"))
    rows.write("beside", bl.CSV(tmp_path.parent / f"{tmp_path.name}-out"))
    assert set(rows.pipeline.plan().sinks) == {"out", "beside"}
