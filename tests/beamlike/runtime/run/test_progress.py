"""The terminal output of a run: its start, a line for each batch of a live one, and nothing if it is quiet."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

import beamlike as bl
from beamlike.records.model import BatchRecord, SourceRecord
from beamlike.runtime.run import progress
from beamlike.runtime.run.progress import Progress

SECOND = 1_000_000


def shown(*, terminal: bool = True, live: bool = True, quiet: bool = False, elements: int = 1_200) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=200)
    told = Progress("plays", live=live, quiet=quiet, console=console)
    told.up("the/checkpoint")
    told.update(
        BatchRecord(
            3, 0, {"rows": SourceRecord(61 * SECOND, elements=elements)}, {}, sinks={"a": 1_000, "b": 2}
        )
    )
    told.close()
    return text.getvalue()


def test_a_live_run_shows_where_its_checkpoint_is_and_each_batch() -> None:
    lines = shown()
    assert "plays: up, with the checkpoint the/checkpoint; Ctrl-C stops it after the current batch" in lines
    assert "plays: batch 3, 1,200 elements, 1,002 rows written, to 1970-01-01T00:01:01Z" in lines


def test_a_run_with_an_end_has_one_line_that_follows_it() -> None:
    lines = shown(live=False)
    assert "up, with" not in lines
    assert "rows written" not in lines
    assert "batch 3, 1k elements" in lines


def test_a_rate_below_one_in_a_second_is_not_shown() -> None:
    assert "1k elements, " in shown()
    assert "/s, to " in shown()
    assert "0 elements, to " in shown(elements=0)


@pytest.mark.parametrize("options", [{"quiet": True}, {"terminal": False}])
def test_nothing_is_shown_if_it_is_quiet_or_no_terminal_looks_on(options: dict[str, bool]) -> None:
    assert shown(**options) == ""


@pytest.mark.parametrize("quiet", [False, True])
def test_a_runner_with_an_interval_is_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    text = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=text, force_terminal=True, width=200))
    (tmp_path / "in.jsonl").write_text('{"at": 1}\n')
    p = bl.Pipeline("p")
    source = bl.JSONLines(tmp_path / "in.jsonl", schema={"at": int})
    p.read("rows", source).write("out", bl.JSONLines(tmp_path / "out"))
    place = tmp_path / "checkpoint"
    runner = bl.LocalRunner(checkpoint=place, trigger="1h", quiet=quiet, on_batch=lambda _: run.ask_to_stop())
    run = runner.start(p)
    run.wait()
    assert (f"p: up, with the checkpoint {place};" in text.getvalue()) is not quiet
    assert ("p: batch 0, 1 elements, 1 rows written" in text.getvalue()) is not quiet
