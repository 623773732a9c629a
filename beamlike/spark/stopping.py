"""Stops a query between two batches: the current batch is finished, and the next one does not begin.

Spark itself can only interrupt a query at any point. So a gate blocks the next batch until Spark interrupts it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from beamlike.errors import RunError
from beamlike.runtime.run.options import Phase
from beamlike.spark.connect.relay import Batch, Relay, RelayedBatch
from beamlike.spark.java_errors import Py4JError, Py4JJavaError
from beamlike.spark.session.connect import first_line, give_up, release

T = TypeVar("T")

_CONNECTIONS = 10  # connections to Java that are tried before giving up
_STARTS = 6  # attempts to start a query, each of ten seconds
_NO_PYTHON = "Python worker failed to connect back"
_LOOK = 0.2  # seconds between polls of a stopping query
_FOR_EVER = 2**31 * 1000  # milliseconds; Spark interrupts the sleep long before


@attrs.define(eq=False)
class BatchGate:
    """The `foreachBatch` function of a query. It begins no batch after it is closed.

    `settle` is called before and after each batch. `exit` is a `SystemExit`, or another exception that is no error,
    which a batch raised. It cannot be raised here, because Java would then wait for ever for an answer. So the run's
    thread raises it. `error` is the error of a batch in this process, which Java passes on as text.
    """

    batch: Batch
    settle: Callable[[], object] = lambda: None
    _closed: threading.Event = attrs.field(factory=threading.Event)
    _held: threading.Event = attrs.field(factory=threading.Event)
    _inside: int | None = None
    exit: BaseException | None = attrs.field(default=None, init=False)
    error: Exception | None = attrs.field(default=None, init=False)

    def __call__(self, envelopes: DataFrame, number: int) -> None:
        if self._closed.is_set():
            self._held.set()
            _hold_back(envelopes)
            raise RuntimeError(f"batch {number} was held back, and then its query was not stopped")
        self._inside = threading.get_ident()
        try:
            self.settle()  # the offsets of the batch are synced before anything is written
            self.batch(envelopes, number)
            self.settle()  # the state is synced before the batch is recorded as done
        except Exception as error:
            self.error = None if isinstance(error, PySparkException | Py4JError) else error
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
        """Closes the gate, waits until the current batch ends, if there is one, and stops the query."""
        self.close()
        while answer(lambda: query.isActive and query.status["isTriggerActive"]):
            # the next batch arrives when the previous one is committed
            if self._held.wait(_LOOK):
                break
        answer(query.stop)


def _hold_back(envelopes: DataFrame) -> None:
    """Waits until the query ends."""
    batch: object = envelopes
    if isinstance(batch, RelayedBatch):
        return batch.hold()
    # Sleeps in the query's Java thread. Spark interrupts it when the query ends, which does not count as a failure.
    jvm: Any = envelopes.sparkSession._jvm
    return jvm.java.lang.Thread.sleep(_FOR_EVER)  # type: ignore[no-any-return]


@attrs.define(eq=False)
class RunningQuery:
    """A running query with its gate, and the phase of its run. `relay` is there if the query is on Spark Connect."""

    query: StreamingQuery
    gate: BatchGate
    relay: Relay | None = None
    phase: Phase = attrs.field(default=Phase.GOING, init=False)
    lost: Exception | None = attrs.field(default=None, init=False)
    """The error of a server that no longer answers. The batch in progress cannot be committed without this process."""
    _failure: Exception | None = attrs.field(default=None, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def go_to(self, phase: Phase) -> None:
        """Moves the run to a phase. An earlier phase than the current one changes nothing."""
        self.phase = max(self.phase, phase)

    def is_active(self) -> bool:
        """True until the query has ended, or its server of Spark Connect no longer answers."""
        if self.relay is None:
            return answer(lambda: self.query.isActive)
        if self.lost is None and not self._closed:
            try:
                return self.query.isActive
            except PySparkException as error:
                self.lost = error
        return False

    def has_failed(self) -> bool:
        """True if the query, which has ended, did not finish a batch."""
        return self.failed_with() is not None

    def failed_with(self) -> Exception | None:
        """Returns the error of a query that did not finish a batch, or of the server that cannot tell; else None."""
        # Without a server or its session, this process answers from what it knows.
        if self.relay is None or not (self.lost or self._closed):
            return self.query.exception()
        return self._failure or self.lost

    def require_relayed(self) -> None:
        """Raises the error of a batch that could not be taken from the server."""
        if self.relay is not None and self.relay.error is not None:
            raise self.relay.error

    def failure_of_server(self, error: PySparkException) -> RunError | None:
        """Returns the error for a server of Spark Connect that did not answer a call; None on a classic session."""
        if self.relay is None:
            return None
        self.lost = error
        return RunError(
            f"the server of Spark Connect no longer answers ({first_line(error)}); the next run on the checkpoint "
            "repeats the batch that was in progress"
        )

    def close(self) -> None:
        """Ends what belongs to the query, which has ended."""
        if self.relay is not None and not self._closed:
            self._failure, self._closed = self.failed_with(), True
            self.relay.close()
            (release if self.lost is None else give_up)(self.relay.session)

    def is_closed(self) -> bool:
        """True if the query has ended, and its session with a server, too. Raises the error of a query that failed."""
        if self._closed and self._failure is not None:
            raise self._failure
        return self._closed

    def finish(self) -> None:
        """Stops the query after the current batch."""
        self.gate.finish(self.query)

    def halt(self, phase: Phase = Phase.STOPPING) -> None:
        """Stops the query at once, and moves its run to a phase."""
        self.go_to(phase)
        if self.is_active() or self.relay is None:  # the call renews a connection that a signal has broken
            self.query.stop()


def answer(ask: Callable[[], T]) -> T:
    """Calls Java, and repeats the call if there is no answer.

    A signal during a call closes the connection. Under load the next calls, also from other threads, may fail too, or
    raise meaningless errors. An exception raised by Java counts as an answer.
    """
    for _ in range(_CONNECTIONS - 1):
        try:
            return ask()
        except Py4JJavaError:
            raise
        except Py4JError:
            continue
    return ask()


def started(start: Callable[[], StreamingQuery], attempts: int = _STARTS) -> StreamingQuery:
    """Starts a query, and tries again if a server of Spark Connect could not start its Python for `foreachBatch`.

    The server waits only ten seconds for that process, which a busy machine may need. The query has not begun then.
    Raises `RunError` if no attempt succeeds.
    """
    try:
        return start()
    except PySparkException as error:
        if _NO_PYTHON not in str(error):
            raise
        if attempts == 1:
            raise RunError(
                f"the server of Spark Connect could not start its Python for foreachBatch in {_STARTS} attempts of ten "
                f"seconds: its machine is too busy, or its log has another reason ({first_line(error)})"
            ) from error
    return started(start, attempts - 1)
