"""Reads and cuts records that may be ahead of their checkpoint, if that is an older copy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

from beamlike.records.lines import BATCH_LINE
from beamlike.system.durable import replace


def last_batch(path: str) -> int | None:
    """The number of the last batch in a file of records; None if there is none."""
    return next((number for number, _ in _batches(path, lambda number: True)), None)


def rows_given(path: str, batch: int) -> int | None:
    """The number of rows that all sinks received in a batch; None if the records do not say."""
    for _, facts in _batches(path, lambda number: number == batch):
        sinks = facts.get("sinks")
        return sum(sinks.values()) if isinstance(sinks, dict) else None
    return None


def cut_after(path: str, batch: int) -> None:
    """Removes the records of later batches. A reader sees either the file before or the one after."""
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
    """The records of the `wanted` batches, the last one first. Damaged lines are skipped."""
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
    """The number of the batch of a line; None for another line."""
    if not line.startswith(BATCH_LINE):
        return None
    digits = line[len(BATCH_LINE) :].partition(b",")[0]
    return int(digits) if digits.isdigit() else None
