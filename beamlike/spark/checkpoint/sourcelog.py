"""Reads Spark's logs: the offsets of its last batch, and the files that a source had read by then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from beamlike.io.files.paths import path_text
from beamlike.spark.checkpoint.checkpoint import Checkpoint

NO_OFFSET = "-"  # Spark's text for a source without data
_COMPACT = ".compact"


def last_batch(checkpoint: Checkpoint, log: str) -> int:
    """Returns the last batch in a log, `offsets` or `commits`; -1 for none."""
    names = checkpoint.files.names(checkpoint.of_spark(log))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def offset_lines(checkpoint: Checkpoint, batch: int) -> list[str]:
    """Returns the lines of a batch's offsets: a version, facts of the batch, then a line per stream. Returns none if
    the batch has no offsets.
    """
    text = checkpoint.files.read(checkpoint.of_spark("offsets", str(batch)))
    return [] if text is None else text.splitlines()


def taken(checkpoint: Checkpoint, folder: str, offset: str) -> Iterator[str]:
    """Yields the files that a file source of Spark had read at an offset, from its log in a folder of the checkpoint.

    About every tenth entry is a compact one, which contains all earlier entries. Raises `CheckpointError` if entries
    are missing.
    """
    try:
        last = last_entry(offset)
    except (ValueError, TypeError):
        raise checkpoint.damaged("the last of Spark's offsets are not whole") from None
    if last < 0:
        return
    names = checkpoint.files.names(checkpoint.of_spark(folder))
    entries = [name for name in names if name.removesuffix(_COMPACT).isdigit()]
    numbers = {name: int(name.removesuffix(_COMPACT)) for name in entries}
    known = {name: number for name, number in numbers.items() if number <= last}
    first = max((number for name, number in known.items() if name.endswith(_COMPACT)), default=-1)
    due = [number for number in range(max(first, 0), last + 1) if number not in known.values()]
    if due:
        raise checkpoint.damaged(f"Spark's {folder}/{due[0]} is gone")
    for name in sorted(known, key=lambda name: known[name]):
        if known[name] > first or name == f"{first}{_COMPACT}":
            yield from _paths(checkpoint, folder, name)


def entries_between(checkpoint: Checkpoint, stream: int, before: str, now: str) -> Iterator[str]:
    """Yields the files that a batch takes from a stream of files, which is between two offsets."""
    folder = f"sources/{stream}"
    for entry in range(last_entry(before) + 1, last_entry(now) + 1):
        lines = _lines(checkpoint, folder, f"{entry}")
        if not lines:  # it is merged with all entries before it
            lines = _lines(checkpoint, folder, f"{entry}{_COMPACT}")
        yield from (_path(line) for line in lines if line.get("batchId", entry) == entry)


def logged_files(checkpoint: Checkpoint, folder: str) -> list[tuple[int, str]]:
    """Returns the files in the log of a file source of Spark, each with the number of its entry, in order."""
    names = checkpoint.files.names(checkpoint.of_spark(folder))
    entries = {
        name: int(name.removesuffix(_COMPACT)) for name in names if name.removesuffix(_COMPACT).isdigit()
    }
    compact = max((number for name, number in entries.items() if name.endswith(_COMPACT)), default=-1)
    files = list[tuple[int, str]]()
    for name in sorted(entries, key=lambda name: entries[name]):
        if entries[name] > compact or name == f"{compact}{_COMPACT}":
            files += [
                (line.get("batchId", entries[name]), _path(line)) for line in _lines(checkpoint, folder, name)
            ]
    return sorted(files)


def last_entry(offset: str) -> int:
    """Returns the last entry of a file source's log at this offset; -1 for none, and for other kinds of sources."""
    return int(_facts(offset).get("logOffset", -1))


def is_of_files(offset: str) -> bool:
    """True for an offset of a file source. Other sources may have logs, too, in forms of their own."""
    return "logOffset" in _facts(offset)


def _facts(offset: str) -> dict[str, Any]:
    facts = None if offset == NO_OFFSET else json.loads(offset)
    return facts if isinstance(facts, dict) else {}


def _paths(checkpoint: Checkpoint, folder: str, name: str) -> list[str]:
    return [_path(line) for line in _lines(checkpoint, folder, name)]


def _path(line: dict[str, Any]) -> str:
    return path_text(unquote(line["path"]))


def _lines(checkpoint: Checkpoint, folder: str, name: str) -> list[dict[str, Any]]:
    text = checkpoint.files.read(checkpoint.of_spark(folder, name)) or ""
    try:
        # The first line is a version.
        lines = [json.loads(line) for line in text.splitlines()[1:]]
        if all(isinstance(line["path"], str) for line in lines):
            return lines
    except (ValueError, KeyError, TypeError):
        pass
    raise checkpoint.damaged(f"Spark's {folder}/{name} is not whole")
