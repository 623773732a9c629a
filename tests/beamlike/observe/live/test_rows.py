"""Rows that can be browsed: late rows, dead letters and outputs in files, the newest first."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

import beamlike as bl
from beamlike.observe.live import rows
from beamlike.observe.live.rows import newest, outputs
from beamlike.records.history import History
from tests.support.simulated import HARMFUL


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A run with one late row and two dead letters, one of which goes to a sink."""
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [
        [("12:00:00", HARMFUL, "1"), ("12:09:00", "oslo", "2"), ("never", "oslo", "3")],
        [("12:00:30", "lima", "4"), ("12:09:30", "lima", "x")],
    ]
    for number, batch in enumerate(lines):
        text = [json.dumps({"at": f"2026-01-01T{at}Z", "shop": shop, "n": n}) for at, shop, n in batch]
        (folder / f"{number}.jsonl").write_text("\n".join(text) + "\n")
    p = bl.Pipeline("orders")
    source = bl.JSONLines(
        folder, dict.fromkeys(("at", "shop", "n"), str), max_files_per_trigger=1, order="path"
    )
    orders = p.read("orders", source, timestamp="at", watermark=bl.BoundedOutOfOrderness("1s"))
    parsed = orders.map(lambda row: {"shop": row["shop"], "n": int(row["n"])}, schema={"shop": str, "n": int})
    totals = parsed.window_into(bl.FixedWindows("1m")).group_by("shop").aggregate(n=bl.sum("n"))
    totals.write("totals", bl.Parquet(tmp_path / "totals"))
    totals.late().write("late orders", bl.CSV(tmp_path / "late"))
    parsed.dead_letters().write("bad", bl.JSONLines(tmp_path / "bad"))
    totals.write("kept", bl.Memory())
    p.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint"))
    return History.open(tmp_path / "checkpoint")


def test_late_rows_and_dead_letters_come_first(history: History, tmp_path: Path) -> None:
    assert [(one.name, one.about) for one in outputs(history)] == [
        ("@dead-letters", "dead letters that no sink gets"),
        ("bad", "dead letters of sink bad"),
        ("late orders", "late rows of sink late orders"),
        ("totals", "rows of sink totals"),
    ]
    shown = {one.name: newest(one) for one in outputs(history)}
    late = shown["late orders"]
    assert [row[late.columns.index("shop")] for row in late.rows] == ["lima"]
    assert "invalid literal" in str(shown["bad"].rows)
    assert "never" in str(shown["@dead-letters"].rows)


def test_the_newest_rows_are_first_and_a_damaged_file_is_named(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "totals"
    (output,) = (one for one in outputs(history) if one.name == "totals")
    for number in range(3):
        pl.DataFrame({"shop": ["a", "b"], "n": [number, number]}).write_parquet(folder / f"x{number}.parquet")
        os.utime(folder / f"x{number}.parquet", (2_000_000_000 + number,) * 2)
    (folder / "x3.parquet").write_bytes(b"PAR1 no")
    os.utime(folder / "x3.parquet", (2_000_000_009,) * 2)
    monkeypatch.setattr(rows, "MOST_ROWS", 3)
    found = newest(output)
    shop, n = found.columns.index("shop"), found.columns.index("n")
    assert [(row[shop], row[n]) for row in found.rows] == [("b", "2"), ("a", "2"), ("b", "1")]
    assert [text.partition(":")[0] for text in found.left_out] == ["x3.parquet"]


def test_a_run_without_files_has_no_rows_to_browse(tmp_path: Path) -> None:
    p = bl.Pipeline("p")
    p.read("a", bl.Rows([{"x": 1}])).write("out", bl.Memory())
    p.run(bl.LocalRunner(records=tmp_path / "p.jsonl"))
    assert outputs(History.open(tmp_path / "p.jsonl")) == []
