"""The journal of a run: the content after a transaction, and errors for content that is not as it was written."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import beamlike as bl
from beamlike.io.sources import PlannedBatch
from beamlike.runtime.loop.checkpoint import LocalCheckpoint
from beamlike.runtime.loop.journal import KEPT_BATCHES, Journal
from beamlike.runtime.loop.logged_batch import LoggedBatch
from beamlike.runtime.run.dead_letter_limit import Counted
from stages.state.store import DictStore
from tests.stages.state.test_memory import Text
from tests.support.storage import full


def begun(number: int) -> LoggedBatch:
    """Returns a batch that reads one number."""
    taken = {"numbers": PlannedBatch([number, number + 1], {"next": number + 1, f"seen {number}": [True]})}
    return LoggedBatch(number, 1_000 * number, 7, taken, waiting=("other",))


def opened(folder: Path, *, new: bool = True) -> Journal:
    return Journal.open(str(folder / "journal.sqlite"), LocalCheckpoint(str(folder)).damaged, new=new)


def test_a_batch_counts_when_it_is_done_and_not_before(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    assert journal.last is None
    journal.begin(begun(0))
    journal.put("stage", "a", b"1")
    journal.put("stage", "b", b"2")
    journal.delete("stage", "b")
    assert (journal.get("stage", "a"), journal.get("stage", "b")) == (b"1", None)
    journal.close()  # as if the process had been killed
    journal = opened(tmp_path, new=False)
    assert journal.last == (begun(0), False)
    assert journal.get("stage", "a") is None
    assert journal.position("numbers") == {}
    journal.put("stage", "a", b"1")
    journal.commit(begun(0))
    journal.close()
    journal = opened(tmp_path, new=False)
    assert journal.last == (begun(0), True)
    assert journal.get("stage", "a") == b"1"
    assert journal.position("numbers") == {"next": 1, "seen 0": [True]}
    assert [*journal.values()] == [("stage", "a", b"1")]
    journal.begin(begun(1))
    journal.delete("stage", "a")
    journal.commit(begun(1))
    assert [*journal.values()] == []
    assert journal.position("numbers") == {"next": 2, "seen 0": [True], "seen 1": [True]}
    journal.close()


def test_what_was_committed_is_read_before_it_is_written(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as journal:
        journal.put("stage", "a", b"1")
        journal.put("stage", "b", b"2")
        journal.commit(begun(0))
        go = Event()
        journal.later(go.wait)
        journal.begin(begun(1))
        journal.delete("stage", "a")
        assert journal.last == (begun(1), False)
        assert (journal.get("stage", "a"), journal.get("stage", "b")) == (None, b"2")
        go.set()
        journal.settle()
        assert journal.get("stage", "b") == b"2"
        journal.commit(begun(1))
        assert [*journal.values()] == [("stage", "b", b"2")]


def test_a_value_is_decoded_once_and_anew_when_it_was_changed_or_taken_back(tmp_path: Path) -> None:
    decoded: list[bytes] = []

    def read(journal: Journal) -> bytes | None:
        found = journal.decoded("stage", "a", lambda value: decoded.append(value) or Text(value))  # type: ignore[func-returns-value]
        return None if found is None else found.value

    with closing(opened(tmp_path)) as journal:
        journal.begin(begun(0))
        assert read(journal) is None
        journal.put("stage", "a", b"1")
        assert read(journal) == b"1"
        journal.commit(begun(0))
        journal.settle()
        assert [read(journal) for _ in range(3)] == [b"1"] * 3
        assert len(decoded) <= 2
        journal.begin(begun(1))
        journal.put("stage", "a", b"2")
        assert read(journal) == b"2"
        journal.forget(begun(1))
        assert read(journal) == b"1"
        journal.delete("stage", "a")
        assert read(journal) is None


def test_a_batch_does_not_count_if_what_was_to_be_done_before_failed(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("no room")

    with closing(opened(tmp_path)) as journal:
        journal.begin(begun(0))
        journal.put("stage", "a", b"1")
        journal.later(fail)
        journal.commit(begun(0))
        with pytest.raises(OSError, match="no room"):
            journal.settle()
    with closing(opened(tmp_path, new=False)) as journal:
        assert journal.last == (begun(0), False)
        assert journal.get("stage", "a") is None


def test_only_the_last_batches_are_kept(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as journal:
        for number in range(KEPT_BATCHES + 5):
            journal.begin(begun(number))
            journal.commit(begun(number))
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as database:
        assert database.execute("SELECT count(*), min(number) FROM batches").fetchone() == (KEPT_BATCHES, 5)


def test_what_is_saved_begins_another_one(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as journal:
        journal.fill(begun(0), DictStore({("stage", "a"): b"1"}), {"numbers": {"next": 5}}, Counted(7))
        assert journal.last == (begun(0), True)
        assert journal.get("stage", "a") == b"1"
        assert journal.position("numbers") == {"next": 5}
        assert journal.tally() == Counted(7)
        assert [*journal.values()] == [("stage", "a", b"1")]


# Damage


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint of a run with state."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    lines = "".join(f'{{"user": "user {n}", "at": {n}}}\n' for n in range(5_000))
    (tmp_path / "data" / "0.jsonl").write_text(lines)
    again()
    return tmp_path / "checkpoint" / "beamlike"


def again(**options: Any) -> None:
    p = bl.Pipeline("scores")
    source = bl.JSONLines("data", {"user": str, "at": int})
    plays = p.read(
        "plays", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("1d")
    )
    counted = plays.window_into(bl.Sessions("1m")).group_by("user").aggregate(n=bl.count())
    counted.write("out", bl.JSONLines("out"))
    p.run(bl.LocalRunner(checkpoint="checkpoint", **options))


def more() -> None:
    Path("data/1.jsonl").write_text('{"user": "user 1", "at": 9}\n')


def test_a_journal_that_is_gone_or_empty_is_told(run: Path) -> None:
    journal = run / "journal.sqlite"
    for damage in (journal.unlink, journal.touch):
        damage()
        with pytest.raises(
            bl.CheckpointError, match=r"is damaged: .*journal\.sqlite.* is gone or empty; restore"
        ):
            again()


def test_a_journal_that_was_put_back_without_its_records_is_told(run: Path) -> None:
    before = (run / "journal.sqlite").read_bytes()
    more()
    again()
    (run / "journal.sqlite").write_bytes(before)
    with pytest.raises(bl.CheckpointError, match="has no batch 1, which the records have"):
        again()


def test_a_journal_without_its_manifest_is_told(run: Path) -> None:
    (run / "manifest.json").unlink()
    with pytest.raises(bl.CheckpointError, match="has lost its manifest"):
        again()


@pytest.mark.parametrize("keep", [100, 5_000, 40_000])
def test_a_journal_that_was_torn_is_told(run: Path, keep: int) -> None:
    more()
    journal = run / "journal.sqlite"
    journal.write_bytes(journal.read_bytes()[:keep])
    with pytest.raises(bl.CheckpointError, match="is damaged"):
        again()


def test_a_value_that_is_not_what_was_written_is_told(run: Path) -> None:
    more()
    with closing(sqlite3.connect(run / "journal.sqlite")) as database:
        for stage, key in database.execute("SELECT stage, key FROM state").fetchall():
            (value,) = database.execute(
                "SELECT value FROM state WHERE stage = ? AND key = ?", (stage, key)
            ).fetchone()
            other = value[:-1] + bytes([value[-1] ^ 1])
            database.execute("UPDATE state SET value = ? WHERE stage = ? AND key = ?", (other, stage, key))
        database.commit()
    with pytest.raises(
        bl.CheckpointError, match="is not what was written; restore a savepoint, or put back a copy"
    ):
        again()


def test_half_a_transaction_is_as_if_there_was_none(run: Path) -> None:
    """The end of the write-ahead log, after the last commit, may be the unfinished write of a killed process."""
    more()
    with closing(sqlite3.connect(run / "journal.sqlite", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("INSERT INTO batches VALUES (1, '[]', 0)")
        for name in ("journal.sqlite", "journal.sqlite-wal"):
            shutil.copy(run / name, run / f"copy-of-{name}")
    log = (run / "copy-of-journal.sqlite-wal").read_bytes()
    for name, content in {"": None, "-wal": log[:-100]}.items():
        target = run / f"journal.sqlite{name}"
        target.write_bytes(content or (run / "copy-of-journal.sqlite").read_bytes())
    again()
    records = (run / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["batch"] for line in records if line.startswith('{"batch"')] == [0, 1]


@pytest.mark.parametrize("size", [100, 20_000, 60_000])
def test_storage_that_is_full_is_told_and_the_next_run_goes_on(run: Path, size: int) -> None:
    lines = "".join(f'{{"user": "other {n}", "at": {n}}}\n' for n in range(5_000))
    Path("data/1.jsonl").write_text(lines)
    with full(size), pytest.raises(bl.CheckpointError, match=r"check its storage .*is there room"):
        again()
    again()
    records = (run / "records.jsonl").read_text().splitlines()
    last = [json.loads(line) for line in records if line.startswith('{"batch"')][-1]
    assert (last["batch"], last["stages"]["plays.aggregate"]["live"]) == (1, 10_000)


def test_input_that_is_gone_is_told_where_a_batch_is_done_again(run: Path) -> None:
    more()

    def fail(record: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        again(on_batch=fail)
    Path("data/1.jsonl").unlink()
    told = r"batch 1 cannot be replayed, because source 'plays' no longer has its input: .*1\.jsonl' is gone"
    with pytest.raises(bl.CheckpointError, match=told):
        again()
    more()
    again()
