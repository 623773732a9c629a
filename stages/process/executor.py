"""Runs a user's methods for rows and timers: cell by cell (a key and window), each cell in its order of time.

No other place calls Python per row: input and output are columns. The rows of a step lie cell by cell:

    state of the plan    cell 0               cell 1           cell 2        a row per cell, null for a new one
    rows of the plan     a a a | t t t t      | t t            a |           a: at once, t: in order of time
                         |     |              |
                     begins[0] timed_from[0]  begins[1] = timed_from[1]

    a cell is run:  load fields and timers -> rows at once -> rows in order of time, with the event timers between them
                    -> event timers up to the watermark -> processing timers -> expiry -> store fields and timers

The log has an entry for each emitted row (item, time, cell), and for each row or firing on which a method raised. It
can be reset to an earlier length, so a cell that fails is run again as if nothing had happened.
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

FiringId = tuple[str, str | None, int]
"""The name of a timer, its tag, if it is of a family, and its time (us)."""

Check = Callable[[Sequence[Any]], Mapping[int, str]]
"""Returns the results that do not fit the declared columns, by their number, with the reason."""


Invoke = Callable[[Any, tuple[Any, ...], "FiringId | int"], None]
"""Calls a method with arguments, for a firing or for the row of this number."""


class RunawayTimer(ResultError):
    """A timer that fires again and again without end."""


_NO_FAULT_OF_ROWS: Final = (MemoryError, RunawayTimer, UnreadableState)


@attrs.frozen
class CallPlan:
    """The calls of a step: `rows` by cell, and `state` with a row for each cell, null for a new one.

    Rows `begins[i]` up to `timed_from[i]` of cell i are processed at once, those from there to `begins[i + 1]` in order
    of time.
    """

    state: pl.DataFrame
    begins: Sequence[int]
    timed_from: Sequence[int]
    rows: pl.DataFrame
    times: Sequence[int]
    retracted: Sequence[bool] | None = None


@attrs.define
class CallLog:
    """The results of the calls: emitted `items` with the time (us) and cell of each, and refused rows and firings."""

    items: list[Any] = attrs.field(factory=list)
    times: list[int] = attrs.field(factory=list)
    cells: list[int] = attrs.field(factory=list)
    refused_rows: list[tuple[int, Exception]] = attrs.field(factory=list)
    refused_firings: list[tuple[int, FiringId, Exception]] = attrs.field(factory=list)
    fired: int = 0

    def mark(self) -> tuple[int, int, int, int]:
        """The current position, for `reset_to`."""
        return len(self.items), len(self.refused_rows), len(self.refused_firings), self.fired

    def reset_to(self, mark: tuple[int, int, int, int]) -> None:
        """Removes everything after a position."""
        items, rows, firings, self.fired = mark
        del self.items[items:], self.times[items:], self.cells[items:]
        del self.refused_rows[rows:], self.refused_firings[firings:]


class Executor:
    """Runs the methods for the cells of a step.

    If a method raises, its cell is run again, as the cells `call_by_call` are: each call has a copy of what it may
    change, the changes of a call that raises are undone, and its results are checked before they count. Other cells do
    not pay for that.
    """

    def __init__(
        self,
        process: Process,
        layout: Layout,
        plan: CallPlan,
        clock: StepClock,
        check: Check,
        call_by_call: frozenset[int],
    ) -> None:
        self.plan, self.check, self.call_by_call = plan, check, call_by_call
        # Plain numbers, as they are read for each row.
        self.input_before, self.watermark, self.at_end = clock.input_before, clock.watermark, clock.at_end
        self.processing_time = clock.processing_time
        self.log = CallLog()
        keys = [plan.state[key].to_list() for key in layout.keys]
        self.call = Call(layout.key_type, keys, self.processing_time, self.at_end)
        self.state = CellState(process, layout, plan.state, self.call)
        self.methods = {name: getattr(self.state.process, f"on_{name}") for name in layout.timers}
        self.timers = self.state.timers
        self.event_timers = [timer for timer in self.timers if timer.event]
        self.processing_timers = [timer for timer in self.timers if not timer.event]
        self.expires = layout.expires
        self.expiries = plan.state.select(layout.latest.alias("")).to_series().to_list()
        self.starts, self.ends = (plan.state[column].to_list() for column in layout.window)
        self.known = plan.state[PENDING].is_not_null().to_list()
        self.dead: list[int] = []
        self.element, self.called = self.state.process.element, self.state.called
        self._chunk: list[dict[str, Any]] = []
        self._first = 0
        self._invoke: Invoke = self._trusted
        self._chained = 0
        self._touched = False

    def run(self) -> CallLog:
        """Runs all cells."""
        for cell in range(len(self.starts)):
            if cell in self.call_by_call:
                self._run_cell(cell, self._checked, self.known[cell])
                continue
            # No copy of the state is needed: only `leave` writes it, at the end of a cell that has succeeded.
            mark = self.log.mark()
            try:
                self._run_cell(cell, self._trusted, True)
            except Exception as error:
                self._raise_unless_of_rows(error)
                self.log.reset_to(mark)
                self._chunk = []  # a method may have changed a row that it was given
                self.state.as_declared()
                self._run_cell(cell, self._checked, self.known[cell])
        return self.log

    def _run_cell(self, cell: int, invoke: Invoke, touched: bool) -> None:
        """Runs one cell. `touched`: the cell is kept; otherwise it is kept only if a call succeeds."""
        self._invoke, self._touched = invoke, touched
        plan, call = self.plan, self.call
        call.cell, call.start, call.end = cell, self.starts[cell], self.ends[cell]
        call.expiry = self.expiries[cell]
        self._chained, call.endless = 0, False
        self.state.load(cell)
        begin, timed_from, end = plan.begins[cell], plan.timed_from[cell], plan.begins[cell + 1]
        # Rows at once are late, or need no order: they have the watermark of before the step.
        if begin < timed_from:
            call.watermark = self.input_before
            for row, given in enumerate(self._row_dicts(begin, timed_from), begin):
                self._row(row, plan.times[row], given)
                self._fire_until(self.input_before, self.event_timers)
        call.watermark, call.late = self.watermark, False
        for row, given in enumerate(self._row_dicts(timed_from, end), timed_from):
            time = plan.times[row]
            self._fire_until(time, self.event_timers)
            self._row(row, time, given)
        # No row of the step is left, so timers may fire up to the clock of the step.
        self._advance()
        self.state.leave(cell)
        if not self._touched:
            self.dead.append(cell)

    def _advance(self) -> None:
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

    def _row_dicts(self, begin: int, end: int) -> Iterable[dict[str, Any]]:
        """Yields these rows as dicts, made in chunks that usually contain all of them."""
        first = self._first
        if first <= begin and end <= first + len(self._chunk):
            return self._chunk[begin - first : end - first]
        return self._across(begin, end)

    def _across(self, begin: int, end: int) -> Iterator[dict[str, Any]]:
        while begin < end:
            if not self._first <= begin < self._first + len(self._chunk):
                self._chunk, self._first = self.plan.rows.slice(begin, _CHUNK).rows(named=True), begin
            upto = min(end, self._first + len(self._chunk))
            yield from self._chunk[begin - self._first : upto - self._first]
            begin = upto

    def _row(self, row: int, time: int, given: dict[str, Any]) -> None:
        call = self.call
        call.now = call.stamp = time
        call.late, call.hops = time < self.input_before, 0
        if self.plan.retracted is not None:
            call.retracted = self.plan.retracted[row]
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
        self.log.fired += 1
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

    def _trusted(self, method: Any, args: tuple[Any, ...], origin: FiringId | int) -> None:
        result = method(*args)
        if result is not None:
            self._emit(result)
        self.called()

    def _checked(self, method: Any, args: tuple[Any, ...], origin: FiringId | int) -> None:
        saved, mark = self.state.saved(), self.log.mark()
        try:
            self._trusted(method, deepcopy(args), origin)
            for why in self.check(self.log.items[mark[0] :]).values():
                raise ResultError(why)
            self.state.require_fitting()
            self._touched = True
        except Exception as error:
            self._raise_unless_of_rows(error)
            self.state.restore(saved)
            self.log.reset_to(mark)
            if isinstance(origin, int):
                self.log.refused_rows.append((origin, error))
            else:
                self.log.refused_firings.append((self.call.cell, origin, error))

    def _raise_unless_of_rows(self, error: Exception) -> None:
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
        log, call = self.log, self.call
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
            log.items.append(item)
            log.times.append(stamp)
            log.cells.append(call.cell)
