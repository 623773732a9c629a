"""Timers as attributes of a user's object: they hold the pending firings of the current key and window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import Any, Final, Protocol

from stages.process.calls import Call
from stages.process.choices import Domain
from stages.process.time_conversion import from_datetime, length, to_datetime
from windowing.time import MAX_TIME, Duration, format_time

Firing = tuple[int, int | None, int | None, int]
"""The time at which a timer fires, its output timestamp if it differs, its hold (all in us), and its hops.

Hops are 0 if a row or a previous step set the firing. Otherwise they are the length of its chain: firings that were
each set by the previous one, with time advancing by less than `SOON`.
"""

SOON: Final = 1_000
"""A firing that advances time by less than this (us) continues a chain, which might never end."""

_STALE: Final = 100
"""The number of outdated entries that a queue may have, in addition to as many as there are pending firings."""


class TimerFacts(Protocol):
    """The properties of a declared timer on which its firings depend. `stages/process/timer_fields.py` has the
    declarations.
    """

    @property
    def domain(self) -> Domain: ...

    @property
    def drops(self) -> bool: ...

    @property
    def holds(self) -> bool: ...


class Pending:
    """The base class of timers: computes and checks the times of firings. `time` (us) is that of the first, if any.

    `columns` are the columns of the timer in the state of all cells, lists with a value for each cell.
    """

    __slots__ = ("call", "columns", "drops", "event", "holds", "name", "time")

    def __init__(self, name: str, declared: TimerFacts, call: Call, columns: Sequence[list[Any]]) -> None:
        self.name, self.call, self.columns = name, call, columns
        self.event, self.drops, self.holds = declared.domain == "event", declared.drops, declared.holds
        self.time: int | None = None

    def firing_at(self, time: datetime, output: datetime | None) -> Firing:
        """Returns the firing at this time. Raises `ValueError` for an event time after the window is collected."""
        at = from_datetime(time)
        if self.event and at > self.call.expiry:
            raise ValueError(
                f"timer {self.name!r} was set for {format_time(at)}, after its window is collected at "
                f"{format_time(self.call.expiry)}"
            )
        return self._firing(at, output)

    def firing_after(self, duration: Duration, output: datetime | None) -> Firing:
        """Returns the firing a duration after the current time, at the latest when the window is collected."""
        call = self.call
        if self.event:
            return self._firing(min(call.now + length(duration), call.expiry), output)
        return self._firing(min(call.processing_time + length(duration), MAX_TIME), output)

    def held(self, time: int | None, output: int | None, hold: int | None = None) -> int | None:
        """Returns the event time at which a firing holds the watermark, if it does.

        The arguments are its stored columns; only processing-time timers have the column `hold`.
        """
        if self.event:
            return time if output is None else output
        return output if self.holds else hold

    def too_late(self) -> bool:
        """True if an event timer can no longer be set, since the current firing is at the collection of the window."""
        return self.event and self.call.now >= self.call.expiry

    def _firing(self, at: int, output: datetime | None) -> Firing:
        stamp = self._output(at, output)
        given = stamp if self.event or self.holds or output is not None else None
        return at, stamp, self.held(at, stamp, given), self._hops(at)

    def _hops(self, at: int) -> int:
        """Returns the hops of a firing that the current call sets for this time."""
        call = self.call
        if not call.hops:
            return 0
        # A chain that advances time ends when it reaches the clock. At the end of input the clock has no end.
        since = call.now if self.event else call.processing_time
        return call.hops if call.endless or at - since < SOON else 1

    def _output(self, at: int, output: datetime | None) -> int | None:
        """Returns the output timestamp of a firing (us); None if it is the firing's own time, the default of event
        timers.

        The default of processing-time timers is the event time of the current row or timer. Raises `ValueError` if
        `output` is out of range.
        """
        call = self.call
        if output is None:
            return None if self.event else call.stamp
        stamp = from_datetime(output)
        latest = at if self.event else call.expiry
        if not call.stamp <= stamp <= latest:
            raise ValueError(
                f"timer {self.name!r}: the output timestamp {format_time(stamp)} must not be before "
                f"{format_time(call.stamp)}, the time of the row or timer that set it, nor after {format_time(latest)}"
            )
        return stamp


class Single(Pending):
    """A single timer: `self.quiet.after("10m")`, `.at(time)`, `.clear()`, `.pending()`."""

    __slots__ = ("_duration", "_holds", "_length", "_outputs", "_times", "hold", "hops", "output")
    output: int | None
    hold: int | None
    hops: int

    def __init__(self, name: str, declared: TimerFacts, call: Call, columns: Sequence[list[Any]]) -> None:
        super().__init__(name, declared, call, columns)
        self._times, self._outputs, self._holds = (*columns, [])[:3]
        # The last duration and its length (us): nearly all calls of a method have the same object.
        self._duration: Duration | None = None
        self._length = 0

    def after(self, duration: Duration, output: datetime | None = None) -> None:
        """Sets the timer to fire after a duration, at the latest when the window is collected.

        A pending firing is replaced. If the current firing is at the time at which the window is collected, no firing
        is set, since no time is left.

        Args:
            duration: The time from the current row or firing; for a processing-time timer, from the processing time.
            output: The event time of emitted rows, at which the timer holds the watermark until it fires. The default
                of an event timer is its own time. The default of a processing-time timer is the output watermark, and
                it does not hold the watermark unless it has `hold=True`.
        """
        call = self.call
        if output is None and self.event and not call.hops:
            # Rows set timers in this way for the most part, so nothing else is called.
            if duration is not self._duration:
                self._length, self._duration = length(duration), duration
            now, latest = call.now, call.expiry
            at = now + self._length
            if at > latest:
                at = latest
            self.time = self.hold = at if now < latest else None
            self.output, self.hops = None, 0
            return
        # Computed first, so that a wrong output timestamp raises even if no firing can be set.
        firing = self.firing_after(duration, output)
        self.time, self.output, self.hold, self.hops = (None, None, None, 0) if self.too_late() else firing

    def at(self, time: datetime, output: datetime | None = None) -> None:
        """Sets the timer to fire at this time. A pending firing is replaced. `output` is the same as for `after`."""
        self.time, self.output, self.hold, self.hops = self.firing_at(time, output)

    def clear(self) -> None:
        """Removes the pending firing, if there is one."""
        self.time = None

    def pending(self) -> datetime | None:
        """Returns the time at which the timer fires; None if it is not set."""
        return None if self.time is None else to_datetime(self.time)

    def take(self) -> tuple[str | None, Firing]:
        """Removes and returns the pending firing, as (None, firing), since there is no tag."""
        return None, self.take_of(None)

    def take_of(self, tag: str | None) -> Firing:
        """Removes and returns the pending firing."""
        time, self.time = self.time, None
        assert time is not None
        return time, self.output, self.hold, self.hops

    def load(self, cell: int) -> None:
        """Loads the firing of a cell from its columns: time, output timestamp and, for processing time, hold."""
        time, output = self._times[cell], self._outputs[cell]
        self.time, self.output, self.hops = time, output, 0
        self.hold = self.held(time, output, self._holds[cell] if self._holds else None)

    def store(self, cell: int) -> None:
        """Stores the pending firing at position `cell` of the timer's columns; null if there is none."""
        # Only `time` shows whether a firing is pending: the other attributes may belong to a removed firing.
        self._times[cell] = self.time
        self._outputs[cell] = None if self.time is None else self.output
        if self._holds:
            self._holds[cell] = None if self.time is None else self.hold

    def saved(self) -> Any:
        """Returns a copy of the pending firing, for `restore`."""
        return self.time, self.output, self.hold, self.hops

    def restore(self, saved: Any) -> None:
        """Resets the pending firing to a copy that `saved` returned."""
        self.time, self.output, self.hold, self.hops = saved

    def due(self, latest: int) -> list[tuple[int, str | None]]:
        """Returns [(time, None)] if the timer is due at the time `latest`; otherwise an empty list."""
        return [(self.time, None)] if self.is_due(None, latest) and self.time is not None else []

    def is_due(self, tag: str | None, latest: int) -> bool:
        """True if the timer is pending and due at the time `latest`."""
        return self.time is not None and self.time <= latest

    def least_hold(self) -> int | None:
        """Returns the event time (us) at which the timer holds the watermark; None if it does not."""
        return None if self.time is None else self.hold


