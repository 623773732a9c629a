"""The current activity of a run: its current batch, and the sources, steps, stages or sinks that are working on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock, get_ident
from typing import Any, Protocol, runtime_checkable

import attrs


@attrs.frozen
class Activity:
    """A part of the work on a batch. `kind` is "source", "step", "stage", "sink" or "callback"; `since` is its start
    (us).

    `inside` is kind and name of the surrounding activity as text, and `inside_kind` only its kind. `tasks` is the
    number of tasks that do it at the same time.
    """

    kind: str
    name: str
    since: int
    inside: str = ""
    tasks: int = 1
    inside_kind: str = ""

    @property
    def of_source(self) -> bool:
        """True if the activity is a source, or runs inside one."""
        return "source" in (self.kind, self.inside_kind)

    def __str__(self) -> str:
        return f"{self.kind} `{self.name}`" + (f" (in {self.inside})" if self.inside else "")


@attrs.frozen
class CurrentBatch:
    """A batch that is not finished: its number, its start time (us), and its activities, longest first.

    `done` has the stages that have finished the batch, each with its time (us).
    """

    batch: int
    started: int
    works: tuple[Activity, ...] = ()
    done: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class ActivityTimes:
    """The times (us) of all activities of one kind and name in a batch, of which `count` have ended.

    `busy`: the sum of their durations, which may overlap.
    """

    kind: str
    name: str
    since: int
    until: int
    busy: int = 0
    count: int = 1

    def plus(self, other: ActivityTimes) -> ActivityTimes:
        """Merges the times with those of other activities of the same kind and name."""
        return attrs.evolve(
            self,
            since=min(self.since, other.since),
            until=max(self.until, other.until),
            busy=self.busy + other.busy,
            count=self.count + other.count,
        )


@attrs.define(eq=False)
class ActivityTracker:
    """The tracker of the current batch of a process and of its activities, in all threads.

    `report` is called with the current batch at each change. `simulated`: test streams set processing time, so it does
    not move by itself. `going` is False after the run. `with_tasks` adds the activities of other processes. `timed`:
    the times of ended activities are kept until the next batch begins. `run`: the name of the run, for logs.
    """

    clock: Callable[[], int]
    report: Callable[[CurrentBatch | None], None] = lambda in_hand: None
    simulated: bool = False
    with_tasks: Callable[[CurrentBatch], CurrentBatch] = lambda in_hand: in_hand
    run: str = attrs.field(default="", init=False)
    timed: bool = attrs.field(default=False, init=False)
    going: bool = attrs.field(default=True, init=False)
    _retries: int = attrs.field(default=0, init=False)
    _in_hand: CurrentBatch | None = attrs.field(default=None, init=False)
    _by_thread: dict[int, list[Activity]] = attrs.field(factory=dict, init=False)
    """The activities of each thread, the outermost first."""
    _ended: dict[tuple[str, str], ActivityTimes] = attrs.field(factory=dict, init=False)
    _lock: Any = attrs.field(factory=Lock, init=False)

    @property
    def in_hand(self) -> CurrentBatch | None:
        """The current batch, with the activities of other processes. It may be read from any thread."""
        in_hand = self._in_hand
        return None if in_hand is None else self.with_tasks(in_hand)

    @property
    def begun(self) -> CurrentBatch | None:
        """The current batch, with the activities of this process only."""
        return self._in_hand

    def begin(self, batch: int) -> None:
        """Starts the batch with the number `batch`, without activities so far."""
        with self._lock:
            self._by_thread.clear()
            self._ended.clear()
            self._put(CurrentBatch(batch, self.clock()))

    def end(self) -> None:
        """Ends the current batch: no batch is in progress until the next `begin`."""
        with self._lock:
            self._put(None)

    def close(self) -> None:
        """Marks the run as over, so that `going` is False."""
        self._in_hand, self.going = None, False

    def retried(self) -> None:
        """Counts a request that is repeated, as its service is briefly unwell."""
        with self._lock:
            self._retries += 1

    def take_retries(self) -> int:
        """Returns the number of repeated requests since the last call."""
        with self._lock:
            count, self._retries = self._retries, 0
        return count

    def done(self, stage: str) -> None:
        """Records that the stage has finished the current batch."""
        with self._lock:
            if self._in_hand is not None:
                done = {**self._in_hand.done, stage: self.clock()}
                self._put(attrs.evolve(self._in_hand, done=done))

    def enter(self, kind: str, name: str) -> None:
        """Starts an activity in the current thread, inside the thread's current activity."""
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
                work = works.pop()
                if self.timed:
                    self._keep(work)
            self._update()

    def times(self) -> list[ActivityTimes]:
        """Returns the times of the activities that have ended in the current batch; empty unless the tracker is
        `timed`.
        """
        with self._lock:
            return list(self._ended.values())

    def _keep(self, work: Activity) -> None:
        now, key = self.clock(), (work.kind, work.name)
        times = ActivityTimes(work.kind, work.name, work.since, now, now - work.since)
        self._ended[key] = self._ended[key].plus(times) if key in self._ended else times

    def _update(self) -> None:
        if self._in_hand is not None:
            inner = [works[-1] for works in self._by_thread.values() if works]
            if len(inner) > 1:
                inner.sort(key=lambda work: work.since)
            # Many times in each batch, so without `attrs.evolve`, which takes several times as long.
            now = self._in_hand
            self._put(CurrentBatch(now.batch, now.started, tuple(inner), now.done))

    def _put(self, in_hand: CurrentBatch | None) -> None:
        self._in_hand = in_hand
        self.report(in_hand)


@runtime_checkable
class Follower(Protocol):
    """An `on_batch` function that can also read the current activity of the run at any time."""

    def follow(self, tracker: ActivityTracker) -> None:
        """Receives the tracker of a new run."""


_TRACKER: ContextVar[ActivityTracker | None] = ContextVar("activity_tracker", default=None)


def current_tracker() -> ActivityTracker | None:
    """Returns the activity tracker of the current context, or None."""
    return _TRACKER.get()


def taken_retries() -> int:
    """Returns the number of requests that were repeated since the last call, in the current context."""
    tracker = current_tracker()
    return 0 if tracker is None else tracker.take_retries()


@contextmanager
def tracked_by(tracker: ActivityTracker | None) -> Iterator[None]:
    """Sends activities inside the `with` block to `tracker`, or to no tracker if it is None."""
    before = _TRACKER.get()
    _TRACKER.set(tracker)
    try:
        yield
    finally:
        # Set without a token, because a generator may be closed in another context than the one in which it
        # started.
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
