"""Reads records, and removes records of later batches when the run continues from an older copy of its checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from beamlike.records.lines import BATCH_LINE
from beamlike.records.model import BatchRecord
from beamlike.records.tail import batch_of
from beamlike.system.durable import replace


def last_batch(path: str) -> int | None:
    """Returns the number of the last batch in a file of records; None if there is none. Skips damaged lines."""
    return next((record.batch for record in _records(path, lambda number: True) if record), None)


def rows_given(path: str, batch: int) -> int | None:
    """Returns the number of rows that all sinks together received in a batch; None if the records do not contain the
    batch, or its last line is damaged.
    """
    record = next(_records(path, lambda number: number == batch), None)
    return None if record is None else sum(record.sinks.values())


def cut_after(path: str, batch: int) -> None:
    """Removes the records of batches after `batch`. A reader sees either the old or the new file, never a part."""
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    kept = [line for line in lines if (number := _number(line)) is None or number <= batch]
    if len(kept) < len(lines):
        with open(f"{path}.new", "wb") as file:
            file.writelines(kept)
        replace(f"{path}.new", path)


def _records(path: str, wanted: Callable[[int], bool]) -> Iterator[BatchRecord | None]:
    """Yields the batches whose number is `wanted`, the last one first. A damaged line is logged, and yields None."""
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        lines = file.read().splitlines()
    for line in reversed(lines):
        if (number := _number(line)) is not None and wanted(number):
            yield batch_of(line, path)


def _number(line: bytes) -> int | None:
    """Returns the number of the batch in a line; None for a line of another kind."""
    if not line.startswith(BATCH_LINE):
        return None
    digits = line[len(BATCH_LINE) :].partition(b",")[0]
    return int(digits) if digits.isdigit() else None
