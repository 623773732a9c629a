"""The newest rows that a sink has written to files, to be browsed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import polars as pl

from beamlike.errors import PlanError
from beamlike.io.files.written import files_in, read_file
from beamlike.records.history import History
from beamlike.system.printable import printable

MOST_ROWS: Final = 100
_LONGEST: Final = 200  # characters of a value
_MOST_FILES: Final = 50
_LARGEST: Final = 200_000_000  # bytes of a file

_ABOUT: Final = {"late": "late rows", "dead_letters": "dead letters", "main": "rows"}


@attrs.frozen
class Output:
    """Rows that can be browsed: the name in addresses, what they are, and the folder with their files."""

    name: str
    about: str
    folder: str


@attrs.frozen
class Browsed:
    """Rows as text, the newest file first. `left_out` says which files could not be read."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    files: int
    left_out: Sequence[str]


def outputs(history: History) -> list[Output]:
    """Returns the folders of a run on this machine: dead letters and late rows first, then the other sinks."""
    found = [
        Output(name, f"{_ABOUT.get(sink.rows, 'rows')} of sink {name}", sink.folder)
        for name, sink in history.plan.sinks.items()
        if sink.folder
    ]
    found.sort(key=lambda one: history.plan.sinks[one.name].rows == "main")
    letters = os.path.join(os.path.dirname(history.path or ""), "dead-letters")
    if os.path.isdir(letters):
        found.insert(0, Output("@dead-letters", "dead letters that no sink gets", letters))
    return found


def newest(output: Output) -> Browsed:
    """Reads the newest rows of a folder."""
    files = sorted(files_in(Path(output.folder)), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    frames: list[pl.DataFrame] = []
    left_out: list[str] = []
    for file in files[:_MOST_FILES]:
        if sum(map(len, frames)) >= MOST_ROWS:
            break
        try:
            frames.append(_read(file))
        except (PlanError, OSError, pl.exceptions.PolarsError) as error:
            left_out.append(printable(f"{file.name}: {error}"))
    rows = pl.concat(frames, how="diagonal_relaxed").head(MOST_ROWS) if frames else pl.DataFrame()
    return Browsed(
        [printable(name) for name in rows.columns],
        [[_text(value) for value in row] for row in rows.iter_rows()],
        len(files),
        left_out,
    )


def _read(file: Path) -> pl.DataFrame:
    if file.stat().st_size > _LARGEST:
        raise PlanError(f"it has more than {_LARGEST // 1_000_000} MB; read it with `beamlike sql`")
    return read_file(file)[::-1]


def _text(value: object) -> str:
    text = "" if value is None else printable(str(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