class Queue:
    """A heap of the tags of pending firings, by a number such as their time. Firings without a number are left out.

    An entry is valid while the firing of its tag is pending and has this number. Outdated entries are removed when they
    are the least, or when there are too many.
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
        """Adds the new firing of this tag. If the tag has an entry for an earlier firing, this is now outdated."""
        number = self._number(self._pending[tag])
        # A rebuild takes time proportional to the entries, so it pays only once most of them are outdated.
        if len(self._entries) > 2 * len(self._pending) + _STALE:
            self._fill()
        elif number is not None:
            heappush(self._entries, (number, tag))

    def first(self) -> tuple[int, str] | None:
        """Returns the least number and its tag, the first tag if several have this number; None without valid
        entries.
        """
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
    """A timer family: `self.retries.after("5s", tag="a")`, `.at(time, tag="a")`, `.clear("a")`, `.pending("a")`."""

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
        """Returns the time at which the timer of this tag fires; None if it is not set."""
        return to_datetime(self.by_tag[tag][0]) if tag in self.by_tag else None

    def take(self) -> tuple[str | None, Firing]:
        """Removes and returns the firing with the least time, as (tag, firing)."""
        first = self._by_time().first()
        assert first is not None
        return first[1], self.take_of(first[1])

    def take_of(self, tag: str | None) -> Firing:
        """Removes and returns the pending firing of a tag."""
        assert tag is not None
        firing = self.by_tag[tag]
        self._put(tag, None)
        self._first()
        return firing

    def load(self, cell: int) -> None:
        """Loads the firings of a cell from columns: tags, times, output timestamps and, for processing time, holds."""
        tags, times, outputs, *held = (column[cell] or () for column in self.columns)
        holds = held[0] if held and held[0] else repeat(None)
        self.by_tag = {
            tag: (time, output, self.held(time, output, hold), 0)
            for tag, time, output, hold in zip(tags, times, outputs, holds, strict=False)
        }
        self._queue = self._holding = self._undo = None
        self.time = min(times) if times else None

    def store(self, cell: int) -> None:
        """Stores the firings of a cell in its columns; null if none is pending."""
        firings = self.by_tag.values()
        times = [firing[0] for firing in firings]
        outputs = [firing[0] if firing[1] is None else firing[1] for firing in firings]
        pending = (list(self.by_tag), times, outputs, list(map(_hold, firings)))
        for column, value in zip(self.columns, pending, strict=False):
            column[cell] = value or None

    def saved(self) -> Any:
        """Starts to record changes, for `restore`. A copy of all firings would cost more."""
        self._undo = []

    def restore(self, saved: Any) -> None:
        """Undoes all changes of firings since the last call of `saved`."""
        # In reverse order, so that a tag that was changed twice gets its first value.
        for tag, firing in reversed(self._undo or []):
            self._put(tag, firing)
        self._undo = []
        self._first()

    def due(self, latest: int) -> list[tuple[int, str | None]]:
        """Returns the timers that are due at the time `latest`, as (time, tag)."""
        if self.time is None or self.time > latest:
            return []
        return [(firing[0], tag) for tag, firing in self.by_tag.items() if firing[0] <= latest]

    def is_due(self, tag: str | None, latest: int) -> bool:
        """True if the timer of this tag is pending and due at the time `latest`."""
        return tag in self.by_tag and self.by_tag[tag][0] <= latest

    def least_hold(self) -> int | None:
        """Returns the least event time (us) at which a pending timer holds the watermark; None if none does."""
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
        """Sets or removes the firing of a tag. The caller must then call `_first`, which updates `time`."""
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
        """Returns the queue of firings by time. It is created at its first use, since most loaded families do not
        change.
        """
        if self._queue is None:
            self._queue = Queue(self.by_tag, _time)
        return self._queue

    def _first(self) -> None:
        first = self._by_time().first()
        self.time = None if first is None else first[0]
