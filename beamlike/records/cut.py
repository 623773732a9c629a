"""Reads records, and removes records of later batches when the run continues from an older copy of its checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

from beamlike.records.lines import BATCH_LINE
from beamlike.system.durable import replace


def last_batch(path: str) -> int | None:
    """Returns the number of the last batch in a file of records; None if there is none."""
    return next((number for number, _ in _batches(path, lambda number: True)), None)


def rows_given(path: str, batch: int) -> int | None:
    """Returns the number of rows that all sinks together received in a batch; None if the records do not contain the
    batch.
    """
    for _, facts in _batches(path, lambda number: number == batch):
        sinks = facts.get("sinks")
        return sum(sinks.values()) if isinstance(sinks, dict) else None
    return None


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


def _batches(path: str, wanted: Callable[[int], bool]) -> Iterator[tuple[int, dict[str, object]]]:
    """Yields the batches whose number is `wanted`, each as its number and record; the last one first. Skips damaged
    lines.
    """
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        lines = file.read().splitlines()
    for line in reversed(lines):
        number = _number(line)
        if number is not None and wanted(number):
            try:
                yield number, json.loads(line)
            except ValueError:
                continue


def _number(line: bytes) -> int | None:
    """Returns the number of the batch in a line; None for a line of another kind."""
    if not line.startswith(BATCH_LINE):
        return None
    digits = line[len(BATCH_LINE) :].partition(b",")[0]
    return int(digits) if digits.isdigit() else None
