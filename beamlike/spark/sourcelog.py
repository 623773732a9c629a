"""What Spark has read: the offsets of its last batch, and the files that the log of a source has up to there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import unquote

from beamlike.io.paths import path_text
from beamlike.spark.checkpoint import Checkpoint

NO_OFFSET = "-"  # as Spark writes it, of a source that has given nothing yet
_COMPACT = ".compact"


def last_batch(checkpoint: Checkpoint, log: str) -> int:
    """The last batch that is in a log, `offsets` or `commits`; -1 if there is none."""
    names = checkpoint.files.names(checkpoint.of_spark(log))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def offset_lines(checkpoint: Checkpoint, batch: int) -> list[str]:
    """The offsets of a batch: a version, facts of the batch, then a line per stream; none if there are none."""
    text = checkpoint.files.read(checkpoint.of_spark("offsets", str(batch)))
    return [] if text is None else text.splitlines()


def taken(checkpoint: Checkpoint, folder: str, offset: str) -> Iterator[str]:
    """The files that a source of Spark's had taken by then, from its log in a folder below the checkpoint.

    Every tenth entry or so is a compact one, which has all before it.
    """
    last = -1 if offset == NO_OFFSET else int(json.loads(offset)["logOffset"])
    names = checkpoint.files.names(checkpoint.of_spark(folder))
    numbers = {name: int(name.removesuffix(_COMPACT)) for name in names}
    known = {name: number for name, number in numbers.items() if number <= last}
    first = max((number for name, number in known.items() if name.endswith(_COMPACT)), default=-1)
    for name in sorted(known, key=lambda name: known[name]):
        if known[name] > first or name == f"{first}{_COMPACT}":
            # After a line with the version.
            for line in (checkpoint.files.read(checkpoint.of_spark(folder, name)) or "").splitlines()[1:]:
                yield path_text(unquote(json.loads(line)["path"]))
