"""The journal on disk while sinks write: the batch has begun, and the batches before it are done."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import pytest

import beamlike as bl
from beamlike.runtime.loop.journal import Journal


def batches() -> dict[int, bool]:
    """Returns the batches in the journal, and if each is done, as a resumed run would find them after a crash now."""
    with TemporaryDirectory() as folder:
        for file in Path("checkpoint/beamlike").glob("journal.sqlite*"):
            shutil.copy(file, folder)
        return _batches(Path(folder, "journal.sqlite"))


def _batches(journal: Path) -> dict[int, bool]:
    with closing(sqlite3.connect(journal)) as database:
        return {number: bool(done) for number, done in database.execute("SELECT number, done FROM batches")}


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays all writes to disk until the run waits for them."""
    waited, begin, settle = Event(), Journal._begin, Journal.settle

    def noted(journal: Journal, batch: Any) -> None:
        assert waited.wait(60)
        waited.clear()
        begin(journal, batch)

    def settled(journal: Journal) -> None:
        waited.set()
        settle(journal)

    monkeypatch.setattr(Journal, "_begin", noted)
    monkeypatch.setattr(Journal, "settle", settled)


@pytest.mark.usefixtures("slow_disk")
def test_nothing_of_a_batch_is_written_before_the_journal_has_it_and_all_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = list[tuple[int, dict[int, bool]]]()
    p = bl.Pipeline("rows")
    rows = p.read("rows", bl.Rows([{"n": number} for number in range(6)]))
    rows.write("out", bl.Callback(lambda frame, number: seen.append((number, batches()))))
    p.run(bl.LocalRunner(checkpoint="checkpoint", chunk_rows=1))
    assert [number for number, _ in seen] == [0, 1, 2, 3, 4, 5]
    for number, found in seen:
        assert found.pop(number) is False
        assert number == 0 or found.pop(number - 1) is True
        assert all(found.values())
