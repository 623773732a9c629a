"""Tables whose first batches are no longer recorded are read again up to the first recorded batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import InputGone
from beamlike.runtime.loop import journal
from tests.beamlike.replaying.rebuilding.test_rebuild import pipeline, rebuilt, restore, run


def put_in_delta(folder: Path, batch: int, users: str) -> None:
    pl.DataFrame(rows(batch, users), schema={"user": str, "at": int}, orient="row").write_delta(
        folder / "table", mode="append"
    )


def put_in_table(folder: Path, batch: int, users: str) -> None:
    with closing(sqlite3.connect(folder / "plays.db")) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS plays (id INTEGER PRIMARY KEY, user TEXT, at INTEGER)")
        database.executemany("INSERT INTO plays (user, at) VALUES (?, ?)", rows(batch, users))


def rows(batch: int, users: str) -> list[tuple[str, int]]:
    return [(user, 10 * batch + number) for number, user in enumerate(users)]


def delta(folder: Path, **how: Any) -> bl.Delta:
    return bl.Delta(folder / "table", **how)


def table(folder: Path, **how: Any) -> bl.Table:
    return bl.Table(f"sqlite:///{folder / 'plays.db'}", "plays", grows="id", **how)


KINDS = {"delta": (delta, put_in_delta), "table": (table, put_in_table)}
USERS = ["abca", "bca", "aab", "ccb", "abc", "cab", "bba"]


def follow(
    folder: Path, make: Any, put: Any, users: Sequence[str], first: int, *runs: tuple[str, int]
) -> list[Any]:
    """Appends the rows of each batch and runs each checkpoint, with its session gap, after it."""
    out: list[Any] = []
    for batch, one in enumerate(users, first):
        put(folder, batch, one)
        out.append([run(folder, name, source=make(folder), gap=gap) for name, gap in runs])
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [1, 3])
def test_a_table_is_read_up_to_the_first_known_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, known: int
) -> None:
    make, put = KINDS[kind]
    monkeypatch.setattr(journal, "KEPT_BATCHES", known)
    follow(tmp_path, make, put, USERS[:5], 0, ("checkpoint", 3), ("always", 7))
    found = rebuilt(tmp_path, gap=7, source=make(tmp_path))
    assert found.read == {"plays": sum(map(len, USERS[:5]))}
    assert "source 'plays': the batches of its earlier rows are not known any more" in str(found)
    restore(tmp_path, gap=7, source=make(tmp_path))
    for after, always in follow(tmp_path, make, put, USERS[5:], 5, ("after", 7), ("always", 7)):
        assert after == always
    # A restored run has no batches of the past at all.
    changed = pipeline(tmp_path, {}, source=make(tmp_path), gap=2)
    again = bl.rebuild(tmp_path / "after", tmp_path / "again", changed, stage="sessions")
    assert again.read == {"plays": sum(map(len, USERS))}


@pytest.mark.parametrize("known", [1, 3])
def test_a_first_snapshot_is_read_up_to_the_first_known_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    monkeypatch.setattr(journal, "KEPT_BATCHES", known)
    follow(tmp_path, delta, put_in_delta, USERS[:5], 0)
    run(tmp_path, "checkpoint", 4, source=delta(tmp_path))
    run(tmp_path, "always", 4, source=delta(tmp_path), gap=7)
    found = rebuilt(tmp_path, gap=7, source=delta(tmp_path))
    assert found.read == {"plays": sum(map(len, USERS[:5]))}
    restore(tmp_path, gap=7, source=delta(tmp_path))
    for after, always in follow(tmp_path, delta, put_in_delta, USERS[5:], 5, ("after", 7), ("always", 7)):
        assert after == always


def test_versions_before_the_first_one_of_the_source_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "KEPT_BATCHES", 1)
    put_in_delta(tmp_path, 0, USERS[0])

    def since_then(folder: Path) -> bl.Delta:
        return delta(folder, start_version=1)

    follow(tmp_path, since_then, put_in_delta, USERS[1:4], 1, ("checkpoint", 3))
    found = rebuilt(tmp_path, gap=7, source=since_then(tmp_path))
    assert found.read == {"plays": sum(map(len, USERS[1:4]))}


def test_a_file_of_a_version_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "KEPT_BATCHES", 1)
    follow(tmp_path, delta, put_in_delta, USERS[:1], 0, ("checkpoint", 3))
    [file] = (tmp_path / "table").glob("*.parquet")
    follow(tmp_path, delta, put_in_delta, USERS[1:3], 1, ("checkpoint", 3))
    file.unlink()
    with pytest.raises(InputGone, match=f"source 'plays'.*{file.name}"):
        rebuilt(tmp_path, gap=7, source=delta(tmp_path))
