"""The activity of the tasks of a batch on Spark: each task writes a status file of its own, which readers merge."""

from __future__ import annotations

import os
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


@attrs.frozen
class TaskTrackers:
    """Activity trackers for tasks, with status files in a folder of the driver's file system; None: no status files.

    An executor that cannot reach the folder writes nothing. `keys`: the folder for the keys that stages receive.
    """

    folder: str | None
    keys: str | None = None

    @contextmanager
    def task(self, level: int) -> Iterator[None]:
        """Tracks the `with` block as a task of this level (0: the sources)."""
        context = TaskContext.get()
        batch = batch_of(context)
        if self.folder is None or context is None or batch is None:
            yield
            return
        # A later attempt at the task, perhaps on another machine, replaces the file of the one before.
        path = os.path.join(self.folder, f"{level}-{context.partitionId()}")
        tracker = ActivityTracker(wall_clock, partial(_report, path, level))
        with tracked_by(tracker):
            tracker.begin(batch)
            yield

    def tracked(self, run: Batches, level: int = 0) -> Batches:
        """Wraps a function for `mapInArrow`, so that its tasks are tracked."""

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
    """The number of a task's batch; None if Spark does not say."""
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    return None if number is None else int(number)


def query_of(context: TaskContext | None) -> str | None:
    """The id of a task's query, the same for each query on a checkpoint; None if Spark does not say."""
    return context.getLocalProperty("sql.streaming.queryId") if context else None


def wall_clock() -> int:
    """The processing time (us) of this machine."""
    return time.time_ns() // 1000
