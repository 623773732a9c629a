"""Steps and sinks with other results in each run, as if a service were unavailable: a batch has one run's results."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import polars as pl

import beamlike as bl
from beamlike.records.model import BatchRecord
from beamlike.rows.dead_letters import UNCLAIMED
from tests.faults.wires import Wires

DATABASE = "moods.sqlite"
SINKS = ("good", "good there", UNCLAIMED)
"""Sinks whose content depends on the last run of a batch."""

_NAMES = ("user", "sessions", "plays", "score", "pane_timing", "pane_index", "pane_retracted", "mood")
"""Columns that all formats show alike."""


def next_mood(folder: Path) -> None:
    """Begins another run."""
    file = folder / "wires" / "mood"
    file.write_text(str(_mood(file) + 1))


def _mood(file: Path) -> int:
    return int(file.read_text()) if file.exists() else -1


@attrs.frozen
class Mood:
    """Adds the number of the run to each row; -1 in an undisturbed run."""

    file: str

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(mood=pl.lit(_mood(Path(self.file)), pl.Int64))


def _moody(row: dict[str, Any]) -> dict[str, Any]:
    if _is_bad(row["user"], row["mood"]):
        raise OSError(row["user"])
    return row


def _is_bad(user: str, mood: int) -> bool:
    """True for the rows of some users, in some runs."""
    return mood >= 0 and int(user.removeprefix("user ")) % 3 == mood % 4


def write(totals: bl.Collection, out: Path, wires: Wires, callback: bl.Callback) -> None:
    """Adds all sinks that replace output: `made` receives every row, the others the rows that are good in that run."""
    kinds = {**dict(totals.schema), "mood": int}
    made = totals.map_batches(Mood(str(Path(wires.folder, "mood"))), kinds, name="mood")
    made.write("made", bl.JSONLines(out / "made"))
    good = made.map(_moody, name="moody")
    good.write("good", bl.Parquet(out / "good", partition_by=["mood", "user"]))
    good.write("good there", callback)


def differences(out: Path, letters: Path, records: Iterable[BatchRecord]) -> Iterator[str]:
    """Yields differences between the sinks and the rows of `made`, whose batches are each of one run."""
    files = sorted((out / "made").iterdir())
    made, moods = [], dict[str, set[int]]()
    for file in files:
        frame = pl.read_ndjson(file)
        made += _rows(frame)
        moods.setdefault(file.name.split("-")[-2], set()).update(frame["mood"])
    if mixed := [batch for batch, found in moods.items() if len(found) > 1]:
        yield f"batches {mixed} of made are of several runs"
    good = [row for row in made if not _is_bad(row[0], int(row[-1]))]
    # A row that is retracted was a dead letter when it arrived.
    retracted = _NAMES.index("pane_retracted")
    bad = [(row[0],) for row in made if _is_bad(row[0], int(row[-1])) and row[retracted] == "false"]
    counted = Counter[str]()
    for record in records:
        counted.update(record.sinks)
    for name, found, wanted in (
        ("good", _parts(out / "good"), good),
        ("good there", _there(out), good),
        (UNCLAIMED, _letters(letters), bad),
    ):
        more, less = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
        if more or less:
            yield f"{more.total()} rows too many in {name}, {less.total()} lost, such as {next(iter(more or less))}"
        if counted[name] != len(wanted):
            yield f"the records count {counted[name]} rows in {name}, not {len(wanted)}"


def _rows(frame: pl.DataFrame) -> list[tuple[str, ...]]:
    """Returns the rows as text."""
    return frame.select(pl.col(name).cast(pl.String) for name in _NAMES).rows()


def _parts(folder: Path) -> list[tuple[str, ...]]:
    parts = (pl.read_parquet(file, hive_partitioning=True) for file in folder.rglob("part-*"))
    return [row for part in parts for row in _rows(part)]


def _there(out: Path) -> list[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(out / DATABASE)) as connection:
        return connection.execute(f"SELECT {', '.join(_NAMES)} FROM totals").fetchall()


def _letters(folder: Path) -> list[tuple[str, ...]]:
    errors = (error for file in folder.glob("part-*") for error in pl.read_ndjson(file)["error"])
    return [(error.partition(": ")[2],) for error in errors]
