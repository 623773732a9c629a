"""Names as parts of paths and on terminals: they stay inside their folder, and control characters are shown."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path, PureWindowsPath

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console as Terminal

import beamlike as bl
from beamlike.cli.main import main
from beamlike.io.files.paths import path_text, root_of
from beamlike.observe.watch import frame
from beamlike.records.history import History
from beamlike.system.path_names import file_name
from beamlike.system.printable import printable

EVIL = "ada\x1b[2J\u202eevil\x07\nbob"
SHOWN = r"ada\x1b[2J\u202eevil\x07\nbob"


@given(st.text(st.characters(), max_size=200), st.text(st.characters(), max_size=200), st.booleans())
def test_a_name_is_one_part_of_a_path_and_different_names_stay_different(
    name: str, other: str, blanks: bool
) -> None:
    found = file_name(name, blanks=blanks)
    assert os.path.basename(found) == found
    assert found not in (".", "..")
    assert len(found.encode()) <= 100
    assert (found == file_name(other, blanks=blanks)) == (name == other)


def test_names_that_were_fine_are_as_they_were() -> None:
    assert file_name("Sessions_of-mobile.2") == "Sessions_of-mobile.2"
    assert file_name("of mobile", blanks=True) == "of mobile"
    assert [file_name(name) for name in ("a b", "..", "/x")] == ["a~20b", "~2E~2E", "~2Fx"]


def pipeline(name: str, out: Path) -> bl.Pipeline:
    p = bl.Pipeline(name)
    rows = bl.Rows([{"user": EVIL, "at": 10}, {"user": "bob", "at": 70}, {"user": "bob", "at": -(10**30)}])
    plays = p.read(
        "../" + name, rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    counts = plays.window_into(bl.FixedWindows("1h")).group_by("user").aggregate(n=bl.count())
    counts.write("out", bl.JSONLines(out))
    return p


def test_a_pipeline_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("../../esc", "x" * 250, ".."):
        run = pipeline(name, Path("out")).run(bl.LocalRunner(records="records.jsonl"))
        assert Path(run.dead_letters).is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    parts = list(Path("out").rglob("part-*.jsonl"))
    assert len(parts) == 3  # of three runs, whose names are different


def test_control_characters_of_data_do_not_reach_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    p = bl.Pipeline("evil")
    stream = bl.TestStream({"user": str, "at": int}).add_elements([{"user": EVIL, "at": 10}])
    plays = p.read("plays", stream.advance_watermark_to(20), timestamp="at", timestamp_unit="s")
    earliest = plays.window_into(bl.FixedWindows("1h"), timestamp_combiner=bl.EARLIEST)
    earliest.group_by("user").aggregate(n=bl.count()).write("out", bl.Console())
    p.run(bl.LocalRunner(records="records.jsonl"))
    lines = Path("records.jsonl").read_text().splitlines()
    # As a run that is in the middle has it.
    Path("records.jsonl").write_text("\n".join(line for line in lines[:-2] if '"closed"' not in line) + "\n")
    explained = CliRunner().invoke(main, ["why", "records.jsonl"]).output
    Terminal(width=200).print(frame(History.open("records.jsonl")))
    printed = capfd.readouterr().out
    assert "ada" in printed.partition("Watermarks")[0]  # by the sink, folded
    for text in (explained, printed):
        assert SHOWN in text
        assert not set("\x1b\x07\u202e") & set(text)
    assert json.dumps(SHOWN)[1:-1] in "".join(lines)


def test_what_is_logged_is_printable_line_by_line(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("beamlike").warning("row %s\nand more", EVIL)
    assert caplog.messages == [f"row {printable(EVIL, keep=chr(10))}\nand more"]
    assert "\x1b" not in caplog.text


def test_backslashes_of_windows_become_slashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sep", "\\")
    assert path_text(PureWindowsPath("C:\\data") / "*.csv") == "C:/data/*.csv"
    assert root_of(path_text("data\\2026\\*.csv")) == "data/2026/"
    assert path_text("s3://bucket/a\\b") == "s3://bucket/a\\b"
    assert path_text("file:///data/2026") == path_text("file:/data/2026") == "/data/2026"


def test_elsewhere_a_backslash_is_a_character_of_a_name() -> None:
    assert path_text("data\\2026") == "data\\2026"
