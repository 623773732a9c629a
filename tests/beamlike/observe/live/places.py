"""Files of records in folders, for tests of the pages about them."""

from __future__ import annotations

from pathlib import Path

from beamlike.records.history import History
from beamlike.records.lines import RunBegun, RunClosed, line_text
from beamlike.records.model import BatchRecord


def write_run(path: Path, history: History) -> Path:
    """Writes the records of a history to a file, as a run would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [RunBegun(history.plan), *history.batches]
    if history.closed is not None:
        lines.append(RunClosed(history.closed))
    path.write_bytes(b"".join(map(line_text, lines)))
    return path


def append(path: Path, record: BatchRecord) -> None:
    """Appends the record of a batch."""
    with path.open("ab") as file:
        file.write(line_text(record))
