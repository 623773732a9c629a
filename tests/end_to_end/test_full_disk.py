"""A disk that fills up during a run: an error names the checkpoint, and the next run loses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from tests.support.storage import Disk, mounted

FILES, ROWS = 4, 300


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with mounted(tmp_path / "disk") as disk:
        yield disk


def put(folder: Path, bad: int) -> None:
    """Writes files of rows, each row of another user, with `bad` invalid lines in each file."""
    folder.mkdir()
    for number in range(FILES):
        rows = [json.dumps({"user": f"u{at}", "at": number * ROWS + at}) for at in range(ROWS)]
        (folder / f"{number}.jsonl").write_text("\n".join([*rows, *["{bad" * 20] * bad, ""]))


def pipeline(folder: Path) -> bl.Pipeline:
    p = bl.Pipeline("full", max_dead_letters=10_000)
    source = bl.JSONLines(folder / "plays", {"user": str, "at": int}, max_files_per_trigger=1)
    watermark = bl.BoundedOutOfOrderness("10m")
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    users = plays.window_into(bl.Sessions("1h")).group_by("user", name="users")
    users.aggregate(n=bl.count()).write("out", bl.JSONLines(folder / "out"))
    return p


def fills(folder: Path, disk: Disk, runner: Any, bad: int) -> str:
    """Runs on a full disk and again with room; returns the first run's error, empty if the disk was large enough."""
    put(folder / "plays", bad)
    checkpoint, told = disk.folder / "checkpoint", ""
    try:
        pipeline(folder).run(runner(str(checkpoint)))
    except bl.CheckpointError as error:
        told = str(error)
        assert str(checkpoint) in told
        disk.resize(64 << 10)
        pipeline(folder).run(runner(str(checkpoint)))
    lines = [line for file in (folder / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["n"] for line in lines) == [FILES] * ROWS
    letters = (checkpoint / "beamlike" / "dead-letters").glob("*.jsonl")
    assert sum(len(file.read_text().splitlines()) for file in letters) == FILES * bad
    return told


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("size", "bad"), [(40, 0), (90, 0), (140, 400)])
def test_a_checkpoint_on_spark_without_room_is_named(
    size: int, bad: int, disk: Disk, spark: Any, tmp_path: Path
) -> None:
    def runner(checkpoint: str) -> bl.SparkRunner:
        return bl.SparkRunner(checkpoint, session=spark, shards=1, drain=True)

    disk.resize(size)
    told = fills(tmp_path, disk, runner, bad)
    assert "is there room" in told
    assert size != 140 or "beamlike/dead-letters: " in told


@pytest.mark.parametrize(("size", "bad"), [(8, 0), (120, 0), (120, 400), (200, 400)])
def test_a_checkpoint_in_process_without_room_is_named(
    size: int, bad: int, disk: Disk, tmp_path: Path
) -> None:
    disk.resize(size)
    told = fills(tmp_path, disk, lambda checkpoint: bl.LocalRunner(checkpoint=checkpoint, drain=True), bad)
    assert "is there room" in told


def test_dead_letters_of_a_checkpoint_without_room_name_it(disk: Disk, tmp_path: Path) -> None:
    put(tmp_path / "plays", 0)
    for file in (tmp_path / "plays").iterdir():
        file.write_text(file.read_text() + "{bad\n" * 20_000)
    p = bl.Pipeline("full", max_dead_letters=1_000_000)
    p.read("plays", bl.JSONLines(tmp_path / "plays", {"user": str, "at": int})).write("out", bl.Memory())
    disk.resize(1 << 10)
    with pytest.raises(
        bl.CheckpointError, match=f"cannot write {disk.folder}/c/beamlike/dead-letters: .*room"
    ):
        p.run(bl.LocalRunner(checkpoint=disk.folder / "c"))
