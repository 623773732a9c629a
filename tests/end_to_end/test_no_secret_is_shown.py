"""A secret in a declaration or in the text of an exception is in no view, record, dead letter or message of a run."""

from __future__ import annotations

import functools
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main

SECRET: Final = "S3CR3Tzq9"
URL: Final = f"https://ada:{SECRET}@host/x?sig={SECRET}"


def _rows(**more: Any) -> bl.Collection:
    rows = bl.Rows([{"k": "a", "at": "2026-01-01T00:00:00Z"}, {"k": "b", "at": "2026-01-01T00:00:01Z"}])
    return bl.Pipeline("p").read("r", rows, timestamp="at", watermark=bl.MonotonousTimestamps(), **more)


def _fails(what: str) -> Callable[..., Any]:
    def fail(*given: Any, **named: Any) -> Any:
        raise RuntimeError(what)

    return fail


def _sometimes(what: str) -> Callable[[Any], Any]:
    def fail(row: Any) -> Any:
        if row["k"] == "b":
            raise ValueError(what)
        return row

    return fail


@attrs.frozen
class Sink:
    """A sink of a user, whose secret is an argument."""

    url: str
    token: str

    def write(self, frame: pl.DataFrame, part: Any) -> None:
        raise OSError(f"{self.url} refuses it, password={self.token}")


CASES: Final[dict[str, Callable[[], Any]]] = {
    "an error of map with a url": lambda: _rows().map(_sometimes(URL)).write("o", bl.Memory()),
    "an error of map with a header": lambda: (
        _rows().map(_sometimes(f"Authorization: Bearer {SECRET}")).write("o", bl.Memory())
    ),
    "an error of map_batches": lambda: (
        _rows().map_batches(_fails(f"password={SECRET}"), schema={"k": str}).write("o", bl.Memory())
    ),
    "an error of flat_map": lambda: _rows().flat_map(_sometimes(f"pwd='{SECRET} x'")).write("o", bl.Memory()),
    "an error of a filter": lambda: _rows().filter(_sometimes(f"api_key: {SECRET}")).write("o", bl.Memory()),
    "an error of a sink": lambda: _rows().write("o", bl.Callback(_fails(f"cannot reach {URL}"))),
    "an argument of a function": lambda: _rows().write(
        "o", bl.Callback(functools.partial(_fails("no"), token=SECRET))
    ),
    "a sink with a secret": lambda: _rows().write("o", Sink(URL, SECRET)),
    "the path of a sink": lambda: _rows().write("o", bl.JSONLines(f"out?sig={SECRET}")),
    "the path of a source": lambda: (
        bl.Pipeline("p").read("r", bl.JSONLines(f"in/token={SECRET}", {"n": int})).write("o", bl.Memory())
    ),
    "an option of a sink of Spark": lambda: _rows().write(
        "o", bl.SparkSink("jdbc", options={"url": f"jdbc:postgresql://h/d?password={SECRET}"})
    ),
    "the url of a table": lambda: _rows().write(
        "o",
        bl.Table(f"postgresql+psycopg://u:{SECRET}@127.0.0.1:1/d?sslpassword={SECRET}", "t", mode="append"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_no_view_shows_a_secret(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"in/token={SECRET}").mkdir(parents=True)
    pipeline = CASES[case]().pipeline
    shown = [pipeline.explain(), pipeline._repr_html_()]
    try:
        shown.append(repr(pipeline.run(bl.LocalRunner(checkpoint="cp", quiet=True))))
    except Exception as error:
        shown += [str(error), *getattr(error, "__notes__", [])]
    shown += [record.getMessage() for record in caplog.records]
    for file in Path("cp").rglob("*"):
        if file.is_file():
            shown.append(file.read_bytes().decode(errors="replace"))
    if Path("cp/beamlike/records.jsonl").exists():
        for command in ("status", "why", "report"):
            given = ["cp", *(["--output", "r.html"] if command == "report" else [])]
            shown.append(CliRunner().invoke(main, [command, *given]).output)
        shown.append(Path("r.html").read_text())
    assert [text for text in shown if SECRET in text] == []


def test_a_traceback_of_the_command_line_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(f"raise KeyError('password={SECRET}')\n")
    run = [sys.executable, "-m", "beamlike", "run", "jobs:p"]
    found = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "KeyError" in found.stderr
    assert "password=***" in found.stderr
    assert SECRET not in found.stdout + found.stderr
