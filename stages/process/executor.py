"""Calls a user's methods for rows and timers: cell by cell (a key and window), and within a cell in order of time.

Python is called for each row only here: input and output are columns. The rows of a step are sorted by cell:

    state of the plan    cell 0               cell 1           cell 2        a row per cell, null for a new one
    rows of the plan     a a a | t t t t      | t t            a |           a: at once, t: in order of time
                         |     |              |
                     begins[0] timed_from[0]  begins[1] = timed_from[1]

    a cell is run:  load fields and timers -> rows at once -> rows in order of time, with the event timers between them
                    -> event timers up to the watermark -> processing timers -> expiry -> store fields and timers

The log has an entry for each emitted row (item, time, cell), and for each row or firing for which a method raised. If
a cell fails, the log is reset to its length before the cell, and the cell is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from types import GeneratorType
from typing import Any, Final

from stages.clock import StepClock
from stages.errors import ResultError, UnreadableState
from stages.operator import PENDING
from stages.process.by_cell import FiringId
from stages.process.call_log import CallLog, CallPlan
from stages.process.calls import Call
from stages.process.cells import CellState
from stages.process.declarations import Process, TimestampedValue
from stages.process.layout import CellLayout
from stages.process.time_conversion import from_datetime
from stages.process.timers import SOON, Family, Single
from windowing.python_rows import Objects, is_one_row
from windowing.time import MAX_TIME, MIN_TIME, format_duration, format_time

MOST_HOPS: Final = 10_000
"""The maximum length of a chain of firings, each set by the previous one, at the end of input or within `SOON`."""

MOST_IN_A_STEP: Final = 1_000_000
"""The maximum number of firings of a cell in a step that other firings of the step set. It bounds the emitted rows."""

_CHUNK: Final = 10_000  # rows as dicts at a time

Check = Callable[[Sequence[Any]], Mapping[int, str]]
"""A function that returns, by position, the reason for each result that does not fit the declared columns."""

Take = Callable[[Any], Any]
"""A function that copies the values of an emitted item."""

Invoke = Callable[[Any, tuple[Any, ...], "FiringId | int"], None]
"""A function that calls a method with arguments. Its last argument is the firing or the position of the row."""


class RunawayTimer(ResultError):
    """Raised if a timer seems to fire without end."""


_NO_FAULT_OF_ROWS: Final = (MemoryError, RunawayTimer, UnreadableState)
"""Errors for which no row or firing is to blame: they stop the run, and make no dead letter."""


class Executor:
    """The executor of a user's methods for all cells of a step, in one of two ways.

    At first a cell is run as a whole, without copies. If a method raises, the cell is run again call by call: state is
    copied before each call and restored if it raises, and its results are checked at once. So only cells with errors
    pay for the copies. The cells `call_by_call` are run in this way from the beginning.
    """

    def __init__(
        self,
        process: Process,
        layout: CellLayout,
        plan: CallPlan,
        clock: StepClock,
        check: Check,
        call_by_call: frozenset[int],
        take: Take,
        objects: Objects | None = None,
    ) -> None:
        self.plan, self.check, self.call_by_call, self.objects = plan, check, call_by_call, objects
        self.take = take
        # Attributes of its own, since they are read for each row.
        self.input_before, self.watermark, self.at_end = clock.input_before, clock.watermark, clock.at_end
        self.processing_time = clock.processing_time
        self.log = CallLog()
        keys = [plan.state[key].to_list() for key in layout.keys]
        self.call = Call(layout.key_type, keys, self.processing_time, self.at_end)
        self.state = CellState(process, layout, plan.state, self.call, plan.sides)
        self.methods = {name: getattr(self.state.process, f"on_{name}") for name in layout.timers}
        self.timers = self.state.timers
        self.event_timers = [timer for timer in self.timers if timer.event]
        self.processing_timers = [timer for timer in self.timers if not timer.event]
        self.expires = layout.expires
        self.expiries = plan.state.select(layout.latest.alias("")).to_series().to_list()
        self.starts, self.ends = (plan.state[column].to_list() for column in layout.window)
        self.known = plan.state[PENDING].is_not_null().to_list()
        self.dead: list[int] = []
        self.element, self.after_call = self._receiving(self.state.process.element), self.state.after_call
        self._chunk: list[Any] = []
        self._first = 0
        self._invoke: Invoke = self._trusted
        self._chained = 0
        self._touched = False

    def _receiving(self, element: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Returns the method that is called for the rows of a chunk. If rows are objects, each call receives an object
        of its own, since the method may change it.
        """
        if self.objects is None:
            return element
        make = self.objects.make
        return lambda raw: element(make(raw))

    def run(self) -> CallLog:
        """Runs all cells, and returns the log of all calls."""
        for cell in range(len(self.starts)):
            if cell in self.call_by_call:
                self._run_cell(cell, self._checked, self.known[cell])
                continue
            # No copy of the state is needed: only `store` writes it, at the end of a cell that has succeeded.
            mark = self.log.mark()
            try:
                self._run_cell(cell, self._trusted, True)
            except Exception as error:
                self._raise_unless_of_rows(error)
                self.log.reset_to(mark)
                self._chunk = []  # a method may have changed the row of its call
                self.state.reset_parameters()
                self._run_cell(cell, self._checked, self.known[cell])
        return self.log

    def _run_cell(self, cell: int, invoke: Invoke, touched: bool) -> None:
        """Runs one cell. Unless `touched`, the cell is stored only if at least one of its calls succeeds."""
        self._invoke, self._touched = invoke, touched
        plan, call = self.plan, self.call
        call.cell, call.start, call.end = cell, self.starts[cell], self.ends[cell]
        call.expiry = self.expiries[cell]
        self._chained, call.endless = 0, False
        self.state.load(cell)
        begin, timed_from, end = plan.begins[cell], plan.timed_from[cell], plan.begins[cell + 1]
        # Late rows, and rows in order of arrival: their methods read the watermark before the step.
        if begin < timed_from:
            call.watermark = self.input_before
            for row, given in enumerate(self._row_dicts(begin, timed_from), begin):
                self._row(row, plan.times[row], given)
                self._fire_until(self.input_before, self.event_timers)
        call.watermark, call.late = self.watermark, False
        if invoke == self._trusted and plan.late is None and plan.retracted is None:
            self._plain_rows(timed_from, end)
        else:
            self._rows(timed_from, end)
        # All rows of the step have been processed, so timers may fire up to the watermark after the step.
        self._advance()
        self.state.store(cell)
        if not self._touched:
            self.dead.append(cell)

    def _rows(self, begin: int, end: int) -> None:
        """Calls `element` for the rows at these positions in order of time; timers that are due before a row fire
        before it.
        """
        times = self.plan.times
        for row, given in enumerate(self._row_dicts(begin, end), begin):
            self._fire_until(times[row], self.event_timers)
            self._row(row, times[row], given)

    def _plain_rows(self, begin: int, end: int) -> None:
        """As `_rows`, for rows of which none is late or retracted, in a cell whose calls are not checked.

        Most rows are such. Calls of `_row` and `_invoke` would take a third of their time.
        """
        call, times, timers = self.call, self.plan.times, self.event_timers
        element, after_call, emit, before = self.element, self.after_call, self._emit, self.input_before
        for row, given in enumerate(self._row_dicts(begin, end), begin):
            now = times[row]
            for timer in timers:
                if timer.time is not None and timer.time <= now:
                    self._fire_until(now, timers)
                    break
            call.now = call.stamp = now
            call.late, call.hops = now < before, 0
            result = element(given)
            if result is not None:
                emit(result)
            after_call()

    def _advance(self) -> None:
        """Fires all timers that are due after the step, and expires the cell if its window is collected."""
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

    def _row_dicts(self, begin: int, end: int) -> Iterable[Any]:
        """Yields the rows at these positions as dicts, or as `make` of the objects receives them.

        Rows are converted in chunks, often of many cells.
        """
        first = self._first
        if first <= begin and end <= first + len(self._chunk):
            return self._chunk[begin - first : end - first]
        return self._across(begin, end)

    def _across(self, begin: int, end: int) -> Iterator[Any]:
        while begin < end:
            if not self._first <= begin < self._first + len(self._chunk):
                rows = self.plan.rows.slice(begin, _CHUNK)
                self._first = begin
                self._chunk = rows.rows(named=True) if self.objects is None else self.objects.raw(rows)
            upto = min(end, self._first + len(self._chunk))
            yield from self._chunk[begin - self._first : upto - self._first]
            begin = upto

    def _row(self, row: int, time: int, given: Any) -> None:
        call = self.call
        call.now = call.stamp = time
        call.late = time < self.input_before if self.plan.late is None else self.plan.late[row]
        call.hops = 0
        if self.plan.retracted is not None:
            call.retracted = self.plan.retracted[row]
        self._invoke(self.element, (given,), row)

    def _fire_until(self, limit: int, timers: Sequence[Single | Family]) -> None:
        """Fires event timers up to the time `limit` in order of time, including those that these firings set."""
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
        """Counts a firing that another firing set. Raises `RunawayTimer` if its chain exceeds the limits."""
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
        """Fires each due processing-time timer once. A timer that a firing sets fires in a later step, even if due.

        At the end of input there is no later step, so timers that firings set fire, too, each timer and tag once.
        """
        latest = MAX_TIME if self.at_end else self.processing_time
        done = set[tuple[int, str | None]]()
        while due := self._due(latest, done):
            for _, number, tag in due:
                timer = self.processing_timers[number]
                done.add((number, tag))
                # An earlier firing may have cleared the timer, or set it again.
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
        """Returns the processing-time timers that are due and not `done`, as (time, position of the timer, tag),
        sorted.
        """
        due = [
            (time, number, tag)
            for number, timer in enumerate(self.processing_timers)
            for time, tag in timer.due(latest)
            if (number, tag) not in done
        ]
        return sorted(due, key=lambda firing: (*firing[:2], firing[2] or ""))

    def _output_watermark(self) -> int:
        """Returns the output watermark (us) if only this cell held it, on any number of shards."""
        holds = [timer.least_hold() for timer in self.timers]
        return min([self.input_before, *(hold for hold in holds if hold is not None)])

    def _trusted(self, method: Any, args: tuple[Any, ...], origin: FiringId | int) -> None:
        result = method(*args)
        if result is not None:
            self._emit(result)
        self.after_call()

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
        """Raises an error that no row or firing has caused, such as too little memory, so that it does not become a
        dead letter.
        """
        if self.state.unreadable is not None:
            raise self.state.unreadable
        if isinstance(error, _NO_FAULT_OF_ROWS):
            raise error

    def _emit(self, result: Any) -> None:
        if type(result) is not GeneratorType and (is_one_row(result) or not isinstance(result, Iterable)):
            hint = (
                ""
                if isinstance(result, str) or not is_one_row(result)
                else "; write yield in place of return"
            )
            raise ResultError(f"expected several dicts, as a method with yield gives, got {result!r}{hint}")
        log, call, take = self.log, self.call, self.take
        before = len(log.items)
        for item in result:
            stamp = call.stamp
            if type(item) is TimestampedValue:
                stamp = from_datetime(item.timestamp)
                if stamp < call.stamp:
                    raise ResultError(
                        f"the output timestamp {format_time(stamp)} of a row must not be before "
                        f"{format_time(call.stamp)}, the time of its row or timer: it could be late"
                    )
                item = item.value
            log.items.append(take(item))
            log.times.append(stamp)
            log.cells.append(call.cell)
        if call.stamp < call.now:
            log.early.extend(range(before, len(log.items)))
