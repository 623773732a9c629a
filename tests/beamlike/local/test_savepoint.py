"""Savepoints of a run in process: it is moved to Spark, to any number of shards, and back."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from tests.support.ongoing import NAMES, SCHEMA, ongoing
from tests.support.storage import full

STRETCH = 45
"""Seconds in a file: shorter than what sessions, timers and the join wait for."""
FILES = 5


def write(data: Path, number: int) -> None:
    """Writes a file of each source, in order of time, with changing users."""
    for source, step in (("clicks", 7), ("views", 11)):
        (data / source).mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"user": f"user {at * step % 5}", "at": at, "n": at * step % 13})
            for at in range(number * STRETCH, (number + 1) * STRETCH, 3)
            if at * step % 5 != number
        ]
        path = data / source / f"{number}.jsonl"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def pipeline(folder: Path, out: str = "out") -> bl.Pipeline:
    sources = [bl.JSONLines(folder / "data" / name, SCHEMA) for name in ("clicks", "views")]
    return ongoing(*sources, {name: bl.Parquet(folder / out / name) for name in NAMES})


def rows(folder: Path, out: str = "out") -> dict[str, list[str]]:
    """Returns the rows of each sink, sorted."""
    found = {}
    for name in NAMES:
        parts = [pl.read_parquet(file) for file in sorted((folder / out / name).glob("*.parquet"))]
        found[name] = sorted(map(repr, pl.concat(parts).rows()))
    return found


def expected(folder: Path) -> dict[str, list[str]]:
    """Returns the rows of a single run."""
    pipeline(folder, "expected").run()
    whole = rows(folder, "expected")
    assert all(whole.values())
    return whole


class Moves:
    """A run that moves from checkpoint to checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, 0

    @property
    def checkpoint(self) -> str:
        return str(self.folder / f"checkpoint-{self.number}")

    def local(self, **options: Any) -> None:
        pipeline(self.folder).run(bl.LocalRunner(checkpoint=self.checkpoint, **options))

    def move(self, **to: Any) -> None:
        saved = str(self.folder / f"savepoint-{self.number}")
        bl.savepoint.save(self.checkpoint, saved, session=to.get("session"))
        self.number += 1
        assert bl.savepoint.restore(saved, self.checkpoint, pipeline(self.folder).plan(), **to) == []


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_goes_to_spark_and_back_amid_sessions_timers_and_joins(spark: Any, tmp_path: Path) -> None:
    moves = Moves(tmp_path)
    for number, shards in enumerate([None, 2, None, 3, None]):
        write(tmp_path / "data", number)
        if number:
            to = {"runner": "local"} if shards is None else {"shards": shards, "session": spark}
            moves.move(**to)
        if shards is None:
            moves.local(drain=number == FILES - 1)
        else:
            runner = bl.SparkRunner(moves.checkpoint, session=spark, shards=shards)
            pipeline(tmp_path).run(runner)
    assert rows(tmp_path) == expected(tmp_path)


def test_a_savepoint_of_a_run_in_process_is_restored_in_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    moves = Moves(tmp_path)
    for number in range(FILES):
        write(tmp_path / "data", number)
        if number:
            moves.move(runner="local")
        moves.local(drain=number == FILES - 1)
    assert "files of other runs" not in caplog.text  # the restored run continues them
    assert rows(tmp_path) == expected(tmp_path)
    bl.LocalRunner(checkpoint=str(tmp_path / "new")).run(pipeline(tmp_path))
    assert "has files of other runs already" in caplog.text


@pytest.fixture
def cut(tmp_path: Path) -> Moves:
    """A run that was stopped when a part of a file was read."""
    write(tmp_path / "data", 0)
    lines = (f'{{"user": "user {n % 7}", "at": {n // 100}, "n": 1}}\n' for n in range(20_000))
    (tmp_path / "data" / "clicks" / "0.jsonl").write_text("".join(lines))
    moves = Moves(tmp_path)
    moves.local(chunk_rows=3_000, on_batch=lambda record: signal.raise_signal(signal.SIGTERM))
    return moves


def test_what_is_left_of_a_file_goes_along(cut: Moves) -> None:
    cut.move(runner="local")
    cut.local(drain=True)
    assert rows(cut.folder) == expected(cut.folder)


