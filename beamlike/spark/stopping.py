"""Ends a query between two batches: the current one is finished, and the next one does not begin.

Spark can only interrupt a query, wherever it is. So a gate before each batch blocks the next one until Spark does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import attrs
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from beamlike.runtime.run.options import Phase

Batch = Callable[[DataFrame, int], None]
"""A `foreachBatch` function."""

T = TypeVar("T")

_CONNECTIONS = 10  # to Java, of which one must answer
_LOOK = 0.2  # seconds between two polls at a query that is to stop
_FOR_EVER = 2**31 * 1000  # milliseconds; Spark interrupts it long before


@attrs.define(eq=False)
class BatchGate:
    """The `foreachBatch` function of a query, which begins no batch once it is closed.

    `settle` is called before and after each batch. `exit` is the `SystemExit` that a batch raised, or another
    exception that is no error. Java would wait forever for the answer to such a call, so the run's thread raises it.
    """

    batch: Batch
    settle: Callable[[], object] = lambda: None
    _closed: threading.Event = attrs.field(factory=threading.Event)
    _held: threading.Event = attrs.field(factory=threading.Event)
    _inside: int | None = None
    exit: BaseException | None = attrs.field(default=None, init=False)

    def __call__(self, envelopes: DataFrame, number: int) -> None:
        if self._closed.is_set():
            self._held.set()
            # Sleeps in the query's Java thread: Spark interrupts it at the end of the query, which is no failure.
            jvm: Any = envelopes.sparkSession._jvm
            jvm.java.lang.Thread.sleep(_FOR_EVER)
            raise RuntimeError(f"batch {number} was held back, and then its query was not stopped")
        self._inside = threading.get_ident()
        try:
            self.settle()  # the offsets of the batch, before anything is written
            self.batch(envelopes, number)
            self.settle()  # the state after it, before it is noted as done
        except Exception:
            raise
        except BaseException as error:
            self.exit = error
            raise RuntimeError(f"batch {number} asked to leave the process") from error
        finally:
            self._inside = None

    @property
    def is_mine(self) -> bool:
        """True if the caller is the current batch itself."""
        return self._inside == threading.get_ident()

    def close(self) -> None:
        """Blocks the next batch."""
        self._closed.set()

    def finish(self, query: StreamingQuery) -> None:
        """Closes the gate, waits for the end of the current batch, if there is one, and stops the query."""
        self.close()
        while answer(lambda: query.isActive and query.status["isTriggerActive"]):
            # The next batch arrives when the one before it is committed.
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
    """Calls Java, and repeats the call if there is no answer.

    A signal during a call closes the connection. Under load the next calls, also of other threads, may fail too, or
    raise errors without meaning. An exception of Java is an answer.
    """
    for _ in range(_CONNECTIONS - 1):
        try:
            return ask()
        except Py4JJavaError:
            raise
        except Py4JError:
            continue
    return ask()
