"""The ledger of tables: parts that a task of a sink has written are not written again, and no others are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import polars as pl
import pytest

from beamlike.io import Part
from beamlike.io.sinks import RowKey, SinkInput
from beamlike.io.sql import bulk
from beamlike.io.sql.table import Table
from tests.support.databases import execute, postgres, rows_of

SCHEMA = pl.Schema({"k": pl.String(), "n": pl.Int64()})


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture
def lite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/out.db"


def appending(url: str) -> Table:
    return Table(url, "t", "append").fitted(SinkInput("out", SCHEMA, ("k", "n")))


def replacing(url: str) -> Table:
    return Table(url, "t").fitted(SinkInput("out", SCHEMA, ("k", "n"), RowKey(("k",), None, None)))


def rows(*numbers: int, key: str | None = "a") -> pl.DataFrame:
    return pl.DataFrame({"k": [key] * len(numbers), "n": numbers}, schema=SCHEMA)


def test_two_sinks_and_two_tasks_of_one_table_do_not_hide_each_others_rows(lite: str) -> None:
    for part in (Part("q", 4, 0, "one"), Part("q", 4, 0, "two"), Part("q", 4, 1, "two")):
        for _ in range(2):
            appending(lite).write(rows(part.task), part)
    assert [row["n"] for row in rows_of(lite, "t")] == [0, 0, 1]


@pytest.mark.parametrize("sink_of", [appending, replacing])
def test_an_attempt_at_an_earlier_batch_fails_and_writes_nothing(
    sink_of: Callable[[str], Table], lite: str
) -> None:
    sink = sink_of(lite)
    for batch in (0, 2, 2):
        sink.write(rows(batch), Part("q", batch, 0, "out"))
    before = rows_of(lite, "t")
    with pytest.raises(
        RuntimeError, match="has batch 2 of this run already, and this is batch 1: another run"
    ):
        sink.write(rows(1), Part("q", 1, 0, "out"))
    assert rows_of(lite, "t") == before
    assert rows_of(lite, "t")[-1]["n"] == 2


def test_the_ledger_of_an_earlier_version_is_carried_over(lite: str) -> None:
    execute(
        lite,
        "CREATE TABLE t (k TEXT, n BIGINT)",
        "CREATE TABLE beamlike_batches (run TEXT, target TEXT, batch BIGINT, PRIMARY KEY (run, target))",
        "INSERT INTO beamlike_batches VALUES ('q', 't', 7), ('other', 't', 9)",
    )
    for batch in (7, 8):
        appending(lite).write(rows(batch), Part("q", batch, 0, "out"))
    assert [row["n"] for row in rows_of(lite, "t")] == [8]
    assert not rows_of(lite, "sqlite_master WHERE name = 'beamlike_batches'")
    appending(lite).start("q")
    appending(lite).write(rows(0), Part("q", 0, 0, "out"))
    assert [row["n"] for row in rows_of(lite, "t")] == [8, 0]


def test_names_that_are_too_long_for_a_column_stay_different(lite: str) -> None:
    for last in ("x", "y"):
        appending(lite).write(rows(1), Part("q" * 300, 0, 0, "s" * 300 + last))
    assert len(rows_of(lite, "t")) == 2


@pytest.mark.parametrize("kind", ["lite", "server"])
def test_of_attempts_at_one_part_that_run_at_once_one_is_written(
    kind: str, request: pytest.FixtureRequest
) -> None:
    sink, attempts = appending(request.getfixturevalue(kind)), 4
    sink.check()
    for batch in range(3):
        at_once = Barrier(attempts)

        def attempt(batch: int = batch, at_once: Barrier = at_once) -> None:
            at_once.wait()
            sink.write(rows(batch), Part("q", batch, 0, "out"))

        with ThreadPoolExecutor(attempts) as pool:
            for running in [pool.submit(attempt) for _ in range(attempts)]:
                running.result()
    assert [row["n"] for row in rows_of(str(request.getfixturevalue(kind)), "t")] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["lite", "server"])
def test_rows_that_go_in_pieces_are_all_there(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = request.getfixturevalue(kind)
    execute(url, "DROP TABLE IF EXISTS t")
    monkeypatch.setattr(bulk, "PIECE", 3)
    keys = [f"k{number}" for number in range(10)]
    for batch, n in enumerate((1, 2)):
        frame = pl.DataFrame({"k": [*keys, None], "n": [n] * 11}, schema=SCHEMA)
        replacing(url).write(frame, Part("pieces", batch, 0, "out"))
    assert [(row["k"], row["n"]) for row in rows_of(url, "t", "k")].count(("k7", 2)) == 1
    assert sorted(str(row["k"]) for row in rows_of(url, "t")) == sorted([*keys, "None"])


def test_a_database_by_a_relative_path_is_in_the_working_directory_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        appending("sqlite:///out.db").write(rows(1), Part("q", 0, 0, "out"))
        assert len(rows_of(f"sqlite:///{tmp_path}/{name}/out.db", "t")) == 1
