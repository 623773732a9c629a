"""The newest rows that a sink has written to files or tables on this machine, to be browsed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs
import polars as pl

from beamlike.errors import PlanError
from beamlike.io.files.paths import open_file
from beamlike.io.files.unpacking import Damaged, require_not_packed
from beamlike.io.files.written import files_in, read_file
from beamlike.observe.live.tables import delta_files, newest_of_table
from beamlike.records.history import History
from beamlike.system.printable import printable

MOST_ROWS: Final = 100
_LONGEST: Final = 200  # characters of a value
_MOST_FILES: Final = 50
_LARGEST: Final = 50_000_000  # bytes of a file, unpacked if it is text
_MOST_VALUES: Final = 20_000_000

_ABOUT: Final = {"late": "late rows", "dead_letters": "dead letters", "main": "rows"}


@attrs.frozen
class Output:
    """Rows that can be browsed: the name in addresses, what they are, and the folder with their files.

    `kind` is the class of the sink. For `Table`, the folder is the file of a SQLite database, and `table` is in it.
    """

    name: str
    about: str
    folder: str
    kind: str = ""
    table: str = ""


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
        Output(name, f"{_ABOUT.get(sink.rows, 'rows')} of sink {name}", sink.folder, sink.kind, sink.table)
        for name, sink in history.plan.sinks.items()
        if sink.folder
    ]
    found.sort(key=lambda one: history.plan.sinks[one.name].rows == "main")
    letters = os.path.join(os.path.dirname(history.path or ""), "dead-letters")
    if os.path.isdir(letters):
        found.insert(0, Output("@dead-letters", "dead letters that no sink gets", letters))
    return found


def newest(output: Output, allowed: Callable[[str], bool] = bool) -> Browsed:
    """Reads the newest rows of a folder or table, from files of which `allowed` returns True."""
    if output.table:
        return _newest_of_database(output)
    try:
        every = delta_files(output.folder) if output.kind == "Delta" else files_in(Path(output.folder))
    except (ModuleNotFoundError, OSError, ValueError) as error:
        return Browsed([], [], 0, [printable(f"{output.folder}: {error}")])
    here = [file for file in every if allowed(str(file))]
    files = sorted(here, key=_changed_at, reverse=True)
    frames: list[pl.DataFrame] = []
    left_out: list[str] = []
    for file in files[:_MOST_FILES]:
        if sum(map(len, frames)) >= MOST_ROWS:
            break
        try:
            frames.append(_read(file))
        except (PlanError, OSError, Damaged, pl.exceptions.PolarsError) as error:
            left_out.append(printable(f"{file.name}: {error}"))
    try:
        rows = pl.concat(frames, how="diagonal_relaxed").head(MOST_ROWS) if frames else pl.DataFrame()
    except pl.exceptions.PolarsError as error:  # files whose columns have no type in common
        left_out.append(printable(f"{output.folder}: {error}"))
        rows = frames[0].head(MOST_ROWS)
    return _browsed(rows.columns, rows.iter_rows(), len(files), left_out)


def _changed_at(file: Path) -> int:
    """Returns the time (ns) at which a file was changed; 0 for one that is gone."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _browsed(
    columns: Iterable[str], rows: Iterable[Sequence[object]], files: int, left_out: Sequence[str] = ()
) -> Browsed:
    texts = [[_text(value) for value in row] for row in rows]
    return Browsed([printable(name) for name in columns], texts, files, left_out)


def _newest_of_database(output: Output) -> Browsed:
    try:
        return _browsed(*newest_of_table(output.folder, output.table, MOST_ROWS), 1)
    except sqlite3.Error as error:
        return Browsed([], [], 1, [printable(f"{output.folder}: {error}")])


def _read(file: Path) -> pl.DataFrame:
    """Reads a file, the last row first. Raises `PlanError` for one that is large, or becomes so when it is unpacked."""
    if file.suffix == ".parquet":
        rows = pl.scan_parquet(file, glob=False, hive_partitioning=False)
        values = rows.select(pl.len()).collect().item() * max(1, len(rows.collect_schema()))
        if file.stat().st_size > _LARGEST or values > _MOST_VALUES:
            raise PlanError(f"it has {values:,} values; read it with `beamlike sql`")
        return rows.tail(MOST_ROWS).collect()[::-1]
    with open_file(str(file)) as opened:
        content = opened.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise PlanError(f"it has more than {_LARGEST // 1_000_000} MB; read it with `beamlike sql`")
    require_not_packed(content)
    return read_file(file, content)[::-1]


def _text(value: object) -> str:
    text = "" if value is None else printable(str(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
