"""A journal that is only read stays as it is, also after a run that was killed and of an earlier version."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.runtime.loop.checkpoint import LocalCheckpoint
from beamlike.runtime.loop.journal import Journal
from beamlike.runtime.loop.journal_reading import journal_to_read
from beamlike.runtime.loop.logged_batch import LoggedBatch


def damaged(why: str) -> bl.CheckpointError:
    return bl.CheckpointError(f"damaged: {why}")


def files(folder: Path) -> dict[str, Any]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of one batch in a folder whose name has characters of an URI."""
    folder = tmp_path / "a? #b%20"
    folder.mkdir()
    with closing(Journal.open(str(folder / "journal.sqlite"), damaged, new=True)) as journal:
        batch = LoggedBatch(0, 5, 5, {})
        journal.begin(batch)
        journal.put("stage", "key", b"value")
        journal.commit(batch)
        journal.settle()
    return folder / "journal.sqlite"


def read(path: Path) -> tuple[list[tuple[str, str, bytes]], int]:
    with journal_to_read(str(path), damaged) as journal:
        return [*journal.values()], journal.reach()


CONTENT = [("stage", "key", b"value")], 0


def test_it_is_not_changed(path: Path) -> None:
    before = files(path.parent)
    assert read(path) == CONTENT
    assert files(path.parent) == before


def test_that_of_a_killed_run_is_not_changed(path: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    with closing(Journal.open(str(path), damaged, new=False)) as journal:
        journal.begin(LoggedBatch(1, 6, 6, {}))
        journal.settle()
        shutil.copytree(path.parent, killed)  # with its log, as of a process that was killed
    assert (killed / "journal.sqlite-wal").stat().st_size
    before = files(killed)
    with journal_to_read(str(killed / "journal.sqlite"), damaged) as journal:
        assert [batch.number for batch, _ in journal.logged()] == [0, 1]
    assert files(killed) == before
    assert read(killed / "journal.sqlite") == CONTENT


def test_that_of_a_version_without_replaced_values_is_not_changed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE undo")
        database.execute("DROP TABLE undone")
    before = files(path.parent)
    assert read(path) == ([("stage", "key", b"value")], 1)
    assert files(path.parent) == before


@pytest.mark.parametrize("content", [None, b"", b"no database" * 99])
def test_one_that_is_gone_or_damaged_is_reported(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(bl.CheckpointError, match=r"damaged: .*a\? #b%20/journal.sqlite"):
        read(path)
    assert [other.name for other in path.parent.iterdir()] == ([] if content is None else [path.name])


def test_a_checkpoint_that_is_saved_is_not_changed(tmp_path: Path) -> None:
    p = bl.Pipeline("p")
    how: dict[str, Any] = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "0.jsonl").write_text('{"at": 1}\n')
    rows = p.read("rows", bl.JSONLines(tmp_path / "rows", {"at": int}), **how)
    rows.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write("out", bl.Memory())
    checkpoint = tmp_path / "checkpoint"
    p.run(bl.LocalRunner(checkpoint=checkpoint, quiet=True))
    journal = Path(LocalCheckpoint.of(str(checkpoint)).at("journal.sqlite"))
    before = journal.read_bytes(), journal.stat().st_mtime_ns
    bl.savepoint.save(checkpoint, tmp_path / "saved")
    assert (journal.read_bytes(), journal.stat().st_mtime_ns) == before
