"""Trip wires: the places in a run where a process is killed. A run without wires passes every place."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import attrs

from beamlike.system.activity import current_tracker
from tests.faults.processes import descendants, kill, parents

Place = Literal["read", "level 1", "level 2", "part", "sink", "transaction", "noted"]
"""Places, in the order in which a batch passes them.

read         an ingest task has read a file, and Spark has not got its rows yet
level 1      a shard has taken its step in the first stage; no state is committed
level 2      the same in the second stage: the state of the first one is committed
part         a task has half a file of output on the disk, under its hidden name
sink         the state of both stages is committed; a sink of the driver's has nothing yet
transaction  half of a batch is in the database, in a transaction that is open
noted        all sinks have the batch; Spark has not noted that
"""
IN_WORKERS: tuple[Place, ...] = ("read", "level 1", "level 2", "part")
ON_DRIVER: tuple[Place, ...] = ("sink", "transaction", "noted")

Victim = Literal["all", "driver", "worker", "executor", "exception", "later"]
"""The processes that SIGKILL ends.

all        the driver with its Java and all Python workers
driver     the Python driver alone; its Java continues until it detects that
worker     the Python worker at the place
executor   the worker and the Java above it
exception  none: an exception is raised instead
later      none: the wire only reports that a batch has reached the place
"""


class Cut(RuntimeError):
    """An exception for any failure at a place."""


@attrs.frozen
class Wire:
    """A fault that happens once, at the first passage of its place in its batch or a later one."""

    place: Place
    batch: int
    victim: Victim


@attrs.frozen
class Wires:
    """Wires as files in a folder, which all processes of a run see; exactly one process trips each."""

    folder: str

    def lay(self, wires: Iterable[Wire]) -> None:
        """Replaces all wires."""
        for file in self._files():
            file.unlink()
        os.makedirs(self.folder, exist_ok=True)
        for number, wire in enumerate(wires):
            Path(self.folder, f"{number:03d}.json").write_text(json.dumps(attrs.asdict(wire)))

    def left(self) -> list[Wire]:
        """Returns the wires that have not been tripped."""
        found = []
        for file in self._files():
            with suppress(FileNotFoundError):  # another process has tripped it
                found.append(Wire(**json.loads(file.read_text())))
        return found

    def note_driver(self) -> None:
        """Records this process as the driver."""
        os.makedirs(self.folder, exist_ok=True)
        Path(self.folder, "driver").write_text(str(os.getpid()))

    def passes(self, place: Place, batch: int | None = None) -> None:
        """Trips the wires at a place; `batch` is needed outside of tasks and runs. Does not return for a victim."""
        batch = _batch() if batch is None else batch
        for file in self._files():
            try:
                wire = Wire(**json.loads(file.read_text()))
                if batch is not None and wire.place == place and batch >= wire.batch:
                    os.rename(file, file.with_suffix(".tripped"))
                    self._strike(wire)
            except FileNotFoundError:  # another process was first
                continue

    def _files(self) -> list[Path]:
        return sorted(Path(self.folder).glob("*.json"))

    def _strike(self, wire: Wire) -> None:
        if wire.victim == "later":
            return
        if wire.victim == "exception":
            raise Cut(f"{wire.place} of batch {wire.batch}")
        if wire.victim == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        table = parents()
        if wire.victim == "executor":
            daemon = table[os.getpid()]
            kill([table[daemon], daemon, os.getpid()])
        driver = int(Path(self.folder, "driver").read_text())
        kill([driver] if wire.victim == "driver" else [driver, *descendants(driver)])
        time.sleep(600)  # a worker whose driver alone was killed ends with its Java


def _batch() -> int | None:
    """Returns the number of the batch that this task or process runs; None outside of one."""
    if "pyspark" not in sys.modules:
        here = current_tracker()
        return here.in_hand.batch if here is not None and here.in_hand is not None else None
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    return None if number is None else int(number)
