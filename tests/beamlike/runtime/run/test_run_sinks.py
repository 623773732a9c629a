"""The sinks of a run: started once, and at its end published in place of earlier output, or withdrawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.io.base import Part
from beamlike.plan.model import Plan
from beamlike.rows.dead_letters import UNCLAIMED
from beamlike.runtime.run.run_sinks import RunSinks

LETTERS = {"step": ["s"], "error": ["e"], "row": ["{}"]}


def plan(folder: Path) -> Plan:
    p = bl.Pipeline("p")
    source = bl.Rows([{"at": 1}])
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    rows.write("out", bl.JSONLines(folder / "out"))
    rows.write("kept", bl.Memory())
    return p.plan()


def files(folder: Path) -> dict[str, str]:
    """Returns the files that readers see."""
    return {file.name: file.read_text() for file in folder.glob("*.jsonl")}


def write(sinks: RunSinks, name: str, **columns: Any) -> None:
    sink: Any = sinks.sinks[name]
    sink.write(pl.DataFrame(columns), Part(sinks.run, 0, sink=name))


@pytest.fixture
def before(tmp_path: Path) -> dict[str, str]:
    """The output of an earlier run of the name."""
    sinks = RunSinks(plan(tmp_path), "p", bl.JSONLines(tmp_path / "letters"))
    sinks.start()
    write(sinks, "out", n=[1])
    sinks.publish()
    return files(tmp_path / "out")


def replacing(folder: Path) -> RunSinks:
    """Returns the sinks of a later run, which has written one row and a dead letter."""
    sinks = RunSinks.replacing(plan(folder), "p", bl.JSONLines(folder / "letters"), also_dead_letters=True)
    sinks.start()
    write(sinks, "out", n=[2])
    write(sinks, UNCLAIMED, **LETTERS)
    return sinks


def test_a_run_that_replaces_is_seen_when_it_is_published(tmp_path: Path, before: dict[str, str]) -> None:
    sinks = replacing(tmp_path)
    assert files(tmp_path / "out") == before
    sinks.publish()
    assert [text.strip() for text in files(tmp_path / "out").values()] == ['{"n":2}']
    assert len(files(tmp_path / "letters")) == 1


def test_of_a_run_that_is_withdrawn_only_its_dead_letters_stay(
    tmp_path: Path, before: dict[str, str]
) -> None:
    sinks = replacing(tmp_path)
    sinks.withdraw()
    assert files(tmp_path / "out") == before
    assert len(files(tmp_path / "letters")) == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_has_been_published_is_not_withdrawn(tmp_path: Path, before: dict[str, str]) -> None:
    sinks = replacing(tmp_path)
    sinks.publish()
    sinks.withdraw()
    assert files(tmp_path / "out") != before


def test_a_run_that_only_adds_is_seen_at_once_and_stays(tmp_path: Path, before: dict[str, str]) -> None:
    assert [text.strip() for text in before.values()] == ['{"n":1}']
    sinks = RunSinks(plan(tmp_path), "q", bl.JSONLines(tmp_path / "letters"))
    sinks.start()
    write(sinks, "out", n=[3])
    sinks.withdraw()
    assert len(files(tmp_path / "out")) == 2


def test_a_sink_knows_its_columns_when_it_is_started(tmp_path: Path) -> None:
    sinks = RunSinks(plan(tmp_path), "p", bl.JSONLines(tmp_path / "letters"))
    sinks.start()
    kept = sinks.sinks["kept"]
    assert isinstance(kept, bl.Memory)
    assert "at" in kept.frame().columns
    assert not (tmp_path / "letters").exists()  # most runs have none
