"""The output of a run in its sinks, the expected output, and their differences."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs
import polars as pl

from beamlike.records.model import BatchRecord
from beamlike.records.writer import RECORDS_FILE
from tests.faults import moods, plays
from tests.faults.pipeline import DATABASE, TABLES, pipeline
from tests.faults.wires import Wires

Batch = dict[str, list[str]]
"""The files of each source that a batch took, in order of arrival."""

_READERS = {
    "sessions": pl.read_parquet,
    "silences": pl.read_parquet,
    "pairs": pl.read_parquet,
    "looked": pl.read_parquet,
    "totals": lambda files: pl.concat(map(pl.read_ndjson, files), how="vertical_relaxed"),
    "late": lambda files: pl.concat(map(pl.read_csv, files)),
    "made": lambda files: pl.concat(map(pl.read_ndjson, files), how="vertical_relaxed").drop("mood"),
}


@attrs.frozen
class Outcome:
    """The rows of every sink, as text and with their number, those in the database with their batch.

    `counts` are the sums over all records, by source or stage. `attempts` has, for each batch of the database, its
    distinct contents.
    """

    rows: dict[str, Counter[str]]
    counts: Counter[str]
    attempts: dict[int, set[str]] = attrs.field(eq=False)

    def differences(self, expected: Outcome) -> list[str]:
        """Returns the differences as text; empty if the rows are the same."""
        found = [
            f"{(more - less).total()} rows {what} {name}, such as {next(iter(more - less))}"
            for name in expected.rows
            for what, more, less in (
                ("lost in", expected.rows[name], self.rows[name]),
                ("too many in", self.rows[name], expected.rows[name]),
            )
            if more - less
        ]
        found += [
            f"the records count {self.counts[name]} {name}, not {expected.counts[name]}"
            for name in sorted({*self.counts, *expected.counts})
            if self.counts[name] != expected.counts[name]
        ]
        unlike = [batch for batch, contents in self.attempts.items() if len(contents) > 1]
        return found + ([f"batches {unlike} came again with other rows"] if unlike else [])


def outcome(out: Path, records: list[BatchRecord]) -> Outcome:
    """Returns the outcome of the sinks below `out`, which must have only complete files."""
    rows = {}
    for name, reader in _READERS.items():
        files = sorted((out / name).iterdir())
        assert all(file.name.startswith("part-") for file in files), files
        rows[name] = Counter(map(repr, reader(files).rows())) if files else Counter()
    with contextlib.closing(sqlite3.connect(out / DATABASE)) as connection:
        rows["database"] = Counter(map(repr, connection.execute("SELECT * FROM totals")))
        attempts: dict[int, set[str]] = {}
        for batch, content in connection.execute("SELECT * FROM attempts"):
            attempts.setdefault(batch, set()).add(content)
    with contextlib.closing(sqlite3.connect(out / TABLES)) as connection:
        for name in ("latest", "appended"):
            rows[name] = Counter(map(repr, connection.execute(f"SELECT * FROM {name}")))
    return Outcome(rows, _counts(records), attempts)


def records(checkpoint: Path) -> list[BatchRecord]:
    """Returns the last record of each batch, in order."""
    lines = (checkpoint / "beamlike" / RECORDS_FILE).read_text().splitlines()
    found = [BatchRecord.from_json(line) for line in lines if line.startswith('{"batch":')]
    return [record for _, record in sorted({record.batch: record for record in found}.items())]


def _counts(records: Sequence[BatchRecord]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for record in records:
        for name, source in record.sources.items():
            counts[f"elements of {name}"] += source.elements
            counts[f"dead letters of {name}"] += source.dead_letters
        for name, stage in record.stages.items():
            counts[f"elements in {name}"] += stage.elements
            counts.update({f"{timing} panes of {name}": count for timing, count in stage.panes.items()})
            counts.update({f"dropped by {name}: {reason}": count for reason, count in stage.dropped.items()})
        counts.update(
            {f"rows in {name}": count for name, count in record.sinks.items() if name not in moods.SINKS}
        )
    return counts


def expected(folder: Path, batches: Sequence[Batch]) -> Outcome:
    """Returns the outcome of an undisturbed run in process that reads the files in these batches."""
    data, out = folder / "data", folder / "expected"
    shutil.rmtree(out, ignore_errors=True)
    if any(len(files) != 1 for batch in batches for files in batch.values()):
        data = _joined(batches, out / "data")
    run = pipeline(data, out, Wires(str(out / "wires"))).run()
    return outcome(out, run.batches)


def taken(folder: Path) -> list[Batch]:
    """Returns the files in the batches of a run, by Spark's checkpoint: each file once.

    Usually a batch has one file of each source. If a run is killed after Spark has chosen files and before it has
    planned the batch, the next run adds the next files to it. Such a batch has other early panes on any runner.
    """
    checkpoint = folder / "checkpoint"
    entries = {number: _entries(checkpoint / "sources" / str(number)) for number in range(len(plays.SOURCES))}
    batches: list[Batch] = []
    before = [-1] * len(entries)
    for name in sorted(map(int, _numbers(checkpoint / "offsets"))):
        offsets = [
            -1 if line == "-" else json.loads(line)["logOffset"]
            for line in (checkpoint / "offsets" / str(name)).read_text().splitlines()[2 : 2 + len(entries)]
        ]
        batch: Batch = {}
        for number, files in entries.items():
            for file, chosen in sorted(files.items(), key=lambda item: (item[1], item[0])):
                if before[number] < chosen <= offsets[number]:
                    batch.setdefault(Path(file).parent.name, []).append(file)
        if batch:
            batches.append(batch)
        before = [max(pair) for pair in zip(before, offsets[: len(before)], strict=True)]
    chosen = Counter(file for batch in batches for files in batch.values() for file in files)
    there = [str(file) for source in plays.SOURCES for file in (folder / "data" / source).iterdir()]
    assert chosen == Counter(there), "Spark has not taken every file once"
    return batches


def _numbers(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if file.name.isdecimal()]


def _entries(folder: Path) -> dict[str, int]:
    """Returns the path of each file in Spark's lists, and the list's number; every tenth log contains all before it.

    A list has one file, and both have the same number.
    """
    found = {}
    for log in folder.iterdir():
        if not log.name.startswith("."):
            for line in log.read_text().splitlines()[1:]:
                entry = json.loads(line)
                chosen = Path(entry["path"].removeprefix("file://"))
                found[_listed(chosen.parent)[int(chosen.stem)]] = entry["batchId"]
    return found


def _listed(folder: Path) -> dict[int, str]:
    """Returns the files in the lists of a source, by number; those read before a restart are in one list."""
    lines = [line for lists in folder.glob("*.json") for line in lists.read_text().splitlines()]
    return {entry["number"]: entry["file"] for entry in map(json.loads, lines)}


def _joined(batches: Sequence[Batch], data: Path) -> Path:
    """Writes the files of each batch as one."""
    for source in plays.SOURCES:
        (data / source).mkdir(parents=True)
        for number, batch in enumerate(batches):
            files = [Path(file) for file in batch.get(source, [])]
            if files:
                path = data / source / f"{number:04d}{files[0].suffix}"
                if path.suffix == ".parquet":
                    pl.concat(map(pl.read_parquet, files)).write_parquet(path)
                else:
                    path.write_bytes(b"".join(file.read_bytes() for file in files))
                os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    return data
