"""The current activity of a run: its current batch, and the sources, steps, stages or sinks that are at work on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock, get_ident
from typing import Any, Protocol, runtime_checkable

import attrs


@attrs.frozen
class Activity:
    """A part of the work on a batch: a "source", "step", "stage", "sink" or "callback", and its start time (us).

    `inside`: kind and name of the activity around it, as text; `inside_kind`: only the kind. `tasks`: the number of
    tasks that do it at once.
    """

    kind: str
    name: str
    since: int
    inside: str = ""
    tasks: int = 1
    inside_kind: str = ""

    @property
    def of_source(self) -> bool:
        """True if this is a source, or runs inside one."""
        return "source" in (self.kind, self.inside_kind)

    def __str__(self) -> str:
        return f"{self.kind} `{self.name}`" + (f" (in {self.inside})" if self.inside else "")


@attrs.frozen
class CurrentBatch:
    """A batch that is not complete: its number, its start time (us), and its activities, the longest first.

    `done`: the stages that have finished the batch, each with its time (us).
    """

    batch: int
    started: int
    works: tuple[Activity, ...] = ()
    done: Mapping[str, int] = attrs.field(factory=dict)


@attrs.define(eq=False)
class ActivityTracker:
    """Tracks the current batch of a process and its activities, in all threads; `report` is called on each change.

    `simulated`: processing time is that of test streams, and does not move by itself. `going`: False after the run.
    `with_tasks` adds the activities of other processes.
    """

    clock: Callable[[], int]
    report: Callable[[CurrentBatch | None], None] = lambda in_hand: None
    simulated: bool = False
    with_tasks: Callable[[CurrentBatch], CurrentBatch] = lambda in_hand: in_hand
    going: bool = attrs.field(default=True, init=False)
    _in_hand: CurrentBatch | None = attrs.field(default=None, init=False)
    _by_thread: dict[int, list[Activity]] = attrs.field(factory=dict, init=False)
    """The activities of each thread, the outermost first."""
    _lock: Any = attrs.field(factory=Lock, init=False)

    @property
    def in_hand(self) -> CurrentBatch | None:
        """The current batch, with the activities of other processes. Safe to read from any thread."""
        in_hand = self._in_hand
        return None if in_hand is None else self.with_tasks(in_hand)

    def begin(self, batch: int) -> None:
        """Makes this the current batch."""
        with self._lock:
            self._by_thread.clear()
            self._put(CurrentBatch(batch, self.clock()))

    def end(self) -> None:
        """Ends the current batch."""
        with self._lock:
            self._put(None)

    def close(self) -> None:
        """Marks the run as over."""
        self._in_hand, self.going = None, False

    def done(self, stage: str) -> None:
        """Notes that the stage has finished the current batch."""
        with self._lock:
            if self._in_hand is not None:
                done = {**self._in_hand.done, stage: self.clock()}
                self._put(attrs.evolve(self._in_hand, done=done))

    def enter(self, kind: str, name: str) -> None:
        """Starts an activity in the current thread, inside the thread's activity before it."""
        with self._lock:
            works = self._by_thread.setdefault(get_ident(), [])
            outer = works[-1] if works else None
            inside, inside_kind = ("", "") if outer is None else (f"{outer.kind} `{outer.name}`", outer.kind)
            works.append(Activity(kind, name, self.clock(), inside, inside_kind=inside_kind))
            self._update()

    def leave(self) -> None:
        """Ends the innermost activity of the current thread."""
        with self._lock:
            if works := self._by_thread.get(get_ident()):
                works.pop()
            self._update()

    def _update(self) -> None:
        if self._in_hand is not None:
            inner = [works[-1] for works in self._by_thread.values() if works]
            works = sorted(inner, key=lambda work: work.since)
            self._put(attrs.evolve(self._in_hand, works=tuple(works)))

    def _put(self, in_hand: CurrentBatch | None) -> None:
        self._in_hand = in_hand
        self.report(in_hand)


@runtime_checkable
class Follower(Protocol):
    """An `on_batch` function that also reads the current activity of the run at any time."""

    def follow(self, tracker: ActivityTracker) -> None:
        """Receives the tracker of a run that begins."""


_TRACKER: ContextVar[ActivityTracker | None] = ContextVar("activity_tracker", default=None)


def current_tracker() -> ActivityTracker | None:
    """The activity tracker of the current context, or None."""
    return _TRACKER.get()


@contextmanager
def tracked_by(tracker: ActivityTracker | None) -> Iterator[None]:
    """Sends activities inside the `with` block to `tracker`; with None, to no tracker."""
    before = _TRACKER.get()
    _TRACKER.set(tracker)
    try:
        yield
    finally:
        # Not by a token: a generator may be closed in another context than the one in which it began.
        _TRACKER.set(before)


@contextmanager
def activity(kind: str, name: str) -> Iterator[None]:
    """Reports the `with` block as an activity to the current tracker, if there is one."""
    tracker = current_tracker()
    if tracker is None:
        yield
        return
    tracker.enter(kind, name)
    try:
        yield
    finally:
        tracker.leave()
