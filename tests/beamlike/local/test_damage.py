"""Any damaged file of a checkpoint or savepoint: the panes are right, or a CheckpointError names the file."""

from __future__ import annotations

import logging
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.observe import History
from tests.support.damages import Damage, Damaged, go_on, panes, pipeline, tried, write
from tests.support.examples import times
from tests.support.places import ROOT


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "beamlike")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Damaged:
    """A run that has read three files and has two more to read."""
    for number in range(3):
        write(tmp_path / "run", number)
    go_on(tmp_path / "run")
    kept = (tmp_path / "run").rename(tmp_path / "kept")
    for number in (3, 4):
        write(kept, number)
    return Damaged(tmp_path, lambda folder: go_on(folder, drain=True), "checkpoint")


@pytest.fixture
def savepoint(checkpoint: Damaged) -> Damaged:
    """A savepoint of that run, which is restored and resumed."""
    bl.savepoint.save(checkpoint.folder / "kept" / "checkpoint", checkpoint.folder / "kept" / "savepoint")

    def restored(folder: Path) -> None:
        plan = pipeline(folder).plan()
        bl.savepoint.restore(folder / "savepoint", folder / "restored", plan, runner="local")
        pipeline(folder).run(bl.LocalRunner(checkpoint=folder / "restored", drain=True))

    return Damaged(checkpoint.folder, restored, "savepoint")


def test_no_damage_of_a_checkpoint_is_unseen_or_without_a_name(checkpoint: Damaged) -> None:
    count = times(2)
    came = tried(checkpoint, count, count)
    assert came["right"] > 0
    assert came["named"] > count / 10


def test_no_damage_of_a_savepoint_is_unseen_or_without_a_name(savepoint: Damaged) -> None:
    count = times(1)
    assert tried(savepoint, count, count)["named"] == count


@pytest.mark.slow
def test_no_damage_of_the_checkpoint_of_a_run_that_was_killed(checkpoint: Damaged) -> None:
    code = (
        "import os, sys, pathlib; from tests.support.damages import go_on\n"
        "go_on(pathlib.Path(sys.argv[1]), on_batch=lambda record: os._exit(0) if record.batch == 3 else None)"
    )
    kept = checkpoint.folder / "kept"
    subprocess.run([sys.executable, "-c", code, kept], cwd=ROOT, check=True)
    assert (kept / "checkpoint" / "beamlike" / "journal.sqlite-wal").stat().st_size
    assert tried(checkpoint, 1, times(2))["right"] > 0


# The journal


@pytest.mark.parametrize("table", ["state", "positions", "batches", "totals"])
def test_a_row_that_no_page_leads_to_any_more_is_missed(checkpoint: Damaged, table: str) -> None:
    run = checkpoint.anew()
    journal = run / "checkpoint" / "beamlike" / "journal.sqlite"
    column = {"state": "key", "positions": "entry", "batches": "number", "totals": "name"}[table]
    with closing(sqlite3.connect(journal, isolation_level=None)) as database:
        gone = f"DELETE FROM {table} WHERE {column} = (SELECT max({column}) FROM {table})"
        assert database.execute(gone).rowcount == 1
    with pytest.raises(bl.CheckpointError, match=r"table '\w+' of .*journal\.sqlite is not what was written"):
        checkpoint.go_on(run)


@pytest.mark.parametrize(
    ("table", "column", "change"),
    [
        ("state", "key", "key || 'x'"),
        ("state", "stage", "stage || 'x'"),
        ("positions", "entry", "entry || 'x'"),
        ("positions", "value", "replace(value, '1', '2')"),
        ("batches", "facts", "replace(facts, '1', '2')"),
        ("batches", "done", "0"),
    ],
)
def test_every_column_of_the_journal_has_a_digest(
    checkpoint: Damaged, table: str, column: str, change: str
) -> None:
    run = checkpoint.anew()
    with closing(
        sqlite3.connect(run / "checkpoint" / "beamlike" / "journal.sqlite", isolation_level=None)
    ) as database:
        database.execute(f"UPDATE {table} SET {column} = {change}")
    with pytest.raises(bl.CheckpointError, match=f"table '{table}' of .* is not what was written"):
        checkpoint.go_on(run)


