"""Telemetry of a run: exporters that receive its batches, each in its own thread."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

import attrs

from beamlike.errors import WrongType
from beamlike.plan.model import Plan
from beamlike.records.lines import Ending
from beamlike.records.model import BatchRecord
from beamlike.system.activity import ActivityTimes, ActivityTracker, CurrentBatch
from beamlike.system.secrets import without_secrets

_LOG = logging.getLogger("beamlike")

WAITING: Final = 1_000
"""The greatest number of batches that may wait for an exporter. Beyond it, a new batch is merged with the last one."""

PATIENCE: Final = 5.0
"""The number of seconds for which a run waits for its exporters when it ends."""


@attrs.frozen(eq=False, kw_only=True)
class FollowedRun:
    """A run that begins or continues, in the form in which exporters receive it.

    `run`: the id by which sinks know the run. `engine`: "local" or "spark". `endless`: the run continues until it is
    stopped. `started`: the time (us) at which it began. `tracker`: its current activity, which any thread may read.
    """

    plan: Plan
    run: str
    engine: str
    endless: bool
    started: int
    tracker: ActivityTracker


@attrs.frozen(eq=False)
class FinishedBatch:
    """A batch that is done: its record, its start and end (us), and the times of its activities in this process."""

    record: BatchRecord
    started: int
    ended: int
    activities: tuple[ActivityTimes, ...] = ()

    def then(self, later: FinishedBatch) -> FinishedBatch:
        """Merges two consecutive batches. The activities of the earlier batch are left out."""
        record = self.record.then(later.record)
        return attrs.evolve(later, record=record, started=self.started)


@attrs.frozen(eq=False)
class EndOfRun:
    """The end of a run: how and when (us) it ended, its error if it failed, and the batch that was not finished."""

    ending: Ending
    at: int
    error: BaseException | None = None
    unfinished: CurrentBatch | None = None


class Exporter(Protocol):
    """An exporter of one run, called in its own thread. An error is logged once, and does not stop the run."""

    def begin(self) -> None:
        """Exports the beginning of the run. It runs in the context of the thread that started the run."""

    def batch(self, done: FinishedBatch) -> None:
        """Exports a batch."""

    def end(self, end: EndOfRun) -> None:
        """Exports the end of the run, and releases the resources of the exporter."""


@runtime_checkable
class Telemetry(Protocol):
    """The protocol of the values of a runner's option `telemetry`."""

    def exporter(self, run: FollowedRun) -> Exporter:
        """Returns the exporter of a run that begins. It is called in the thread that starts the run."""


def telemetry_of(given: Any) -> tuple[Telemetry, ...]:
    """Converts the value of a runner's option `telemetry`. Raises `WrongType` if it is no telemetry, or no
    list of it.
    """
    found = given if isinstance(given, list | tuple) else [given]
    if all(isinstance(each, Telemetry) and not isinstance(each, type) for each in found):
        return tuple(found)
    raise WrongType(
        "telemetry= takes bl.observe.OpenTelemetry(), bl.observe.OpenLineage(), or a list of both, "
        f"not {given!r}; metrics for Prometheus are an on_batch="
    )


Report = Callable[[str], object]
"""A function that is called with the reason of a failed export."""


def report_once(name: str) -> Report:
    """Returns a function that logs only the first failure of the telemetry `name`, without secrets."""
    reported = list[str]()

    def report(why: str) -> None:
        if not reported:
            reported.append(why)
            text = "telemetry by %s fails, and the run continues without: %s (later failures are not logged)"
            _LOG.warning(text, name, without_secrets(why))

    return report


