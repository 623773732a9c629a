"""Ends a query between two batches: the one in hand is finished, and the next one is not begun.

Spark can only interrupt a query, wherever it is. So a gate before each batch holds the next one back until it does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import attrs
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from beamlike.runtime.phase import Phase

Batch = Callable[[DataFrame, int], None]
"""A `foreachBatch` function."""

T = TypeVar("T")

_CONNECTIONS = 10  # to Java, of which one must answer
_LOOK = 0.2  # seconds between two looks at a query that is to stop
_FOR_EVER = 2**31 * 1000  # milliseconds; Spark interrupts it long before


@attrs.define(eq=False)
class BatchGate:
    """The `foreachBatch` function of a query, which begins no batch once it is closed.

    `settle` is called before each batch and after it.
    """

    batch: Batch
    settle: Callable[[], object] = lambda: None
    _closed: threading.Event = attrs.field(factory=threading.Event)
    _held: threading.Event = attrs.field(factory=threading.Event)
    _inside: int | None = None

    def __call__(self, envelopes: DataFrame, number: int) -> None:
        if self._closed.is_set():
            self._held.set()
            # In Java's thread of the query, so that its end interrupts it there, which Spark takes for no failure.
            jvm: Any = envelopes.sparkSession._jvm
            jvm.java.lang.Thread.sleep(_FOR_EVER)
            raise RuntimeError(f"batch {number} was held back, and then its query was not stopped")
        self._inside = threading.get_ident()
        try:
            self.settle()  # the offsets of the batch, before anything is written
            self.batch(envelopes, number)
            self.settle()  # the state after it, before it is noted as done
        finally:
            self._inside = None

    @property
    def is_mine(self) -> bool:
        """Whether it is the batch in hand itself that asks."""
        return self._inside == threading.get_ident()

    def close(self) -> None:
        """Holds the next batch back."""
        self._closed.set()

    def finish(self, query: StreamingQuery) -> None:
        """Closes it, waits for the end of the batch in hand, if there is one, and stops the query."""
        self.close()
        while answer(lambda: query.isActive and query.status["isTriggerActive"]):
            # The next batch is there once the one before it is committed.
            if self._held.wait(_LOOK):
                break
        answer(query.stop)


@attrs.define(eq=False)
class RunningQuery:
    """A query that has started, with its gate, and the phase of its run."""

    query: StreamingQuery
    gate: BatchGate
    phase: Phase = attrs.field(default=Phase.GOING, init=False)

    def go_to(self, phase: Phase) -> None:
        """Moves the run forward to a phase; an earlier one changes nothing."""
        self.phase = max(self.phase, phase)

    def is_active(self) -> bool:
        """True until the query is over."""
        return answer(lambda: self.query.isActive)

    def finish(self) -> None:
        """Stops the query after the current batch."""
        self.gate.finish(self.query)

    def halt(self, phase: Phase = Phase.STOPPING) -> None:
        """Stops the query at once, and moves its run to a phase."""
        self.go_to(phase)
        self.is_active()  # renews a connection that a signal has broken
        self.query.stop()


def answer(ask: Callable[[], T]) -> T:
    """What Java answers, asked again where there is none.

    A signal that breaks into an answer ends the connection, and under load the next ones, also of other threads, may
    fail, too, or be errors that say nothing. What Java raises is an answer.
    """
    for _ in range(_CONNECTIONS - 1):
        try:
            return ask()
        except Py4JJavaError:
            raise
        except Py4JError:
            continue
    return ask()