# A savepoint


def test_a_file_that_is_not_of_the_savepoint_is_passed_over(savepoint: Damaged) -> None:
    expected, run = savepoint.expected(), savepoint.anew()
    state = run / "savepoint" / "state" / "0" / "part-0.parquet"
    state.with_name("copy of part-0.parquet").write_bytes(state.read_bytes())
    savepoint.go_on(run)
    assert panes(run) == expected


def test_a_reading_that_is_damaged_is_told(tmp_path: Path) -> None:
    def take() -> None:
        p = bl.Pipeline("refreshed")
        ages = p.read("ages", bl.Refreshed(bl.Rows([{"user": "ada", "age": 36}]), every="5m"))
        time: Any = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
        plays = p.read("plays", bl.Rows([{"user": "ada", "at": 1}]), **time)
        plays.with_columns(age=bl.lookup(ages, on="user")["age"]).write("out", bl.Memory())
        p.run(bl.LocalRunner(checkpoint=tmp_path))

    take()
    (reading,) = (tmp_path / "beamlike" / "readings").rglob("*.parquet")
    content = reading.read_bytes()
    take()
    Damage(reading.name, "bit", 300).do(reading.parent)
    with pytest.raises(
        bl.CheckpointError, match=rf"source 'ages': the reading .*{reading.name} is not what was wri"
    ):
        take()
    reading.write_bytes(content)
    take()


# Files that explain a run


def test_keys_that_are_damaged_are_told_and_left(
    checkpoint: Damaged, caplog: pytest.LogCaptureFixture
) -> None:
    expected = checkpoint.expected()
    name = "beamlike/records.jsonl.keys/by%20user-0"
    for damage in (Damage(name, "empty"), Damage(name, "cut", 70_000), Damage(name, "bit", 90_001)):
        caplog.clear()
        assert checkpoint.after(damage, expected) == "right"
        assert "by%20user-0 is damaged, and is left as it is" in caplog.text
        run = checkpoint.folder / "run" / "checkpoint"
        asked = CliRunner().invoke(main, ["why", str(run), "--stage", "by user", "--key", "u99"])
        assert asked.exit_code == 0, asked.output
        assert "has not come" not in asked.output


def test_a_bad_line_of_the_records_is_told_and_left_out(
    checkpoint: Damaged, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = checkpoint.expected()
    text = (checkpoint.folder / "kept" / "checkpoint" / "beamlike" / "records.jsonl").read_bytes()
    starts = [0, *(place + 1 for place, byte in enumerate(text[:-1]) if byte == ord("\n"))]
    for line, start in enumerate(starts, start=1):
        damage = Damage("beamlike/records.jsonl", "bit", 8 * (start + 12))
        assert checkpoint.after(damage, expected) == "right"
        run = str(checkpoint.folder / "run" / "checkpoint")
        caplog.clear()
        assert History.open(run).bad_lines == 1
        assert f"line {line} of " in caplog.text
        for command in (["status", run], ["why", run], ["watch", run]):
            asked = CliRunner().invoke(main, command)
            assert asked.exit_code == 0, asked.output
            assert "of its records left out" in asked.output


# Storage that is full


def test_what_failed_is_told_also_if_records_cannot_be_closed(tmp_path: Path) -> None:
    write(tmp_path, 0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    records = tmp_path / "checkpoint" / "beamlike" / "records.jsonl"

    def fill(record: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (records.stat().st_size, before[1]))

    def fill_and_fail(record: Any) -> None:
        fill(record)
        raise ZeroDivisionError

    try:
        with pytest.raises(ZeroDivisionError):
            go_on(tmp_path, on_batch=fill_and_fail)
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        with pytest.raises(bl.CheckpointError, match="is there room"):
            go_on(tmp_path, on_batch=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    go_on(tmp_path)
