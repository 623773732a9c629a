"""Playing rows and timers: a user's methods are called, key by key, each in its order of time.

This is the one place where Python is called per row: what comes in and what goes out are columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from types import GeneratorType
from typing import Any, Final

import attrs
import polars as pl

from stages.clock import StepClock
from stages.errors import ResultError, UnreadableState
from stages.operator import PENDING
from stages.process.calls import Call
from stages.process.cells import CellState
from stages.process.declarations import Process, TimestampedValue
from stages.process.layout import Layout
from stages.process.moments import from_datetime
from stages.process.timers import SOON, Family, Single
from windowing.time import MAX_TIME, MIN_TIME, format_duration, format_time

MOST_HOPS: Final = 10_000
"""The length of a chain of firings that set each other at the end of input, or while time hardly advances, at most."""

MOST_IN_A_STEP: Final = 1_000_000
"""The firings of one key in a step that were set by other firings of the step, at most: emitted rows are in memory."""

_CHUNK: Final = 10_000  # rows as dicts at a time

_NO_ROWS: Final = (Mapping, str, TimestampedValue)

Firing = tuple[str, str | None, int]
"""The name of a timer, its tag, if it is of a family, and its time (us)."""

Check = Callable[[Sequence[Any]], Mapping[int, str]]
"""Returns the results that do not fit the declared columns, by their number, with the reason."""


Invoke = Callable[[Any, tuple[Any, ...], "Firing | int"], None]
"""Calls a method with arguments, for a firing or for the row of this number."""


class RunawayTimer(ResultError):
    """A timer that fires again and again without end."""


_NO_FAULT_OF_ROWS: Final = (MemoryError, RunawayTimer, UnreadableState)


@attrs.frozen
class Script:
    """The calls of a step: `rows` by cell, and `state` with a row for each cell, null for a new one.

    Rows `begins[i]` up to `turns[i]` of cell i are processed at once, rows from there to `begins[i + 1]` in order of
    time.
    """

    state: pl.DataFrame
    begins: Sequence[int]
    turns: Sequence[int]
    rows: pl.DataFrame
    times: Sequence[int]
    retracted: Sequence[bool] | None = None


@attrs.define
class Played:
    """The results of the calls: emitted `items` with the time (us) and cell of each, and refused rows and firings."""

    items: list[Any] = attrs.field(factory=list)
    times: list[int] = attrs.field(factory=list)
    cells: list[int] = attrs.field(factory=list)
    refused_rows: list[tuple[int, Exception]] = attrs.field(factory=list)
    refused_firings: list[tuple[int, Firing, Exception]] = attrs.field(factory=list)
    fired: int = 0

    def mark(self) -> tuple[int, int, int, int]:
        """The current position, for `back_to`."""
        return len(self.items), len(self.refused_rows), len(self.refused_firings), self.fired

    def back_to(self, mark: tuple[int, int, int, int]) -> None:
        """Removes everything after a position."""
        items, rows, firings, self.fired = mark
        del self.items[items:], self.times[items:], self.cells[items:]
        del self.refused_rows[rows:], self.refused_firings[firings:]


class Player:
    """Runs the methods for the cells of a step.

    If a method raises, its cell is run again, call by call, as are `careful` cells: the changes of a call that raises
    are undone, and its results are checked before they count. Other cells do not pay for that.
    """

    def __init__(
        self,
        process: Process,
        layout: Layout,
        script: Script,
        clock: StepClock,
        check: Check,
        careful: frozenset[int],
    ) -> None:
        self.script, self.check, self.careful = script, check, careful
        # Read for each row: the clock's times are plain numbers here.
        self.input_before, self.watermark, self.at_end = clock.input_before, clock.watermark, clock.at_end
        self.processing_time = clock.processing_time
        self.played = Played()
        keys = [script.state[key].to_list() for key in layout.keys]
        self.call = Call(layout.key_type, keys, self.processing_time, self.at_end)
        self.state = CellState(process, layout, script.state, self.call)
        self.methods = {name: getattr(self.state.process, f"on_{name}") for name in layout.timers}
        self.timers = self.state.timers
        self.event_timers = [timer for timer in self.timers if timer.event]
        self.processing_timers = [timer for timer in self.timers if not timer.event]
        self.expires = layout.expires
        self.expiries = script.state.select(layout.latest.alias("")).to_series().to_list()
        self.starts, self.ends = (script.state[column].to_list() for column in layout.window)
        self.known = script.state[PENDING].is_not_null().to_list()
        self.dead: list[int] = []
        self.element, self.called = self.state.process.element, self.state.called
        self._chunk: list[dict[str, Any]] = []
        self._first = 0
        self._invoke: Invoke = self._trusted
        self._chained = 0
        self._touched = False

    def play(self) -> Played:
        """Runs all cells."""
        for cell in range(len(self.starts)):
            if cell in self.careful:
                self._play(cell, self._checked, self.known[cell])
                continue
            mark = self.played.mark()
            try:
                self._play(cell, self._trusted, True)
            except Exception as error:
                self._give_up(error)
                self.played.back_to(mark)
                self._chunk = []  # a method may have changed a row that it was given
                self.state.as_declared()
                self._play(cell, self._checked, self.known[cell])
        return self.played

    def _play(self, cell: int, invoke: Invoke, touched: bool) -> None:
        """Runs one cell. `touched`: the cell is kept; otherwise it is kept only if a call succeeds."""
        self._invoke, self._touched = invoke, touched
        script, call = self.script, self.call
        call.cell, call.start, call.end = cell, self.starts[cell], self.ends[cell]
        call.expiry = self.expiries[cell]
        self._chained, call.endless = 0, False
        self.state.load(cell)
        begin, turn, end = script.begins[cell], script.turns[cell], script.begins[cell + 1]
        if begin < turn:
            call.watermark = self.input_before
            for row, given in enumerate(self._given(begin, turn), begin):
                self._row(row, script.times[row], given)
                self._fire_until(self.input_before, self.event_timers)
        call.watermark, call.late = self.watermark, False
        for row, given in enumerate(self._given(turn, end), turn):
            time = script.times[row]
            self._fire_until(time, self.event_timers)
            self._row(row, time, given)
        self._move()
        self.state.leave(cell)
        if not self._touched:
            self.dead.append(cell)

    def _move(self) -> None:
        """Advances time to the clocks of the step, which may be past the end of the window."""
        call = self.call
        firing = self.event_timers
        call.endless = self.at_end
        if self.at_end:
            firing = [timer for timer in firing if not timer.drops]
        self._fire_until(self.watermark, firing)
        if self.processing_timers:
            self._by_processing_time(firing)
        if call.expiry <= self.watermark:
            call.now = call.stamp = call.expiry
            if self.expires and self._touched:
                self._invoke(self.state.process.expire, (), ("expire", None, call.now))
            self.dead.append(call.cell)

    def _given(self, begin: int, end: int) -> Iterable[dict[str, Any]]:
        """Yields these rows as dicts, made in chunks that usually contain all of them."""
        first = self._first
        if first <= begin and end <= first + len(self._chunk):
            return self._chunk[begin - first : end - first]
        return self._across(begin, end)

    def _across(self, begin: int, end: int) -> Iterator[dict[str, Any]]:
        while begin < end:
            if not self._first <= begin < self._first + len(self._chunk):
                self._chunk, self._first = self.script.rows.slice(begin, _CHUNK).rows(named=True), begin
            upto = min(end, self._first + len(self._chunk))
            yield from self._chunk[begin - self._first : upto - self._first]
            begin = upto

    def _row(self, row: int, time: int, given: dict[str, Any]) -> None:
        call = self.call
        call.now = call.stamp = time
        call.late, call.hops = time < self.input_before, 0
        if self.script.retracted is not None:
            call.retracted = self.script.retracted[row]
        self._invoke(self.element, (given,), row)

    def _fire_until(self, limit: int, timers: Sequence[Single | Family]) -> None:
        """Fires event timers up to this time, in order of time, with those that other firings set."""
        while True:
            found = None
            for timer in timers:
                time = timer.time
                if time is not None and time <= limit and (found is None or time < found.time):  # type: ignore[operator]
                    found = timer
            if found is None:
                return
            tag, (time, output, _, hops) = found.take()
            self._fire(found, tag, time, output, time, hops)

    def _fire(
        self, timer: Single | Family, tag: str | None, now: int, stamp: int | None, time: int, hops: int
    ) -> None:
        self._count(timer, time, hops)
        call = self.call
        call.hops = hops + 1
        call.now, call.stamp = now, now if stamp is None else stamp
        call.late = call.retracted = False
        self.played.fired += 1
        self._invoke(self.methods[timer.name], () if tag is None else (tag,), (timer.name, tag, time))

    def _count(self, timer: Single | Family, time: int, hops: int) -> None:
        """Raises `RunawayTimer` for a chain of firings that would not end, or would fill the memory."""
        if not hops:
            return
        self._chained += 1
        if hops < MOST_HOPS and self._chained < MOST_IN_A_STEP:
            return
        key = ", ".join(map(str, self.call.key))
        runs = f"timer {timer.name!r} of key {key} sets itself or others again and again: it has fired"
        if hops < MOST_HOPS:
            why = f"{MOST_IN_A_STEP:,} times in one batch"
            hint = "set it further ahead"
        elif self.call.endless:
            why = f"{MOST_HOPS:,} times at the end of input"
            hint = "EventTimer(at_end='drop') is for timers that set themselves again"
            hint = hint if timer.event else "set none where self.at_end is true"
        else:
            why = f"{MOST_HOPS:,} times in a row with less than {format_duration(SOON)} between"
            hint = "set it further ahead"
        raise RunawayTimer(f"{runs} {why}, the last time for {format_time(time)}; {hint}")

    def _by_processing_time(self, event_timers: Sequence[Single | Family]) -> None:
        """Fires each due timer once; a timer that is set for the current time then fires in the next step."""
        latest = MAX_TIME if self.at_end else self.processing_time
        done = set[tuple[int, str | None]]()
        while due := self._due(latest, done):
            for _, number, tag in due:
                timer = self.processing_timers[number]
                done.add((number, tag))
                # Another one may have cleared it, or set it anew.
                if timer.is_due(tag, latest):
                    time, output, hold, hops = timer.take_of(tag)
                    stamp = self._output_watermark()
                    if output is not None and (hold is not None or stamp <= MIN_TIME):
                        stamp = output
                    self._fire(timer, tag, stamp, stamp, time, hops)
                    self._fire_until(self.watermark, event_timers)
            if not self.at_end:
                return

    def _due(self, latest: int, done: set[tuple[int, str | None]]) -> list[tuple[int, int, str | None]]:
        """(time, number, tag) of the processing-time timers that are due and not done, in their order."""
        due = [
            (time, number, tag)
            for number, timer in enumerate(self.processing_timers)
            for time, tag in timer.due(latest)
            if (number, tag) not in done
        ]
        return sorted(due, key=lambda firing: (*firing[:2], firing[2] or ""))

    def _output_watermark(self) -> int:
        """The output watermark before the step, as this key alone holds it, which is the same on any shard."""
        holds = [timer.least_hold() for timer in self.timers]
        return min([self.input_before, *(hold for hold in holds if hold is not None)])

    def _trusted(self, method: Any, args: tuple[Any, ...], origin: Firing | int) -> None:
        result = method(*args)
        if result is not None:
            self._emit(result)
        self.called()

    def _checked(self, method: Any, args: tuple[Any, ...], origin: Firing | int) -> None:
        saved, mark = self.state.saved(), self.played.mark()
        try:
            self._trusted(method, deepcopy(args), origin)
            for why in self.check(self.played.items[mark[0] :]).values():
                raise ResultError(why)
            self.state.require_fitting()
            self._touched = True
        except Exception as error:
            self._give_up(error)
            self.state.restore(saved)
            self.played.back_to(mark)
            if isinstance(origin, int):
                self.played.refused_rows.append((origin, error))
            else:
                self.played.refused_firings.append((self.call.cell, origin, error))

    def _give_up(self, error: Exception) -> None:
        """Raises errors that no row or firing has caused, so that none becomes a dead letter for them."""
        if self.state.unreadable is not None:
            raise self.state.unreadable
        if isinstance(error, _NO_FAULT_OF_ROWS):
            raise error

    def _emit(self, result: Any) -> None:
        if type(result) is not GeneratorType and (
            isinstance(result, _NO_ROWS) or not isinstance(result, Iterable)
        ):
            hint = (
                "; write yield in place of return" if isinstance(result, Mapping | TimestampedValue) else ""
            )
            raise ResultError(f"expected several dicts, as a method with yield gives, got {result!r}{hint}")
        played, call = self.played, self.call
        for item in result:
            stamp = call.stamp
            if type(item) is TimestampedValue:
                stamp = from_datetime(item.timestamp)
                if stamp < call.stamp:
                    raise ResultError(
                        f"the output timestamp {format_time(stamp)} of a row must not be before "
                        f"{format_time(call.stamp)}, the time of what it was made for: it could be late"
                    )
                item = item.value
            played.items.append(item)
            played.times.append(stamp)
            played.cells.append(call.cell)
