"""A journal that another connection has open: readers do not keep a run from starting, and a writer is named."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import CheckpointError
from beamlike.runtime.loop import journal_connection

Use = Callable[[sqlite3.Connection], object]

READERS: dict[str, Use] = {
    "open": lambda reader: None,
    "read": lambda reader: reader.execute("SELECT * FROM totals").fetchall(),
    "in a transaction": lambda reader: [
        reader.execute("BEGIN"),
        reader.execute("SELECT * FROM totals").fetchall(),
    ],
    "within rows": lambda reader: reader.execute(
        "SELECT * FROM totals UNION ALL SELECT * FROM totals"
    ).fetchone(),
    "counting the state": lambda reader: reader.execute("SELECT count(*) FROM state").fetchone(),
    "checking": lambda reader: reader.execute("PRAGMA quick_check").fetchall(),
    "reading the schema": lambda reader: reader.execute("SELECT * FROM sqlite_master").fetchall(),
    "after a write of its own": lambda reader: [
        reader.execute("CREATE TABLE IF NOT EXISTS notes (text)"),
        reader.execute("SELECT * FROM totals").fetchall(),
    ],
    "with a cache": lambda reader: [
        reader.execute("PRAGMA mmap_size = 1000000"),
        reader.execute("SELECT * FROM state").fetchall(),
    ],
}
WRITERS: dict[str, Use] = {
    "about to write": lambda writer: writer.execute("BEGIN IMMEDIATE"),
    "alone": lambda writer: writer.execute("BEGIN EXCLUSIVE"),
    "writing": lambda writer: [writer.execute("BEGIN IMMEDIATE"), writer.execute("DELETE FROM totals")],
}


def run(folder: Path, n: int) -> int:
    """Adds a file, runs the pipeline over it, and returns the number of batches of this run."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f"{n}.jsonl").write_text(f'{{"n": {n}, "at": {n}}}\n')
    p = bl.Pipeline("p")
    rows = p.read(
        "rows",
        bl.JSONLines(folder / "in", schema={"n": int, "at": int}),
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )
    windows = rows.window_into(bl.FixedWindows("1s"))
    windows.aggregate(n=bl.sum("n")).write("out", bl.JSONLines(folder / "out"))
    return len(p.run(bl.LocalRunner(checkpoint=str(folder / "checkpoint"))).batches)


def journal(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        folder / "checkpoint" / "beamlike" / "journal.sqlite", timeout=0, isolation_level=None
    )


@pytest.mark.parametrize("how", READERS)
def test_a_reader_does_not_keep_a_run_from_starting(how: str, tmp_path: Path) -> None:
    run(tmp_path, 1)
    with closing(journal(tmp_path)) as reader:
        READERS[how](reader)
        assert run(tmp_path, 2) == 1
        assert run(tmp_path, 3) == 1
        reader.execute("SELECT * FROM totals").fetchall()
    assert run(tmp_path, 4) == 1
    # The window of the last row is open.
    assert sorted(pl.read_ndjson(tmp_path / "out" / "*.jsonl")["n"]) == [1, 2, 3]


@pytest.mark.parametrize("how", WRITERS)
def test_a_writer_is_named(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, 1)
    monkeypatch.setattr(journal_connection, "PATIENCE", 0)
    with closing(journal(tmp_path)) as writer:
        WRITERS[how](writer)
        with pytest.raises(CheckpointError, match="is locked by another process that writes to it"):
            run(tmp_path, 2)
    assert run(tmp_path, 3) == 1
