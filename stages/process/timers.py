"""Timers as a user's method sees them: the pending firings of the current key."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import Any, Final

from stages.process.calls import Call
from stages.process.declarations import EventTimer, ProcessingTimer, Timer
from stages.process.moments import from_datetime, length, to_datetime
from windowing.time import MAX_TIME, Duration, format_time

Firing = tuple[int, int | None, int | None, int]
"""The time at which a timer fires, its output timestamp if that is another, its hold (all in us), and its hops.

Hops: 0 if a row or an earlier step set it; else the length of the chain of firings that set each other and in which
time hardly advanced.
"""

SOON: Final = 1_000
"""The time (us) by which a firing must advance so that its chain is not endless."""

_STALE: Final = 100
"""The outdated entries that a queue may have besides as many as are pending."""


class Pending:
    """The base of timers: computes and checks the time of a firing. `time` (us) is that of the first firing, if any."""

    __slots__ = ("call", "drops", "event", "holds", "name", "time")

    def __init__(self, name: str, declared: Timer, call: Call) -> None:
        self.name, self.call = name, call
        self.event = isinstance(declared, EventTimer)
        self.drops = isinstance(declared, EventTimer) and declared.at_end == "drop"
        self.holds = isinstance(declared, ProcessingTimer) and declared.hold
        self.time: int | None = None

    def firing_at(self, time: datetime, output: datetime | None) -> Firing:
        """The firing at this time. Raises `ValueError` for an event time after the window is collected."""
        at = from_datetime(time)
        if self.event and at > self.call.expiry:
            raise ValueError(
                f"timer {self.name!r} was set for {format_time(at)}, after its window is collected at "
                f"{format_time(self.call.expiry)}"
            )
        return self._firing(at, output)

    def firing_after(self, duration: Duration, output: datetime | None) -> Firing:
        """The firing a duration after the time of the row or timer, at the latest when the window is collected."""
        call = self.call
        if self.event:
            at = call.now + length(duration)
            if at > call.expiry:
                at = call.expiry
            return self._firing(at, output)
        return self._firing(min(call.processing_time + length(duration), MAX_TIME), output)

    def held(self, time: int | None, output: int | None, hold: int | None = None) -> int | None:
        """The time at which a firing holds that is stored as `time`, `output` and, by processing time, `hold`."""
        if self.event:
            return time if output is None else output
        return output if self.holds else hold

    def too_late(self) -> bool:
        """True if the current firing is at the time when the window is collected: no later firing is possible."""
        return self.event and self.call.now >= self.call.expiry

    def _firing(self, at: int, output: datetime | None) -> Firing:
        stamp = self._output(at, output)
        given = stamp if self.event or self.holds or output is not None else None
        return at, stamp, self.held(at, stamp, given), self._hops(at)

    def _hops(self, at: int) -> int:
        """The hops of a firing that the current row or firing sets for this time."""
        call = self.call
        if not call.hops:
            return 0
        since = call.now if self.event else call.processing_time
        return call.hops if call.endless or at - since < SOON else 1

    def _output(self, at: int, output: datetime | None) -> int | None:
        """The output timestamp at which a pending timer holds the watermark; None if it holds at its own time.

        For a processing-time timer the default is the time of the row that set it.
        """
        call = self.call
        if output is None:
            return None if self.event else call.stamp
        stamp = from_datetime(output)
        latest = at if self.event else call.expiry
        if not call.stamp <= stamp <= latest:
            raise ValueError(
                f"timer {self.name!r}: the output timestamp {format_time(stamp)} must not be before "
                f"{format_time(call.stamp)}, the time of what set it, nor after {format_time(latest)}"
            )
        return stamp


class Single(Pending):
    """A single timer: `self.quiet.after("10m")`, `.at(time)`, `.clear()`, `.pending()`."""

    __slots__ = ("hold", "hops", "output")
    output: int | None
    hold: int | None
    hops: int

    def after(self, duration: Duration, output: datetime | None = None) -> None:
        """Sets the timer to fire after a duration, at the latest when the window is collected.

        It replaces a pending firing. In a firing at the time at which the window is collected nothing is set: no time
        is left.

        Args:
            duration: Counted from the time of the current row or firing.
            output: The time of the emitted rows, at which the watermark is held until then. By default that is the time
                of the firing. By processing time it is the output watermark, which is not held unless the timer has
                `hold=True`.
        """
        firing = self.firing_after(duration, output)
        self.time, self.output, self.hold, self.hops = (None, None, None, 0) if self.too_late() else firing

    def at(self, time: datetime, output: datetime | None = None) -> None:
        """Sets the timer to fire at this time, in place of a pending firing; `output` as for `after`."""
        self.time, self.output, self.hold, self.hops = self.firing_at(time, output)

    def clear(self) -> None:
        """Removes the pending firing, if there is one."""
        self.time = None

    def pending(self) -> datetime | None:
        """The time at which the timer fires; None if it is not set."""
        return None if self.time is None else to_datetime(self.time)

    def take(self) -> tuple[str | None, Firing]:
        """Removes and returns the firing, as (no tag, firing)."""
        return None, self.take_of(None)

    def take_of(self, tag: str | None) -> Firing:
        """Removes and returns the firing."""
        time, self.time = self.time, None
        assert time is not None
        return time, self.output, self.hold, self.hops

    def load(self, cell: int, *columns: list[int | None]) -> None:
        """Loads the firing of a cell from columns: the time, the output timestamp and, by processing time, the hold."""
        time, output, *held = (column[cell] for column in columns)
        self.time, self.output, self.hops = time, output, 0
        self.hold = self.held(time, output, *held)

    def leave(self, cell: int, *columns: list[int | None]) -> None:
        """Stores the firing of a cell into columns."""
        pending = (None,) * 3 if self.time is None else (self.time, self.output, self.hold)
        for column, value in zip(columns, pending, strict=False):
            column[cell] = value

    def saved(self) -> Any:
        """A copy of the firing, for `restore`."""
        return self.time, self.output, self.hold, self.hops

    def restore(self, saved: Any) -> None:
        """Sets the firing back to what `saved` returned."""
        self.time, self.output, self.hold, self.hops = saved

    def due(self, latest: int) -> list[tuple[int, str | None]]:
        """(time, no tag), if the timer fires by then."""
        return [(self.time, None)] if self.is_due(None, latest) and self.time is not None else []

    def is_due(self, tag: str | None, latest: int) -> bool:
        """True if the timer is pending and fires by then."""
        return self.time is not None and self.time <= latest

    def least_hold(self) -> int | None:
        """The time (us) at which the timer holds, if it is pending and holds."""
        return None if self.time is None else self.hold


class Queue:
    """The tags of pending firings, in order of a number of each, of which only the least is read.

    An entry counts while its tag is pending with that number. Outdated entries stay until they are the least, or are
    too many. A firing without a number is left out.
    """

    __slots__ = ("_entries", "_number", "_pending")

    def __init__(self, pending: dict[str, Firing], number: Callable[[Firing], int | None]) -> None:
        self._pending, self._number = pending, number
        self._fill()

    def _fill(self) -> None:
        numbers = ((self._number(firing), tag) for tag, firing in self._pending.items())
        self._entries = [(number, tag) for number, tag in numbers if number is not None]
        heapify(self._entries)

    def add(self, tag: str) -> None:
        """Adds the firing of this tag, which has changed."""
        number = self._number(self._pending[tag])
        if len(self._entries) > 2 * len(self._pending) + _STALE:
            self._fill()
        elif number is not None:
            heappush(self._entries, (number, tag))

    def first(self) -> tuple[int, str] | None:
        """The least number and its tag; of equal ones the first tag."""
        entries, pending = self._entries, self._pending
        while entries:
            number, tag = entries[0]
            firing = pending.get(tag)
            if firing is not None and self._number(firing) == number:
                return number, tag
            heappop(entries)
        return None


def _time(firing: Firing) -> int:
    return firing[0]


def _hold(firing: Firing) -> int | None:
    return firing[2]


class Family(Pending):
    """Timers by tag: `self.retries.after("5s", tag="a")`, `.at(time, tag="a")`, `.clear("a")`, `.pending("a")`."""

    __slots__ = ("_holding", "_queue", "_undo", "by_tag")
    by_tag: dict[str, Firing]
    _queue: Queue | None
    _holding: Queue | None
    _undo: list[tuple[str, Firing | None]] | None

    def after(self, duration: Duration, output: datetime | None = None, *, tag: str) -> None:
        """Sets the timer of this tag to fire after a duration; see `Single.after`."""
        firing = self.firing_after(duration, output)
        if self.too_late():
            self.clear(tag)
        else:
            self._set(tag, firing)

    def at(self, time: datetime, output: datetime | None = None, *, tag: str) -> None:
        """Sets the timer of this tag to fire at this time; see `Single.at`."""
        self._set(tag, self.firing_at(time, output))

    def clear(self, tag: str | None = None) -> None:
        """Removes the pending firing of this tag; without a tag, of all tags."""
        for one in list(self.by_tag) if tag is None else [tag]:
            self._put(one, None)
        self._first()

    def pending(self, tag: str) -> datetime | None:
        """The time at which the timer of this tag fires; None if it is not set."""
        return to_datetime(self.by_tag[tag][0]) if tag in self.by_tag else None

    def take(self) -> tuple[str | None, Firing]:
        """Removes and returns the first firing, as (tag, firing)."""
        first = self._by_time().first()
        assert first is not None
        return first[1], self.take_of(first[1])

    def take_of(self, tag: str | None) -> Firing:
        """Removes and returns the firing of a tag."""
        assert tag is not None
        firing = self.by_tag[tag]
        self._put(tag, None)
        self._first()
        return firing

    def load(self, cell: int, *columns: list[Any]) -> None:
        """Loads the firings of a cell from columns: tags, times, output timestamps and, by processing time, holds."""
        tags, times, outputs, *held = (column[cell] or () for column in columns)
        holds = held[0] if held and held[0] else repeat(None)
        self.by_tag = {
            tag: (time, output, self.held(time, output, hold), 0)
            for tag, time, output, hold in zip(tags, times, outputs, holds, strict=False)
        }
        self._queue = self._holding = self._undo = None
        self.time = min(times) if times else None

    def leave(self, cell: int, *columns: list[Any]) -> None:
        """Stores the firings of a cell into columns; null if none is pending."""
        firings = self.by_tag.values()
        times = [firing[0] for firing in firings]
        outputs = [firing[0] if firing[1] is None else firing[1] for firing in firings]
        pending = (list(self.by_tag), times, outputs, list(map(_hold, firings)))
        for column, value in zip(columns, pending, strict=False):
            column[cell] = value or None

    def saved(self) -> Any:
        """Begins to record changes, for `restore`."""
        self._undo = []

    def restore(self, saved: Any) -> None:
        """Undoes the changes since `saved`."""
        for tag, firing in reversed(self._undo or []):
            self._put(tag, firing)
        self._undo = []
        self._first()

    def due(self, latest: int) -> list[tuple[int, str | None]]:
        """(time, tag) of the timers that fire by then."""
        if self.time is None or self.time > latest:
            return []
        return [(firing[0], tag) for tag, firing in self.by_tag.items() if firing[0] <= latest]

    def is_due(self, tag: str | None, latest: int) -> bool:
        """True if the timer of this tag is pending and fires by then."""
        return tag in self.by_tag and self.by_tag[tag][0] <= latest

    def least_hold(self) -> int | None:
        """The least time (us) at which a pending timer holds, if any does."""
        if self._holding is None:
            self._holding = Queue(self.by_tag, _hold)
        first = self._holding.first()
        return None if first is None else first[0]

    def _set(self, tag: str, firing: Firing) -> None:
        if not isinstance(tag, str):
            raise TypeError(f"timers {self.name!r}: a tag is text, not {tag!r}")
        self._put(tag, firing)
        self._first()

    def _put(self, tag: str, firing: Firing | None) -> None:
        """Sets the firing of a tag, or removes it; `_first` must follow."""
        queue = self._by_time()
        if self._undo is not None:
            self._undo.append((tag, self.by_tag.get(tag)))
        if firing is None:
            self.by_tag.pop(tag, None)
            return
        self.by_tag[tag] = firing
        queue.add(tag)
        if self._holding is not None:
            self._holding.add(tag)

    def _by_time(self) -> Queue:
        """The queue of firings by time, made at its first use, as most loaded families are not changed."""
        if self._queue is None:
            self._queue = Queue(self.by_tag, _time)
        return self._queue

    def _first(self) -> None:
        first = self._by_time().first()
        self.time = None if first is None else first[0]
