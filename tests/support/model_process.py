"""A naive interpreter of keyed state and timers, one row, one firing and one key at a time, written to be read.

It is the oracle of the process stage, with which it shares no code. A cell is the state of a key in a window and
independent of all others. Times are seconds; W is the input watermark: no earlier row is expected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from tests.support.model_calls import Call, Cell, Firing, Moment, Out, Row, Timer, Written
from tests.support.process_script import END, START, Script, Window

MOST_FIRINGS = 10_000


class Endless(RuntimeError):
    """Raised when a timer of a key fires again and again without advancing in time."""


@attrs.frozen
class Step:
    """The result of a step. `hold` is the least one; `live` counts the cells that are not empty."""

    out: list[Out]
    late: list[Any]
    letters: list[str]
    output_watermark: float
    hold: float
    live: int


class Model:
    """The process of a script. Call `step` with each bundle; tests may read `cells`."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.cells: dict[tuple[str, Window], Cell] = {}
        self.watermark, self.before, self.output_watermark = START, START, START
        self.processing_time: float = 0
        self.out: list[Out] = []
        self.late: list[Any] = []
        self.letters: list[str] = []
        self.firings: dict[Timer, int] = {}  # of the current cell, since the last row
        self.last = START

    def step(
        self, rows: Iterable[Row] = (), watermark: float | None = None, processing_time: float | None = None
    ) -> Step:
        """Processes one bundle with the clocks of the step before, then moves the clocks to these."""
        self.out, self.late, self.letters = [], [], []
        for row in rows:
            for window in self.script.windows.of(row.time):
                self._arrive(row, window)
        self.before = self.watermark
        self.watermark = self.before if watermark is None else watermark
        self.processing_time = self.processing_time if processing_time is None else processing_time
        for cell in list(self.cells.values()):
            self._move_clocks(cell)
        self._forget()
        hold = min((hold for cell in self.cells.values() for hold in self._holds(cell)), default=END)
        self.output_watermark = max(self.output_watermark, min(self.watermark, hold))
        live = sum(map(self._lives, self.cells.values()))
        return Step(self.out, self.late, self.letters, self.output_watermark, hold, live)

    # Rows

    def _arrive(self, row: Row, window: Window) -> None:
        if self._too_late(row, window):
            self.late.append(row.value)
            return
        cell = self.cells.setdefault((row.key, window), Cell(row.key, window))
        if self.script.order == "time" and row.time >= self.watermark:
            cell.waiting.append(row)
        else:
            self._play(cell, row)

    def _too_late(self, row: Row, window: Window) -> bool:
        if self.script.order == "time":
            return row.time + self.script.lateness < self.watermark
        return self._expiry(window) <= self.watermark

    def _expiry(self, window: Window) -> float:
        return window[1] + self.script.lateness

    def _play(self, cell: Cell, row: Row) -> None:
        """Processes a row, and right after it the timers that it set for the past."""
        self.firings, self.last = {}, START
        late = row.time < self.watermark
        self._call(cell, row.do or self.script.element, row.time, row.time, value=row.value, late=late)
        self._fire_past(cell)

    # Clocks

    def _move_clocks(self, cell: Cell) -> None:
        self.firings, self.last = {}, START
        self._play_in_order(cell)
        self._fire_by_processing_time(cell)
        if self._expiry(cell.window) <= self.watermark:
            if self.script.expire is not None and cell.touched:
                self._call(cell, self.script.expire, self._expiry(cell.window), self._expiry(cell.window))
            cell.fields, cell.timers, cell.touched = {}, {}, False

    def _play_in_order(self, cell: Cell) -> None:
        """Plays event timers up to W and rows before W, in order of time; at equal times the timers first."""
        cell.waiting.sort(key=lambda row: row.time)  # rows of one time in order of arrival
        while True:
            timer, row = self._next_timer(cell), next(iter(cell.waiting), None)
            if timer is not None and (row is None or cell.timers[timer].time <= row.time):
                self._fire(cell, timer)
            elif row is not None and row.time < self.watermark:
                cell.waiting.remove(row)
                self._call(cell, row.do or self.script.element, row.time, row.time, value=row.value)
            else:
                return

    def _fire_past(self, cell: Cell) -> None:
        while (timer := self._next_timer(cell)) is not None:
            self._fire(cell, timer)

    def _next_timer(self, cell: Cell) -> Timer | None:
        """Returns the next event timer that W has reached, or None."""
        due = [
            timer
            for timer, firing in cell.timers.items()
            if self._by_event(timer) and firing.time <= self.watermark and not self._dropped(cell, timer)
        ]
        return min(due, key=lambda timer: self._turn(cell, timer), default=None)

    def _dropped(self, cell: Cell, timer: Timer) -> bool:
        """True for a heartbeat at the end of input without waiting rows: heartbeats fire only while there are rows."""
        over = self.watermark == END and not cell.waiting
        return over and self.script.timers[timer[0]] == "event drop"

    def _turn(self, cell: Cell, timer: Timer) -> tuple[float, int, str]:
        """Returns the sort key of timers: by time, then in order of declaration, then by tag."""
        name, tag = timer
        return cell.timers[timer].time, list(self.script.timers).index(name), tag or ""

    def _by_event(self, timer: Timer) -> bool:
        return self.script.timers[timer[0]].startswith("event")

    def _fire(self, cell: Cell, timer: Timer) -> None:
        firing = cell.timers.pop(timer)
        self._count(cell, timer, firing.time)
        self._call(cell, self.script.fire[timer[0]], firing.time, firing.output, tag=timer[1])

    def _fire_by_processing_time(self, cell: Cell) -> None:
        """Fires the timers that are due, each once; at the end of input all, and the ones they set."""
        done: set[Timer] = set()
        while due := [timer for timer in self._due_by_processing_time(cell) if timer not in done]:
            for timer in due:
                done.add(timer)
                if timer in self._due_by_processing_time(
                    cell
                ):  # no other one has cleared it, or set it for later
                    firing = cell.timers.pop(timer)
                    stamp = self._stamp(cell, timer, firing)
                    self._count(cell, timer, firing.time)
                    self._call(cell, self.script.fire[timer[0]], stamp, stamp, tag=timer[1])
                    self._fire_past(cell)
            if self.watermark != END:
                return

    def _due_by_processing_time(self, cell: Cell) -> list[Timer]:
        due = [
            timer
            for timer, firing in cell.timers.items()
            if not self._by_event(timer) and (self.watermark == END or firing.time <= self.processing_time)
        ]
        return sorted(due, key=lambda timer: self._turn(cell, timer))

    def _stamp(self, cell: Cell, timer: Timer, firing: Firing) -> float:
        """Returns the time of a timer's output: for processing time the output watermark, unless the timer holds it."""
        if firing.held or self.script.timers[timer[0]] == "processing hold" or self.before == START:
            return firing.output
        return min([self.before, *self._holds(cell)])

    def _holds(self, cell: Cell) -> list[float]:
        """Returns the times at which the output watermark is held."""
        held = [
            firing.output
            for timer, firing in cell.timers.items()
            if firing.held or self.script.timers[timer[0]] != "processing"
        ]
        return held + [row.time for row in cell.waiting]

    def _count(self, cell: Cell, timer: Timer, time: float) -> None:
        """Counts the firings at one time; before the end of input, a later time resets the count."""
        if self.watermark != END and time > self.last:
            self.firings = {}
        self.firings[timer] = self.firings.get(timer, 0) + 1
        self.last = time
        if self.firings[timer] > MOST_FIRINGS:
            raise Endless(f"timer {timer[0]!r} of key {cell.key!r} fired {MOST_FIRINGS} times")

    # Calls

    def _call(self, cell: Cell, text: str, now: float, stamp: float, **more: Any) -> None:
        moment = Moment(now, stamp, self.watermark, self.processing_time, self._expiry(cell.window), **more)
        call = Call(self.script, cell, moment)
        try:
            call.run(text)
        except Exception as error:
            self.letters.append(f"{type(error).__name__}: {error}")
            return
        cell.fields, cell.timers, cell.touched = call.cell.fields, call.cell.timers, True
        self.out += call.out

    # Remaining state

    def _forget(self) -> None:
        """Removes fields that are no longer readable or have their initial value, and empty cells."""
        for cell in self.cells.values():
            cell.fields = {name: kept for name, kept in cell.fields.items() if self._kept(name, kept)}
        self.cells = {at: cell for at, cell in self.cells.items() if self._lives(cell) or cell.waiting}

    def _kept(self, name: str, written: Written) -> bool:
        """True if a row that is late, but allowed, can still read the field from before W."""
        domain, ttl = self.script.ttl.get(name, ("event", END))
        if domain == "event":
            gone = written.event + ttl + self.script.lateness <= self.watermark
        else:
            gone = written.processing + ttl <= self.processing_time
        return written.value != self.script.state[name] and not gone

    def _lives(self, cell: Cell) -> bool:
        """True if the cell is not empty, or if it must still expire."""
        return bool(cell.fields or cell.timers or (cell.touched and self.script.expire is not None))
