"""Reads the end of a records file, without the batches before it."""

from __future__ import annotations

import logging
import os
from typing import BinaryIO, Final

from beamlike.records.lines import BATCH_LINE, CLOSED_LINE, BadLine, RunClosed, read_batch, read_line
from beamlike.records.model import BatchRecord

_LOG = logging.getLogger("beamlike")
_BLOCK: Final = 65_536


def last_recorded(path: str) -> int:
    """Returns the number of the last batch in a file of records; -1 if there is none, or no file."""
    try:
        with open(path, "rb") as file:
            found = last_batch_before(file, after_last_line(file))
    except FileNotFoundError:
        return -1
    return -1 if found is None else found.batch


def after_last_line(file: BinaryIO) -> int:
    """Returns the end of the last complete line, as a position in the file."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def last_batch_before(file: BinaryIO, end: int) -> BatchRecord | None:
    """Returns the last batch before the position `end`. The search reads growing pieces from the end of the file."""
    size = _BLOCK
    while True:
        start = max(0, end - size)
        file.seek(start)
        lines = file.read(end - start).splitlines()
        for line in reversed(lines[1:] if start else lines):
            if line.startswith(BATCH_LINE) and (record := batch_of(line, file.name)) is not None:
                return record
        if start == 0:
            return None
        size *= 4


def batch_of(line: bytes, path: str) -> BatchRecord | None:
    """Reads the record in a line; None for a damaged line, which is only logged, since no run needs its records."""
    try:
        return read_batch(line)
    except BadLine as error:
        _LOG.warning("a line of the records %r is no record of a batch, and is left out: %s", path, error)
        return None


def ending_of(file: BinaryIO, end: int) -> RunClosed | None:
    """Returns how the run ended, if that is the last line before the position `end`; else None."""
    size = _BLOCK
    while True:
        start = max(0, end - size)
        file.seek(start)
        _, newline, line = file.read(end - start).rstrip(b"\n").rpartition(b"\n")
        if newline or start == 0:
            break
        size *= 4
    if not line.startswith(CLOSED_LINE):
        return None
    try:
        closed = read_line(line)
    except BadLine:
        return None
    return closed if isinstance(closed, RunClosed) else None
