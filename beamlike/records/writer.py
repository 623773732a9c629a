"""Writes the records of a run as lines of JSON, beside its checkpoint or to a file that the user names."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import BinaryIO, Final

import attrs

from beamlike.io.files.paths import path_text
from beamlike.records.graph import RunDescription
from beamlike.records.lines import (
    BATCH_LINE,
    HEAD_BYTES,
    PLAN_LINE,
    BadLine,
    Ending,
    Line,
    RunBegun,
    RunClosed,
    are_records,
    line_text,
    read_batch,
)
from beamlike.records.model import BatchRecord
from beamlike.system.durable import make_folder, replace, sync_folder

_LOG = logging.getLogger("beamlike")

RECORDS_FILE = "records.jsonl"

MOST_BYTES: Final = 16_000_000
"""The size limit of the file. Beyond it, the older half of its batches is rewritten with half as many records."""

_BLOCK = 65_536


@attrs.define
class RecordWriter:
    """Appends to a local file: a line with the plan when it is opened, a line for each batch, and a line at the close.

    A run that continues appends its plan again; a `fresh` run replaces the file. `last` is the last batch in the file,
    None if there is none. A line that a killed run left incomplete is cut off. If the file is larger than `most` bytes,
    each two older records are merged into one: counts stay exact, and only times of long ago become coarse.
    """

    path: str
    last: BatchRecord | None
    most: int = MOST_BYTES
    _closed: bool = attrs.field(default=False, init=False)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        run: RunDescription,
        most: int = MOST_BYTES,
        *,
        fresh: bool = False,
    ) -> RecordWriter:
        """Opens the writer of a run, and makes the file's folder. Raises `FileExistsError` for another kind of file."""
        text = path_text(path)
        if os.path.isdir(text):
            example = os.path.join(text, RECORDS_FILE)
            raise IsADirectoryError(f"records={text!r} is a folder; name a file, such as {example!r}")
        text = os.path.abspath(text)
        make_folder(os.path.dirname(text))
        _require_records(text)
        if fresh:
            _replace(text, [line_text(RunBegun(run))])
            return cls(text, None, most)
        with open(text, "ab+") as file:
            whole = _after_last_line(file)
            file.truncate(whole)
            writer = cls(text, _last_batch(file, whole), most)
        writer._append(RunBegun(run))
        writer.sync()
        sync_folder(os.path.dirname(text))
        return writer

    def write(self, record: BatchRecord) -> None:
        """Appends a batch, which readers see at once. Only `sync` protects it against a power cut."""
        self._append(record)
        self.last = record

    def sync(self) -> None:
        """Syncs to disk what was written."""
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())

    def close(self, ending: Ending, changed: Mapping[str, Mapping[str, str]] = MappingProxyType({})) -> None:
        """Writes how the run ended, and the files that changed after its last batch. Later calls change nothing."""
        if not self._closed:
            self._append(RunClosed(ending, changed))
            self.sync()
            self._closed = True

    def _append(self, line: Line) -> None:
        # Opened for each line: a run that is abandoned leaves nothing open.
        with open(self.path, "ab") as file:
            file.write(line_text(line))
            size = file.tell()
        if size > self.most:
            _make_coarser(self.path)


def _make_coarser(path: str) -> None:
    """Rewrites the older half of the file with half as many records."""
    with open(path, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    half, older = sum(map(len, lines)) // 2, 0
    while older < len(lines) and half > 0:
        half -= len(lines[older])
        older += 1
    plan, records = lines[0], list[BatchRecord]()
    for line in lines[:older]:
        if line.startswith(PLAN_LINE):
            plan = line
        elif line.startswith(BATCH_LINE):
            if (record := _record(line, path)) is None:
                continue
            while records and records[-1].batch >= record.batch:  # the batch was replayed
                records.pop()
            records.append(record)
    # The last batch may be replayed, so its record stays as it is.
    pairs = [one.then(other) for one, other in zip(records[:-1:2], records[1:-1:2], strict=False)]
    rest = records[2 * len(pairs) :]
    _replace(path, [plan, *(line_text(record) for record in [*pairs, *rest]), *lines[older:]])


def _record(line: bytes, path: str) -> BatchRecord | None:
    """The record in a line; None for a damaged one, which is logged: records explain a run, and no run needs them."""
    try:
        return read_batch(line)
    except BadLine as error:
        _LOG.warning("a line of the records %r is no record of a batch, and is left out: %s", path, error)
        return None


def _replace(path: str, lines: Iterable[bytes]) -> None:
    """Replaces the file. A reader sees either the file before or the one after."""
    written = f"{path}.new"
    with open(written, "wb") as file:
        file.writelines(lines)
    replace(written, path)


def _require_records(path: str) -> None:
    """Raises `FileExistsError` for a file that is no records file, so that a wrong name destroys nothing."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
        if not (PLAN_LINE.startswith(head) or are_records(head)):
            raise FileExistsError(f"records={path!r} is not a records file; name another one")


def last_recorded(path: str) -> int:
    """The number of the last batch in a file of records; -1 if there is none, or no file."""
    try:
        with open(path, "rb") as file:
            found = _last_batch(file, _after_last_line(file))
    except FileNotFoundError:
        return -1
    return -1 if found is None else found.batch


def _after_last_line(file: BinaryIO) -> int:
    """The end of the last whole line."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _last_batch(file: BinaryIO, end: int) -> BatchRecord | None:
    """The last batch before this position, searched in growing pieces of the end of the file."""
    size = _BLOCK
    while True:
        start = max(0, end - size)
        file.seek(start)
        lines = file.read(end - start).splitlines()
        for line in reversed(lines[1:] if start else lines):
            if line.startswith(BATCH_LINE) and (record := _record(line, file.name)) is not None:
                return record
        if start == 0:
            return None
        size *= 4
