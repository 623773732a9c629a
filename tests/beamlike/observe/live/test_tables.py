"""Rows of tables in SQLite and Delta on the live page."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import beamlike as bl
from beamlike.observe.live.rows import Browsed, Output, newest, outputs
from beamlike.records.history import History

PLAYS = [
    {"user": "ada", "at": 0, "n": 1},
    {"user": "bob", "at": 30, "n": 2},
    {"user": "ada", "at": 500, "n": 4},
]


def ran(folder: Path, sink: object, *, grouped: bool = True) -> Browsed:
    """Returns the rows that the page shows of a sink after a run."""
    p = bl.Pipeline("p")
    read = p.read(
        "plays", bl.Rows(PLAYS), timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    totals = read.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(total=bl.sum("n"))
    (totals if grouped else read).write("out", sink)
    p.run(bl.LocalRunner(records=folder / "records.jsonl"))
    (output,) = outputs(History.open(folder / "records.jsonl"))
    assert output.about == "rows of sink out"
    return newest(output)


@pytest.mark.parametrize("table", ["totals", '"with.dot"', "main.totals", "order"])
@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_rows_of_a_table_of_sqlite_are_shown(table: str, mode: str, tmp_path: Path) -> None:
    shown = ran(tmp_path, bl.Table(f"sqlite:///{tmp_path / 'a b.db'}", table, mode=mode))
    user, total = shown.columns.index("user"), shown.columns.index("total")
    assert {(row[user], row[total]) for row in shown.rows} == {("ada", "1"), ("bob", "2"), ("ada", "4")}
    assert not shown.left_out


@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_rows_of_a_delta_table_are_those_of_its_newest_version(mode: str, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    table = bl.Delta(tmp_path / "a b", mode=mode)
    ran(tmp_path / "first", table)
    shown = ran(tmp_path / "second", table)
    total = [row[shown.columns.index("total")] for row in shown.rows]
    assert sorted(total) == sorted(["1", "2", "4"] * (1 if mode == "upsert" else 2))


def test_a_delta_table_shows_no_files_from_elsewhere(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    pl.DataFrame({"n": [1]}).write_delta(tmp_path / "table")
    (file,) = deltalake.DeltaTable(tmp_path / "table").file_uris()
    log = next((tmp_path / "table" / "_delta_log").glob("*.json"))
    (tmp_path / "secret.parquet").write_bytes(Path(file).read_bytes())
    log.write_text(log.read_text().replace(Path(file).name, "../secret.parquet"))
    inside = str(tmp_path / "table")
    shown = newest(
        Output("out", "rows", inside, "Delta"), lambda path: str(Path(path).resolve()).startswith(inside)
    )
    assert not shown.rows


def test_a_database_of_another_cannot_keep_the_page(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute(f"CREATE VIEW endless AS {endless}")
    shown = newest(Output("out", "rows", str(tmp_path / "a.db"), "Table", "endless"))
    assert (shown.rows, len(shown.left_out)) == ([], 1)


@pytest.mark.parametrize("content", [b"", b"no database", None])
def test_what_is_no_database_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    if content is not None:
        path.write_bytes(content)
    shown = newest(Output("out", "rows", str(path), "Table", 't"; DROP TABLE x; --'))
    assert str(path) in shown.left_out[0]
    assert path.exists() == (content is not None)


def test_what_is_no_delta_table_is_named(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    assert "out" in newest(Output("out", "rows", str(tmp_path / "out"), "Delta")).left_out[0]


def test_partitions_of_delta_with_any_value_are_shown(tmp_path: Path) -> None:
    rows = pl.DataFrame({"x": [1, 2, 3], "k": ["a b", "c", "d/e#f"]})
    folder = str(tmp_path / "a tab")
    rows.write_delta(folder, delta_write_options={"partition_by": ["k"]})
    shown = newest(Output("out", "rows", folder, "Delta"))
    assert not shown.left_out
    assert sorted(row[0] for row in shown.rows) == ["1", "2", "3"]


def test_a_file_that_is_removed_meanwhile_and_one_of_other_types_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": [1]}\n')
    (tmp_path / "b.jsonl").write_text('{"a": {"b": 1}}\n')
    shown = newest(Output("out", "rows", str(tmp_path), "JSONLines"))
    assert (len(shown.rows), len(shown.left_out)) == (1, 1)
    gone = [tmp_path / "gone.jsonl", tmp_path / "a.jsonl"]
    monkeypatch.setattr("beamlike.observe.live.rows.files_in", lambda folder: gone)
    shown = newest(Output("out", "rows", str(tmp_path), "JSONLines"))
    assert (len(shown.rows), len(shown.left_out)) == (1, 1)
