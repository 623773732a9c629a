"""What a run is at right now: the batch in hand, and the source, step, stage or sink that it is in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock, get_ident
from typing import Any, Protocol, runtime_checkable

import attrs


@attrs.frozen
class Work:
    """Something that a batch is in: a "source", "step", "stage", "sink" or "callback", since when (us).

    `inside` has the kind and name of what it is a part of, in words, and `inside_kind` the kind; `tasks` says in how
    many tasks at once it is.
    """

    kind: str
    name: str
    since: int
    inside: str = ""
    tasks: int = 1
    inside_kind: str = ""

    @property
    def of_source(self) -> bool:
        """Whether it is a source, or a part of one."""
        return "source" in (self.kind, self.inside_kind)

    def __str__(self) -> str:
        return f"{self.kind} `{self.name}`" + (f" (in {self.inside})" if self.inside else "")


@attrs.frozen
class InHand:
    """A batch that is not complete: its number, when it began (us), and what it is in, the longest first.

    `done` has the stages that are done with it, and when (us) they were.
    """

    batch: int
    started: int
    works: tuple[Work, ...] = ()
    done: Mapping[str, int] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Desk:
    """Where a process keeps what it is at, in all of its threads; `tell` is called with each change.

    `simulated`: processing time is that of test streams, and stands still in between. `going` until the run is over.
    `more` adds what other processes are at. `keys` is the folder in which is noted which keys have come.
    """

    clock: Callable[[], int]
    tell: Callable[[InHand | None], None] = lambda in_hand: None
    simulated: bool = False
    more: Callable[[InHand], InHand] = lambda in_hand: in_hand
    keys: str | None = None
    going: bool = attrs.field(default=True, init=False)
    _in_hand: InHand | None = attrs.field(default=None, init=False)
    _at: dict[int, list[Work]] = attrs.field(factory=dict, init=False)
    """By thread: what it is at, and before that what this is a part of."""
    _lock: Any = attrs.field(factory=Lock, init=False)

    @property
    def in_hand(self) -> InHand | None:
        """What is in hand now; also for those who follow the run from another thread."""
        in_hand = self._in_hand
        return None if in_hand is None else self.more(in_hand)

    def begin(self, batch: int) -> None:
        """This batch is in hand from now on."""
        with self._lock:
            self._at.clear()
            self._put(InHand(batch, self.clock()))

    def end(self) -> None:
        """No batch is."""
        with self._lock:
            self._put(None)

    def close(self) -> None:
        """The run is over."""
        self._in_hand, self.going = None, False

    def done(self, stage: str) -> None:
        """The stage is done with the batch in hand."""
        with self._lock:
            if self._in_hand is not None:
                done = {**self._in_hand.done, stage: self.clock()}
                self._put(attrs.evolve(self._in_hand, done=done))

    def enter(self, kind: str, name: str) -> None:
        """The batch in hand is in this from now on, in this thread as a part of what it was in."""
        with self._lock:
            works = self._at.setdefault(get_ident(), [])
            outer = works[-1] if works else None
            inside, inside_kind = ("", "") if outer is None else (f"{outer.kind} `{outer.name}`", outer.kind)
            works.append(Work(kind, name, self.clock(), inside, inside_kind=inside_kind))
            self._now()

    def leave(self) -> None:
        """It is no more in what this thread entered last."""
        with self._lock:
            if works := self._at.get(get_ident()):
                works.pop()
            self._now()

    def _now(self) -> None:
        if self._in_hand is not None:
            works = sorted((works[-1] for works in self._at.values() if works), key=lambda work: work.since)
            self._put(attrs.evolve(self._in_hand, works=tuple(works)))

    def _put(self, in_hand: InHand | None) -> None:
        self._in_hand = in_hand
        self.tell(in_hand)


@runtime_checkable
class Follower(Protocol):
    """An `on_batch` that also wants to know, at any time, what the run is at."""

    def follow(self, desk: Desk) -> None:
        """A run begins, which keeps there what it is at."""


_DESK: ContextVar[Desk | None] = ContextVar("desk", default=None)


def desk() -> Desk | None:
    """That at which this process sits, if it does."""
    return _DESK.get()


@contextmanager
def seated(own: Desk | None) -> Iterator[None]:
    """What `at` says meanwhile goes to this desk; to none, if there is none."""
    before = _DESK.get()
    _DESK.set(own)
    try:
        yield
    finally:
        # Not by a token: a generator may be closed in another context than the one in which it began.
        _DESK.set(before)


@contextmanager
def at(kind: str, name: str) -> Iterator[None]:
    """The batch in hand, if there is one, is in this meanwhile."""
    here = desk()
    if here is None:
        yield
        return
    here.enter(kind, name)
    try:
        yield
    finally:
        here.leave()
