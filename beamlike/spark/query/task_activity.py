"""The activity of a batch's tasks on Spark. Each task writes its own status file, and readers merge the files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from typing import Final

import attrs
import pyarrow as pa
from pyspark import TaskContext

from beamlike.records.status_files import TaskStatus, write_status
from beamlike.spark.session.workers import Batches
from beamlike.system.activity import ActivityTracker, CurrentBatch, tracked_by

_TAG: Final = re.compile(r"beamlike-batch-(\d+)-of-([0-9a-f]+)")


@attrs.frozen
class TaskTrackers:
    """The activity trackers of tasks, and `folder` for their status files, on the driver's file system. Without a
    folder, nothing is written.

    An executor that cannot reach the folder writes nothing. `keys` is the folder for the keys that stages receive.
    """

    folder: str | None
    keys: str | None = None

    @contextmanager
    def task(self, level: int) -> Iterator[None]:
        """Tracks the `with` block as a task of this level. Level 0 is the sources."""
        context = TaskContext.get()
        batch = batch_of(context)
        if self.folder is None or context is None or batch is None:
            yield
            return
        # A later attempt at the task, perhaps on another machine, replaces the file of the earlier one.
        path = os.path.join(self.folder, f"{level}-{context.partitionId()}")
        tracker = ActivityTracker(wall_clock, partial(_report, path, level))
        with tracked_by(tracker):
            tracker.begin(batch)
            yield

    def tracked(self, run: Batches, level: int = 0) -> Batches:
        """Wraps a function for `mapInArrow`, so that its calls are tracked as tasks of `level`."""

        @wraps(run)
        def tracked_run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with self.task(level):
                yield from run(batches)

        return tracked_run


NO_TRACKERS: Final = TaskTrackers(None)


def _report(path: str, level: int, in_hand: CurrentBatch | None) -> None:
    with suppress(OSError):
        write_status(path, TaskStatus(level, in_hand))


def batch_of(context: TaskContext | None) -> int | None:
    """Returns the number of a task's batch; None if Spark does not provide it."""
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    found = _tagged(context) if number is None else None
    return int(found[1]) if found else None if number is None else int(number)


def query_of(context: TaskContext | None) -> str | None:
    """Returns the id of a task's query, which is the same for all queries on a checkpoint; None if Spark does not
    provide it. With Spark Connect it is that of a run.
    """
    query = context.getLocalProperty("sql.streaming.queryId") if context else None
    found = _tagged(context) if query is None else None
    return found[2] if found else query


def _tagged(context: TaskContext | None) -> re.Match[str] | None:
    """Finds the batch in the tags of a job, where a server of Spark Connect has it."""
    return _TAG.search((context.getLocalProperty("spark.job.tags") or "") if context else "")


def wall_clock() -> int:
    """Returns the processing time (us) of this machine."""
    return time.time_ns() // 1000
