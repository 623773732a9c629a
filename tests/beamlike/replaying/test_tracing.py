"""Traces of a pane's rows and of a row's panes, compared with the counts in the panes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.errors import UnknownColumn, UnknownName, UnknownStage
from tests.beamlike.replaying.test_inputs import SCHEMA
from tests.beamlike.replaying.test_replay import USERS, fill, pipeline
from tests.support.examples import share


def late(folder: Path, sink: bl.Memory) -> bl.Pipeline:
    """Declares counts of users in windows, and of all users in longer ones; rows of "d" are filtered."""
    p = bl.Pipeline("late")
    source = bl.JSONLines(folder / "in", SCHEMA, max_files_per_trigger=1)
    bound = bl.BoundedOutOfOrderness("0s")
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bound)
    windows = plays.filter(bl.col("user") != "d").window_into(bl.FixedWindows("8s"), allowed_lateness="2s")
    counts = windows.group_by("user").aggregate(n=bl.count()).named("counts")
    totals = counts.window_into(bl.FixedWindows("16s")).aggregate(n=bl.sum("n")).named("totals")
    totals.write("out", sink)
    return p


def shuffled(folder: Path, files: list[list[tuple[str, int]]]) -> None:
    (folder / "in").mkdir()
    for number, rows in enumerate(files):
        file = folder / "in" / f"{number}.jsonl"
        pl.DataFrame(rows, schema=["user", "at"], orient="row").write_ndjson(file)


rows = st.lists(st.tuples(st.sampled_from("abd"), st.integers(0, 31)), min_size=1, max_size=6)


@share(4)
@given(st.lists(rows, min_size=1, max_size=3))
def test_as_many_rows_made_a_pane_as_it_counts(files: list[list[tuple[str, int]]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, sink = Path(name), bl.Memory()
        shuffled(folder, files)
        p = late(folder, sink)
        p.run(bl.LocalRunner(checkpoint=str(folder / "checkpoint"), drain=True, quiet=True))
        counted: dict[str, int] = {}
        for pane in sink.rows():
            start = f"{pane['window_start']:%Y-%m-%dT%H:%M:%SZ}"
            counted[start] = counted.get(start, 0) + pane["n"]
        for start, total in counted.items():
            trace = bl.trace_pane(folder / "checkpoint", p, "totals", window=start)
            assert sum(not row.late for row in trace.rows) == total
            given = [row for file in files for row in file]
            assert all((row.row["user"], row.row["at"]) in given for row in trace.rows)


def test_a_pane_of_sessions_names_its_rows(tmp_path: Path) -> None:
    fill(tmp_path, USERS)
    p, checkpoint = pipeline(tmp_path), tmp_path / "checkpoint"
    p.run(bl.LocalRunner(checkpoint=str(checkpoint), drain=True, quiet=True))
    trace = bl.trace_pane(
        checkpoint, p, "counts", key={"user": "a"}, window="1970-01-01T00:00:20/1970-01-01T00:00:26"
    )
    assert [(row.batch, row.number, row.row["at"]) for row in trace.rows] == [(2, 1, 20), (2, 2, 22)]
    assert trace.rows[0].file.endswith("in/2.jsonl")
    assert trace.panes == (
        "on_time pane of [1970-01-01T00:00:20Z, 1970-01-01T00:00:26Z) in batch 3: user='a', n=2",
    )
    silent = bl.trace_pane(checkpoint, p, "streaks", key="b")
    assert len(silent.rows) == sum(users.count("b") for users in USERS)
    found = bl.trace_row(checkpoint, p, "plays", {"user": "a", "at": 22})
    assert found[0].startswith("batch 2, plays,")
    assert any("at stage counts: on_time pane of [1970-01-01T00:00:20Z" in line for line in found)
    assert any("at stage totals" in line for line in found)


def test_what_became_of_rows_that_are_in_no_pane(tmp_path: Path) -> None:
    shuffled(tmp_path, [[("a", 1), ("d", 2), ("a", 30)], [("b", 3)]])
    p, checkpoint = late(tmp_path, bl.Memory()), tmp_path / "checkpoint"
    p.run(bl.LocalRunner(checkpoint=str(checkpoint), quiet=True))
    assert bl.trace_row(checkpoint, p, "plays", {"at": 2})[1] == "  it goes nowhere: steps filter it out"
    assert "late at stage counts" in bl.trace_row(checkpoint, p, "plays", {"at": 3})[1]
    assert "in no pane yet" in bl.trace_row(checkpoint, p, "plays", {"at": 30})[1]
    assert bl.trace_row(checkpoint, p, "plays", {"at": 7}) == ["no row of source 'plays' has at=7"]
    (tmp_path / "in" / "0.jsonl").unlink()
    [first, second] = (
        bl.trace_pane(checkpoint, p, "totals").notes[:1],
        bl.trace_row(checkpoint, p, "plays", {"at": 3}),
    )
    assert "batch 0" in first[0]
    assert "is gone" in second[-1]


def test_names_that_are_wrong_are_refused(tmp_path: Path) -> None:
    shuffled(tmp_path, [[("a", 1)]])
    p, checkpoint = late(tmp_path, bl.Memory()), tmp_path / "checkpoint"
    p.run(bl.LocalRunner(checkpoint=str(checkpoint), quiet=True))
    with pytest.raises(UnknownStage, match="did you mean 'counts'"):
        bl.trace_pane(checkpoint, p, "count")
    with pytest.raises(UnknownName, match="no key 'usr'; it has user"):
        bl.trace_pane(checkpoint, p, "counts", key={"usr": "a"})
    with pytest.raises(UnknownColumn, match="no column 'usr'"):
        bl.trace_row(checkpoint, p, "plays", {"usr": "a"})
    with pytest.raises(UnknownName, match="no source 'play'"):
        bl.trace_row(checkpoint, p, "play", {"user": "a"})
