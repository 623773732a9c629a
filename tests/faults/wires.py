"""Trip wires: where in a run something is to be killed, and what. A run without them passes every place."""

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
"""In the order in which a batch comes by.

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

Victim = Literal["all", "driver", "worker", "executor", "nobody", "later"]
"""SIGKILL for: the driver with its Java and all Python workers; the Python driver alone, whose Java goes on until it
misses it; the Python worker that is there; the Java above it, with it. Nobody: an exception is raised instead.
Later: nothing happens here, but who watches the wires knows that a batch has come so far.
"""


class Cut(RuntimeError):
    """Stands for whatever may fail at a place."""


@attrs.frozen
class Wire:
    """Takes its victim at the first passage of its place in its batch or a later one; once."""

    place: Place
    batch: int
    victim: Victim


@attrs.frozen
class Wires:
    """Wires are files in a folder, so that all processes of a run meet them, and each has one who trips it."""

    folder: str

    def lay(self, wires: Iterable[Wire]) -> None:
        """Instead of those that are there."""
        for file in self._files():
            file.unlink()
        os.makedirs(self.folder, exist_ok=True)
        for number, wire in enumerate(wires):
            Path(self.folder, f"{number:03d}.json").write_text(json.dumps(attrs.asdict(wire)))

    def left(self) -> list[Wire]:
        """Those that nobody has tripped."""
        found = []
        for file in self._files():
            with suppress(FileNotFoundError):  # tripped meanwhile
                found.append(Wire(**json.loads(file.read_text())))
        return found

    def note_driver(self) -> None:
        """Says that this process is the driver."""
        os.makedirs(self.folder, exist_ok=True)
        Path(self.folder, "driver").write_text(str(os.getpid()))

    def passes(self, place: Place, batch: int | None = None) -> None:
        """Called at a place; tasks of Spark's, and runs in process, know their batch. Does not return for a victim."""
        batch = _batch() if batch is None else batch
        for file in self._files():
            try:
                wire = Wire(**json.loads(file.read_text()))
                if batch is not None and wire.place == place and batch >= wire.batch:
                    os.rename(file, file.with_suffix(".tripped"))
                    self._strike(wire)
            except FileNotFoundError:  # somebody else was first
                continue

    def _files(self) -> list[Path]:
        return sorted(Path(self.folder).glob("*.json"))

    def _strike(self, wire: Wire) -> None:
        if wire.victim == "later":
            return
        if wire.victim == "nobody":
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
    """The number of the batch that this task, or this process, is at; None outside of one."""
    if "pyspark" not in sys.modules:
        here = current_tracker()
        return here.in_hand.batch if here is not None and here.in_hand is not None else None
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    return None if number is None else int(number)
