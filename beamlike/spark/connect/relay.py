"""Takes the batches that a server of Spark Connect passes to this process, and calls the run's function for each."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast
from uuid import uuid4

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beamlike.errors import CheckpointError
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.connect.mailbox import ALIVE, DONE, GO, ROWS, Mailbox, mailbox

Batch = Callable[[DataFrame, int], None]
"""A `foreachBatch` function."""

TURNS: Final = "turns"
"""The folder in a checkpoint with the mailbox of its run."""

_PATIENCE: Final = 60.0  # seconds
_BEAT: Final = 2.0  # seconds
_BEAT_AFAR: Final = 10.0


class QueryOver(Exception):
    """Raised where a batch waits for rows of a query that has ended. The query has the reason."""


@attrs.define(eq=False)
class Relay:
    """Two threads of a run: one takes its batches, and one shows the server that this process lives.

    If a batch cannot be taken, `error` has the reason, and the query is stopped.
    """

    session: SparkSession
    checkpoint: Checkpoint
    box: Mailbox
    pause: float
    batch: Batch
    error: Exception | None = attrs.field(default=None, init=False)
    _over: threading.Event = attrs.field(factory=threading.Event, init=False)

    @classmethod
    def of(cls, session: SparkSession, checkpoint: Checkpoint, batch: Batch) -> Relay:
        """Creates the relay of a run. The mailbox of an earlier run is removed, so that a query which a killed process
        has left gives up its batch.
        """
        checkpoint.files.remove(checkpoint.at(TURNS))
        folder = checkpoint.at(TURNS, uuid4().hex)
        checkpoint.files.make(folder)
        pause = _BEAT if checkpoint.is_local else _BEAT_AFAR
        relay = cls(session, checkpoint, mailbox(folder, _PATIENCE), pause, batch)
        relay.box.put(ALIVE, b"0")
        return relay

    def follow(self, active: Callable[[], bool], stop: Callable[[], object]) -> None:
        """Starts the threads, for a query that has started."""
        name = "batches of Spark Connect"
        threading.Thread(target=self._show_life, name=f"{name}: alive", daemon=True).start()
        threading.Thread(target=self._take_all, args=(active, stop), name=name, daemon=True).start()

    def close(self) -> None:
        """Ends the threads, and removes the mailbox. The query must have ended, or be given up."""
        self._over.set()
        with suppress(CheckpointError):  # nothing depends on it, and the next run removes it, too
            self.checkpoint.files.remove(self.checkpoint.at(TURNS))

    def _show_life(self) -> None:
        beat = 0
        while not self._over.wait(self.pause):
            beat += 1
            try:
                self.box.put(ALIVE, str(beat).encode())
            except OSError:  # the next one may succeed; if none does, the server gives up
                continue

    def _take_all(self, active: Callable[[], bool], stop: Callable[[], object]) -> None:
        def look() -> None:
            if self._over.is_set() or not active():
                raise QueryOver

        try:
            before = -1
            while True:
                before = self.box.wait(partial(self._next, before), look)
                self._take(before, look)
        except QueryOver:
            return
        except Exception as error:
            if not self._over.is_set():
                self.error = error
                stop()

    def _next(self, before: int) -> int | None:
        """Returns the next batch that the server has begun. Removes the files of the one before."""
        found = next((batch for batch in self.box.begun() if batch > before), None)
        if found is not None and before >= 0:
            self.box.remove(before)
        return found

    def _take(self, number: int, look: Callable[[], object]) -> None:
        error = b""
        try:
            self.batch(cast(DataFrame, RelayedBatch(self, number, look)), number)
        except QueryOver:
            raise
        except Exception:
            error = traceback.format_exc().encode(errors="replace")
            self.box.put(f"{number}.{GO}", error)
        self.box.put(f"{number}.{DONE}", error)


@attrs.frozen
class RelayedBatch:
    """The rows of a batch, for the functions that receive the frame of a batch from a classic session."""

    relay: Relay
    number: int
    look: Callable[[], object]

    @property
    def sparkSession(self) -> SparkSession:
        return self.relay.session

    def collect(self) -> list[tuple[Any, ...]]:
        """Lets the server run the tasks of the batch, and returns their rows."""
        box = self.relay.box
        box.put(f"{self.number}.{GO}", b"")
        content = box.wait(lambda: box.get(f"{self.number}.{ROWS}"), self.look)
        rows = pa.ipc.open_file(pa.BufferReader(content)).read_all()
        return [*zip(*(column.to_pylist() for column in rows.columns), strict=True)]

    def hold(self) -> None:
        """Waits until the query is stopped."""
        self.relay.box.wait(lambda: None, self.look)