@attrs.define(eq=False)
class _Follower:
    """A thread that passes the batches of a run to an exporter, so that a slow exporter does not slow the run."""

    name: str
    exporter: Exporter
    _waiting: deque[FinishedBatch | EndOfRun] = attrs.field(factory=deque, init=False)
    _changed: threading.Condition = attrs.field(factory=threading.Condition, init=False)
    _thread: threading.Thread = attrs.field(init=False)
    _report: Report = attrs.field(init=False)
    merged: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._report = report_once(self.name)
        run = copy_context().run
        self._thread = threading.Thread(
            target=run, args=(self._go,), name=f"telemetry {self.name}", daemon=True
        )
        self._thread.start()

    def put(self, item: FinishedBatch | EndOfRun) -> None:
        with self._changed:
            # The run never waits for an exporter, so the queue of a slow one must be bounded.
            last = self._waiting[-1] if len(self._waiting) >= WAITING else None
            if isinstance(last, FinishedBatch) and isinstance(item, FinishedBatch):
                self._waiting[-1] = last.then(item)
                self.merged += 1
            else:
                self._waiting.append(item)
            self._changed.notify()

    def join(self, seconds: float) -> bool:
        """Waits at most `seconds` for the end of the thread. Returns True if it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _go(self) -> None:
        over = False
        self._guarded(self.exporter.begin)
        while not over:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                item = self._waiting.popleft()
            over = isinstance(item, EndOfRun)
            # Without the lock, so that the run can add batches during a slow export.
            self._guarded(partial(self._export, item))

    def _export(self, item: FinishedBatch | EndOfRun) -> None:
        if isinstance(item, EndOfRun):
            self.exporter.end(item)
        else:
            self.exporter.batch(item)

    def _guarded(self, export: Callable[[], object]) -> None:
        try:
            export()
        except Exception as error:  # Any exception of a library or a network.
            self._report(f"{type(error).__name__}: {error}")


@attrs.define(eq=False)
class RunTelemetry:
    """The exporters of a run. Without exporters it does nothing."""

    run: FollowedRun | None = None
    _followers: tuple[_Follower, ...] = ()
    _clock: Callable[[], int] = lambda: 0
    _last: int | None = attrs.field(default=None, init=False)
    _is_over: bool = attrs.field(default=False, init=False)

    @classmethod
    def begin(cls, telemetry: Iterable[Telemetry], run: FollowedRun) -> RunTelemetry:
        """Starts the exporters of a run, each in a thread."""
        followers = tuple(_Follower(type(each).__name__, each.exporter(run)) for each in telemetry)
        run.tracker.timed = bool(followers)
        return cls(run, followers, run.tracker.clock)

    def take(self, record: BatchRecord) -> None:
        """Passes a batch to all exporters, without waiting for them."""
        if not self._followers or self.run is None:
            return
        tracker, now = self.run.tracker, self._clock()
        begun = tracker.begun
        started = now if begun is None else min(begun.started, now)
        self._last = record.batch
        done = FinishedBatch(record, started, now, tuple(tracker.times()))
        for follower in self._followers:
            follower.put(done)

    def end(self, ending: Ending, unfinished: CurrentBatch | None, error: BaseException | None) -> None:
        """Passes the end of the run to all exporters, and waits for them at most `PATIENCE`. Later calls do nothing."""
        if self._is_over or not self._followers:
            return
        self._is_over = True
        if ending == "ended" or (unfinished is not None and unfinished.batch == self._last):
            unfinished = None
        end = EndOfRun(ending, self._clock(), error, unfinished)
        for follower in self._followers:
            follower.put(end)
        until = time.monotonic() + PATIENCE
        for follower in self._followers:
            _report(follower, is_over=follower.join(max(0.0, until - time.monotonic())))


def _report(follower: _Follower, *, is_over: bool) -> None:
    if follower.merged:
        _LOG.warning(
            "telemetry by %s was slower than the run: %d batches are merged with the ones before",
            follower.name,
            follower.merged,
        )
    if not is_over:
        _LOG.warning(
            "telemetry by %s has not sent everything %.0f s after the end of the run, and is left alone",
            follower.name,
            PATIENCE,
        )
