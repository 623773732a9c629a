"""Writes the records of a run as lines of JSON, in its checkpoint or to a file that the user names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import attrs

from beamlike.io.files.paths import path_text
from beamlike.records.failure import Failure
from beamlike.records.graph import RunDescription
from beamlike.records.lines import (
    BATCH_LINE,
    HEAD_BYTES,
    PLAN_LINE,
    Ending,
    Line,
    RunBegun,
    RunClosed,
    are_records,
    line_text,
)
from beamlike.records.model import BatchRecord
from beamlike.records.tail import after_last_line, batch_of, last_batch_before
from beamlike.system.durable import make_folder, replace, sync, sync_folder

RECORDS_FILE = "records.jsonl"

MOST_BYTES: Final = 16_000_000
"""The size limit of the file. Beyond it, the records in its older half are merged in pairs."""


@attrs.define
class RecordWriter:
    """The writer of a run's records, a local file. It appends a line with the plan when it is opened, a line for each
    batch, and a line when it is closed.

    A run that continues appends its plan again; a `fresh` run replaces the file. `last` is the last batch in the file,
    None if there is none. An incomplete line, which a killed run leaves, is removed. If the file is larger than `most`
    bytes, older records are merged in pairs: counts stay exact, and only times of long ago become coarse.
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
        """Opens the writer of a run, and creates the folder of the file.

        Raises `FileExistsError` if the file exists and has no records.
        """
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
            whole = after_last_line(file)
            file.truncate(whole)
            writer = cls(text, last_batch_before(file, whole), most)
        writer._append(RunBegun(run))
        writer.sync()
        sync_folder(os.path.dirname(text))
        return writer

    def write(self, record: BatchRecord) -> None:
        """Appends the record of a batch. Readers see it immediately, but only `sync` protects it against a power
        failure.
        """
        self._append(record)
        self.last = record

    def sync(self) -> None:
        """Syncs all appended records to disk."""
        sync(self.path)

    def close(
        self,
        ending: Ending,
        changed: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        failure: Failure | None = None,
    ) -> None:
        """Appends how the run ended, which files changed after its last batch, and why it failed. Later calls change
        nothing.
        """
        if not self._closed:
            self._append(RunClosed(ending, changed, failure))
            self.sync()
            self._closed = True

    def _append(self, line: Line) -> None:
        # Opened for each line, so that an abandoned run leaves no open file.
        with open(self.path, "ab") as file:
            file.write(line_text(line))
            size = file.tell()
        if size > self.most:
            _make_coarser(self.path)


def _make_coarser(path: str) -> None:
    """Merges the records in the older half of the file in pairs."""
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
            if (record := batch_of(line, path)) is None:
                continue
            while records and records[-1].batch >= record.batch:  # The batch was replayed.
                records.pop()
            records.append(record)
    # The last batch may be replayed, so its record is not merged.
    pairs = [one.then(other) for one, other in zip(records[:-1:2], records[1:-1:2], strict=False)]
    rest = records[2 * len(pairs) :]
    _replace(path, [plan, *(line_text(record) for record in [*pairs, *rest]), *lines[older:]])


def _replace(path: str, lines: Iterable[bytes]) -> None:
    """Replaces the file. A reader sees either the old or the new file, never a part."""
    written = f"{path}.new"
    with open(written, "wb") as file:
        file.writelines(lines)
    replace(written, path)


def _require_records(path: str) -> None:
    """Raises `FileExistsError` if a file exists that has no records, so that a wrong name destroys nothing."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
        if not (PLAN_LINE.startswith(head) or are_records(head)):
            raise FileExistsError(f"records={path!r} is not a records file; name another one")
