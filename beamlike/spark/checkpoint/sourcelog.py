"""Reads Spark's logs: the offsets of its last batch, and the files in the log of a source up to there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import unquote

from beamlike.io.files.paths import path_text
from beamlike.spark.checkpoint.checkpoint import Checkpoint

NO_OFFSET = "-"  # Spark's text for a source without data
_COMPACT = ".compact"


def last_batch(checkpoint: Checkpoint, log: str) -> int:
    """The last batch in a log, `offsets` or `commits`; -1 if there is none."""
    names = checkpoint.files.names(checkpoint.of_spark(log))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def offset_lines(checkpoint: Checkpoint, batch: int) -> list[str]:
    """The offsets of a batch: a version, facts of the batch, then a line per stream; empty if there are none."""
    text = checkpoint.files.read(checkpoint.of_spark("offsets", str(batch)))
    return [] if text is None else text.splitlines()


def taken(checkpoint: Checkpoint, folder: str, offset: str) -> Iterator[str]:
    """The files that a source of Spark had read by an offset, from its log in a folder below the checkpoint.

    About every tenth entry is a compact one with all entries before it. Raises `CheckpointError` for incomplete
    entries.
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


def last_entry(offset: str) -> int:
    """The last entry in the log of a file source at this offset; -1 if there is none, and for other sources."""
    facts = None if offset == NO_OFFSET else json.loads(offset)
    return int(facts.get("logOffset", -1)) if isinstance(facts, dict) else -1


def _paths(checkpoint: Checkpoint, folder: str, name: str) -> list[str]:
    text = checkpoint.files.read(checkpoint.of_spark(folder, name)) or ""
    try:
        # After a line with the version.
        return [path_text(unquote(json.loads(line)["path"])) for line in text.splitlines()[1:]]
    except (ValueError, KeyError, TypeError):
        raise checkpoint.damaged(f"Spark's {folder}/{name} is not whole") from None
