"""Calls a user's methods for rows and timers: cell by cell (a key and window), and within a cell in order of time.

Python is called for each row only here: input and output are columns. The rows of a step are sorted by cell:

    state of the plan    cell 0               cell 1           cell 2        a row per cell, null for a new one
    rows of the plan     a a a | t t t t      | t t            a |           a: at once, t: in order of time
                         |     |              |
                     begins[0] timed_from[0]  begins[1] = timed_from[1]

    a cell is run:  load fields and timers -> rows at once -> rows in order of time, with the event timers between them
                    -> event timers up to the watermark -> processing timers -> expiry -> store fields and timers

The log has an entry for each emitted row (item, time, cell), and for each row or firing for which a method raised. If
a cell fails, its entries are removed, and the cell is run again.
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
from stages.process.row_reader import RowReader
from stages.process.time_conversion import from_datetime
from stages.process.timers import SOON, Family, Single
from windowing.python_rows import Objects, is_one_row
from windowing.python_values import values_of
from windowing.time import MAX_TIME, MIN_TIME, format_duration, format_time

MOST_HOPS: Final = 10_000
"""The maximum length of a chain of firings, each set by the previous one, at the end of input or within `SOON`."""

MOST_IN_A_STEP: Final = 1_000_000
"""The maximum number of firings of a cell in a step that other firings of the step set. It bounds the emitted rows."""

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
        keys = [values_of(plan.state[key]) for key in layout.keys]
        self.call = Call(layout.key_type, keys, self.processing_time, self.at_end)
        self.state = CellState(process, layout, plan.state, self.call, plan.sides)
        self.methods = {name: getattr(self.state.process, f"on_{name}") for name in layout.timers}
        self.timers = self.state.timers
        self.event_timers = [timer for timer in self.timers if timer.event]
        self.last_timers = [timer for timer in self.event_timers if not (self.at_end and timer.drops)]
        """The event timers that fire after the last row of a cell."""
        self.processing_timers = [timer for timer in self.timers if not timer.event]
        self.expires = layout.expires
        self.expiries = plan.state.select(layout.latest.alias("")).to_series().to_list()
        self.starts, self.ends = (plan.state[column].to_list() for column in layout.window)
        self.known = plan.state[PENDING].is_not_null().to_list()
        self.dead: list[int] = []
        self.element = self._receiving(self.state.process.element)
        self.after_call = self.state.after_call
        self.rows = RowReader(plan.rows, objects)
        self._plain = plan.late is None and plan.retracted is None
        self._invoke: Invoke = self._trusted
        self._chained = 0
        self._touched = False

    def _receiving(self, element: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Returns the method that is called for the rows. If rows are objects, each call receives an object of its own,
        since the method may change it.
        """
        if self.objects is None:
            return element
        make = self.objects.make
        return lambda raw: element(make(raw))

    def run(self) -> CallLog:
        """Runs all cells, and returns the log of all calls."""
        begin = 0
        for cell in [*sorted(self.call_by_call), len(self.starts)]:
            while begin < cell:
                begin = self._run_cells(begin, cell)
            if cell < len(self.starts):
                self._run_call_by_call(cell)
            begin = cell + 1
        return self.log

    def _run_cells(self, begin: int, end: int) -> int:
        """Runs these cells, and returns the position after them, or after the first one in which a method raises: it is
        run again call by call.
        """
        fired = self.log.fired
        rows = self.rows.since(self.plan.begins[begin])
        self._invoke = self._trusted
        try:
            for cell in range(begin, end):
                fired = self.log.fired
                self._run_cell(cell, rows, True)
        except Exception as error:
            self._raise_unless_of_rows(error)
            # No copy of the state is needed: only `store` writes it, at the end of a cell that has succeeded.
            cell = self.call.cell
            self.log.remove(cell, fired)
            self.state.reset_parameters()
            self._run_call_by_call(cell)
            return cell + 1
        return end

    def _run_call_by_call(self, cell: int) -> None:
        """Runs a cell so that a call that fails leaves no trace."""
        begin, end = self.plan.begins[cell : cell + 2]
        self._invoke = self._checked
        self._run_cell(cell, self.rows.between(begin, end), self.known[cell], plain=False)

    def _run_cell(self, cell: int, rows: Iterator[Any], touched: bool, plain: bool = True) -> None:
        """Runs one cell, whose rows are the next of `rows`. Unless `touched`, the cell is stored only if at least one
        of its calls succeeds. `plain` is true if calls are not checked.
        """
        plan, call = self.plan, self.call
        self._touched = touched
        call.cell, call.start, call.end = cell, self.starts[cell], self.ends[cell]
        call.expiry = self.expiries[cell]
        self._chained, call.endless = 0, False
        self.state.load(cell)
        begin, timed_from, end = plan.begins[cell], plan.timed_from[cell], plan.begins[cell + 1]
        # Late rows, and rows in order of arrival: their methods read the watermark before the step.
        plain = plain and self._plain
        if begin < timed_from:
            call.watermark = self.input_before
            if plain:
                self._plain_arrivals(plan.times[begin:timed_from], rows)
            else:
                for row in range(begin, timed_from):
                    self._row(row, plan.times[row], next(rows))
                    self._fire_until(self.input_before, self.event_timers)
        call.watermark, call.late, call.hops = self.watermark, False, 0
        if timed_from == end:
            pass
        elif plain and plan.times[timed_from] >= self.input_before:
            self._plain_rows(plan.times[timed_from:end], rows)
        else:
            for row in range(timed_from, end):
                self._fire_until(plan.times[row], self.event_timers)
                self._row(row, plan.times[row], next(rows))
        # All rows of the step have been processed, so timers may fire up to the watermark after the step.
        self._advance()
        self.state.store(cell)
        if not self._touched:
            self.dead.append(cell)

    # Most rows are plain: none is retracted, and calls are not checked. Calls of `_row` and `_invoke` would take a
    # third of their time.

    def _plain_arrivals(self, times: Sequence[int], rows: Iterator[Any]) -> None:
        """Calls `element` for plain rows in order of arrival. A timer that a call sets for the past fires after it."""
        call, timers, before = self.call, self.event_timers, self.input_before
        element, after_call, emit = self.element, self.after_call, self._emit
        for now, row in zip(times, rows):  # noqa: B905  the rows of other cells follow
            call.now = call.stamp = now
            call.late, call.hops = now < before, 0
            result = element(row)
            if result is not None:
                emit(result)
            after_call()
            for timer in timers:
                if timer.time is not None and timer.time <= before:
                    self._fire_until(before, timers)
                    break

    def _plain_rows(self, times: Sequence[int], rows: Iterator[Any]) -> None:
        """Calls `element` for plain rows in order of time, of which none is late. A timer that is due before a row
        fires before it.
        """
        call, timers = self.call, self.event_timers
        element, after_call, emit = self.element, self.after_call, self._emit
        for now, row in zip(times, rows):  # noqa: B905  the rows of other cells follow
            for timer in timers:
                if timer.time is not None and timer.time <= now:
                    self._fire_until(now, timers)
                    call.hops = 0
                    break
            call.now = call.stamp = now
            result = element(row)
            if result is not None:
                emit(result)
            after_call()

    def _advance(self) -> None:
        """Fires all timers that are due after the step, and expires the cell if its window is collected."""
        call = self.call
        call.endless = self.at_end
        self._fire_until(self.watermark, self.last_timers)
        if self.processing_timers:
            self._by_processing_time(self.last_timers)
        if call.expiry <= self.watermark:
            call.now = call.stamp = call.expiry
            if self.expires and self._touched:
                self._invoke(self.state.process.expire, (), ("expire", None, call.now))
            self.dead.append(call.cell)

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