@pytest.mark.slow
@pytest.mark.spark
def test_what_is_left_of_a_file_goes_along_to_spark(spark: Any, cut: Moves) -> None:
    cut.move(shards=2, session=spark)
    write(cut.folder / "data", 1)
    runner = bl.SparkRunner(cut.checkpoint, session=spark, drain=True)
    pipeline(cut.folder).run(runner)
    assert rows(cut.folder) == expected(cut.folder)


def test_the_command_line_moves_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "moved.py").write_text(
        "import beamlike as bl\n"
        "p = bl.Pipeline('moved')\n"
        "p.read('plays', bl.JSONLines('data', {'n': int})).write('out', bl.JSONLines('out'))\n"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "0.jsonl").write_text('{"n": 1}\n')
    told = []
    for command in (
        "run moved:p --checkpoint one",
        "savepoint one saved",
        "restore saved two moved:p --runner local",
        "run moved:p --runner local --checkpoint two",
    ):
        done = CliRunner().invoke(main, command.split())
        assert done.exit_code == 0, done.output
        told.append(done.output)
    assert f"{tmp_path}/saved: the run after batch 0, in process" in told[1]
    assert "continue with beamlike run moved:p --runner local --checkpoint two" in told[2]
    assert told[3] == "no batch has run: there was no new input\n"
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_what_cannot_be_saved_or_restored_is_told(tmp_path: Path) -> None:
    write(tmp_path / "data", 0)
    moves, saved = Moves(tmp_path), tmp_path / "saved"
    moves.local()
    bl.savepoint.save(moves.checkpoint, saved)
    with pytest.raises(bl.CheckpointError, match="is not empty; save into a new folder"):
        bl.savepoint.save(moves.checkpoint, saved)
    plan = pipeline(tmp_path).plan()
    with pytest.raises(bl.CheckpointError, match="is not empty; restore into a new folder"):
        bl.savepoint.restore(saved, moves.checkpoint, plan, runner="local")
    with pytest.raises(bl.CheckpointError, match="there is no savepoint in"):
        bl.savepoint.restore(tmp_path / "data", tmp_path / "two", plan, runner="local")
    with pytest.raises(bl.CheckpointError, match="there is no savepoint in"):
        # Nothing could start a cluster there: that is looked at before.
        bl.savepoint.restore(tmp_path / "data", tmp_path / "two", plan, master="spark://localhost:1")
    with pytest.raises(bl.CheckpointError, match="there is no run to save in"):
        bl.savepoint.save(tmp_path / "data", tmp_path / "two", master="spark://localhost:1")
    with pytest.raises(ValueError, match="shards= is for runner='spark'"):
        bl.savepoint.restore(saved, tmp_path / "two", plan, runner="local", shards=2)
    with pytest.raises(ValueError, match="config= is for runner='spark'"):
        bl.savepoint.restore(saved, tmp_path / "two", plan, runner="local", config={"spark.x": "1"})
    with pytest.raises(ValueError, match="runner must be 'spark' or 'local', not 'flink'"):
        bl.savepoint.restore(saved, tmp_path / "two", plan, runner="flink")
    (saved / "savepoint.json").write_text("{}")
    with pytest.raises(bl.CheckpointError, match=r"is damaged: its savepoint\.json is not what was written"):
        bl.savepoint.restore(saved, tmp_path / "two", plan, runner="local")

    with full(100), pytest.raises(bl.CheckpointError, match=r"cannot write .*is there room"):
        bl.savepoint.save(moves.checkpoint, tmp_path / "three")

    def fail(record: Any) -> None:
        raise ZeroDivisionError

    write(tmp_path / "data", 1)
    with pytest.raises(ZeroDivisionError):
        moves.local(on_batch=fail)
    with pytest.raises(bl.CheckpointError, match="ended within batch 1, and sinks may have a part of it"):
        bl.savepoint.save(moves.checkpoint, tmp_path / "other")
    moves.local(drain=True)
    with pytest.raises(bl.CheckpointError, match="was drained"):
        bl.savepoint.save(moves.checkpoint, tmp_path / "other")
    p = bl.Pipeline("rows")
    p.read("rows", bl.Rows([{"n": 1}])).write("out", bl.Memory())
    p.run(bl.LocalRunner(checkpoint=tmp_path / "rows"))
    with pytest.raises(bl.CheckpointError, match="source 'rows': rows in memory are kept in the checkpoint"):
        bl.savepoint.save(tmp_path / "rows", tmp_path / "other")
