"""Compares what the tasks of a batch report that they read with what the batch is to read.

A file that an executor, or Spark's planner, does not see is an empty input for Spark. The batch would count as read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from beamlike.errors import CheckpointError
from beamlike.runtime.batch.messages import Message, ReadMessage
from beamlike.runtime.run.checkpoint import OURS
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.sourcelog import NO_OFFSET, entries_between, offset_lines

_LOGS = ("files", "batches")
_REMEDY = """all executors must see the folder, and spark.sql.files.ignoreMissingFiles and \
ignoreCorruptFiles must be false"""


def require_all_read(due: Iterable[str], messages: Iterable[Message], what: str) -> None:
    """Raises `CheckpointError` unless the tasks have read all lines of the files that are due, and no others. `what`
    describes the batch.
    """
    read, lines = Counter[str](), dict[str, int]()
    for message in messages:
        if isinstance(message, ReadMessage):
            for file, (count, total) in message.files.items():
                read[file] += count
                lines[file] = total
    for file in sorted({*due} | {*read}):
        if file not in {*due}:
            raise CheckpointError(f"{what}: tasks have read {file}, which is not part of it; {_REMEDY}")
        if file not in lines:
            raise CheckpointError(f"{what}: no task has read {file}; {_REMEDY}")
        if read[file] != lines[file]:
            raise CheckpointError(
                f"{what}: tasks have read {read[file]} lines of {file}, which has {lines[file]}; {_REMEDY}"
            )


def require_batch_read(checkpoint: Checkpoint, batch: int, messages: Iterable[Message]) -> None:
    """Raises `CheckpointError` unless the tasks of a batch have read the files that Spark's logs have for it."""
    what = f"batch {batch} of the checkpoint {checkpoint.path} has not read its input"
    require_all_read(_due(checkpoint, batch), messages, what)


def _due(checkpoint: Checkpoint, batch: int) -> set[str]:
    """Returns the files of this package that a batch is to read, as paths below its folder."""
    before, now = (offset_lines(checkpoint, number)[2:] for number in (batch - 1, batch))
    return {
        place
        for number, offset in enumerate(now)
        for path in entries_between(checkpoint, number, before[number] if before else NO_OFFSET, offset)
        if (place := _place(path))
    }


def _place(path: str) -> str | None:
    """Returns the path of a log entry or a command below the folder of this package; None for a file of a user."""
    *_, folder, kind, name, last = ("", "", *path.split("/"))
    if folder == OURS and kind in _LOGS:
        return f"{kind}/{name}/{last}"
    return f"{name}/{last}" if (kind, name) == (OURS, "control") else None
