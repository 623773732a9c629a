"""Timers in the hands of a user's method: pending firings of the key that is played."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from stages.process.calls import Call
from stages.process.declarations import EventTimer, ProcessingTimer, Timer
from stages.process.moments import from_datetime, length, to_datetime
from windowing.time import MAX_TIME, Duration, format_time

Firing = tuple[int, int | None]
"""The time at which it fires, and its output timestamp (us) where that is another."""


class Pending:
    """What all timers have in common: which time is meant, and whether it may be. `time` (us) fires first, if any."""

    __slots__ = ("call", "drops", "event", "holds", "name", "time")

    def __init__(self, name: str, declared: Timer, call: Call) -> None:
        self.name, self.call = name, call
        self.event = isinstance(declared, EventTimer)
        self.drops = isinstance(declared, EventTimer) and declared.at_end == "drop"
        self.holds = isinstance(declared, ProcessingTimer) and declared.hold
        self.time: int | None = None

    def firing_at(self, time: datetime, output: datetime | None) -> Firing:
        """At this time, of which nothing is changed."""
        at = from_datetime(time)
        if self.event and at > self.call.expiry:
            raise ValueError(
                f"timer {self.name!r} was set for {format_time(at)}, after its window is collected at "
                f"{format_time(self.call.expiry)}"
            )
        return at, self._output(at, output)

    def firing_after(self, duration: Duration, output: datetime | None) -> Firing:
        """So long after the time of the row or timer; not after the window is collected."""
        call = self.call
        if self.event:
            at = call.now + length(duration)
            if at > call.expiry:
                at = call.expiry
            return at, None if output is None else self._output(at, output)
        at = min(call.processing_time + length(duration), MAX_TIME)
        return at, self._output(at, output)

    def too_late(self) -> bool:
        """Whether the window is collected at the time of the firing in hand, so that nothing can fire after it."""
        return self.event and self.call.now >= self.call.expiry

    def _output(self, at: int, output: datetime | None) -> int | None:
        """Where it holds, if not at its own time: by processing time, at the row that set it."""
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
    """One timer: `self.quiet.after("10m")`, `.at(time)`, `.clear()`, `.pending()`."""

    __slots__ = ("output",)
    output: int | None

    def after(self, duration: Duration, output: datetime | None = None) -> None:
        """Fires so long after the row or firing in hand, in place of what was set before; not after the window is over.

        A firing of the moment in which the window is collected sets nothing: no time is left.

        `output`: the time of what it emits, and where it holds the watermark until then; by default its own.
        """
        firing = self.firing_after(duration, output)
        self.time, self.output = (None, None) if self.too_late() else firing

    def at(self, time: datetime, output: datetime | None = None) -> None:
        """Fires at this time, in place of what was set before; `output` as for `after`."""
        self.time, self.output = self.firing_at(time, output)

    def clear(self) -> None:
        """Does not fire, if it was set."""
        self.time = None

    def pending(self) -> datetime | None:
        """The time at which it fires; None if it is not set."""
        return None if self.time is None else to_datetime(self.time)

    def take(self) -> tuple[str | None, int, int | None]:
        """(no tag, time, output timestamp) of the firing, which is no longer pending."""
        time, self.time = self.time, None
        assert time is not None
        return None, time, self.output

    def load(self, cell: int, times: list[int | None], outputs: list[int | None]) -> None:
        """As it is in the columns."""
        self.time, self.output = times[cell], outputs[cell]

    def leave(self, cell: int, times: list[int | None], outputs: list[int | None]) -> None:
        """Into the columns."""
        times[cell], outputs[cell] = self.time, None if self.time is None else self.output

    def saved(self) -> Any:
        """What `restore` takes."""
        return self.time, self.output

    def restore(self, saved: Any) -> None:
        """As it was then."""
        self.time, self.output = saved

    def take_of(self, tag: str | None) -> Firing:
        """The same of the firing of a tag, without it."""
        _, time, output = self.take()
        return time, output

    def firings(self) -> list[tuple[str | None, Firing]]:
        """All that are pending, by tag."""
        return [] if self.time is None else [(None, (self.time, self.output))]


class Family(Pending):
    """Timers by tag: `self.retries.after("5s", tag="a")`, `.at(time, tag="a")`, `.clear("a")`, `.pending("a")`."""

    __slots__ = ("by_tag",)
    by_tag: dict[str, Firing]

    def after(self, duration: Duration, output: datetime | None = None, *, tag: str) -> None:
        """The timer of this tag fires so long after the row or firing in hand; see `Single.after`."""
        firing = self.firing_after(duration, output)
        if self.too_late():
            self.clear(tag)
        else:
            self._set(tag, firing)

    def at(self, time: datetime, output: datetime | None = None, *, tag: str) -> None:
        """The timer of this tag fires at this time."""
        self._set(tag, self.firing_at(time, output))

    def clear(self, tag: str | None = None) -> None:
        """The timer of this tag does not fire; without a tag, none does."""
        if tag is None:
            self.by_tag.clear()
        else:
            self.by_tag.pop(tag, None)
        self._first()

    def pending(self, tag: str) -> datetime | None:
        """The time at which the timer of this tag fires; None if it is not set."""
        return to_datetime(self.by_tag[tag][0]) if tag in self.by_tag else None

    def take(self) -> tuple[str | None, int, int | None]:
        """(tag, time, output timestamp) of the first firing, which is no longer pending."""
        tag = min(self.by_tag, key=lambda tag: (self.by_tag[tag][0], tag))
        time, output = self.by_tag.pop(tag)
        self._first()
        return tag, time, output

    def load(self, cell: int, *columns: list[Any]) -> None:
        """As they are in the columns: tags, times, output timestamps."""
        tags, times, outputs = (column[cell] for column in columns)
        self.by_tag = {} if tags is None else dict(zip(tags, zip(times, outputs, strict=True), strict=True))
        self._first()

    def saved(self) -> Any:
        """What `restore` takes."""
        return dict(self.by_tag)

    def restore(self, saved: Any) -> None:
        """As they were then."""
        self.by_tag = dict(saved)
        self._first()

    def take_of(self, tag: str | None) -> Firing:
        """The same of the firing of a tag, without it."""
        assert tag is not None
        firing = self.by_tag.pop(tag)
        self._first()
        return firing

    def leave(self, cell: int, *columns: list[Any]) -> None:
        """Into the columns; null where nothing is pending."""
        firings = self.by_tag.values()
        times, outputs = (
            [time for time, _ in firings],
            [time if out is None else out for time, out in firings],
        )
        for column, value in zip(columns, (list(self.by_tag), times, outputs), strict=True):
            column[cell] = value or None

    def firings(self) -> list[tuple[str | None, Firing]]:
        """All that are pending, by tag."""
        return list(self.by_tag.items())

    def _set(self, tag: str, firing: Firing) -> None:
        if not isinstance(tag, str):
            raise TypeError(f"timers {self.name!r}: a tag is text, not {tag!r}")
        self.by_tag[tag] = firing
        self._first()

    def _first(self) -> None:
        self.time = min((time for time, _ in self.by_tag.values()), default=None)
