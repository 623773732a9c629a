"""What the tasks of a batch are at: each notes it in a small file of its own, and whoever looks puts them together."""

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

from beamlike.records.slips import TaskNow, write_slip
from beamlike.spark.session.workers import Batches
from beamlike.system.in_hand import Desk, InHand, seated


@attrs.frozen
class TaskDesks:
    """A folder for the slips of tasks, on the driver's file system; None where there is none to share.

    An executor that does not reach the folder notes nothing. `keys`: where it notes which keys have come.
    """

    folder: str | None
    keys: str | None = None

    @contextmanager
    def task(self, level: int) -> Iterator[None]:
        """This process is at a task of this level (0: of the sources) meanwhile."""
        context = TaskContext.get()
        batch = batch_of(context)
        if self.folder is None or context is None or batch is None:
            yield
            return
        # A task that is tried again, elsewhere, replaces what the attempt before noted.
        path = os.path.join(self.folder, f"{level}-{context.partitionId()}")
        desk = Desk(wall_clock, partial(_tell, path, level), keys=self.keys)
        with seated(desk):
            desk.begin(batch)
            yield

    def noted(self, run: Batches, level: int = 0) -> Batches:
        """A function for `mapInArrow` that notes what it is at."""

        @wraps(run)
        def and_note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with self.task(level):
                yield from run(batches)

        return and_note


NOWHERE: Final = TaskDesks(None)


def _tell(path: str, level: int, in_hand: InHand | None) -> None:
    with suppress(OSError):
        write_slip(path, TaskNow(level, in_hand))


def batch_of(context: TaskContext | None) -> int | None:
    """The number of the batch that a task is of; None where Spark does not tell."""
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    return None if number is None else int(number)


def query_of(context: TaskContext | None) -> str | None:
    """Which query a task is of, by its checkpoint; None where Spark does not tell."""
    return context.getLocalProperty("sql.streaming.queryId") if context else None


def wall_clock() -> int:
    """The processing time (us) of this machine."""
    return time.time_ns() // 1000
