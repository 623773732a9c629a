"""A call of a script in the naive model of keyed state and timers: it reads and writes the script's cell."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import attrs

from tests.support.process_script import END, START, Script, Window, compiled, join


@attrs.frozen
class Row:
    """An arriving row; `do` is a script of its own."""

    key: str
    value: Any
    time: float
    do: str | None = None


@attrs.frozen
class Out:
    """A row that a script emitted."""

    key: str
    value: str
    time: float


@attrs.frozen
class Written:
    """The value of a state field, and when it was written, in both time domains."""

    value: Any
    event: float
    processing: float


@attrs.frozen
class Firing:
    """A timer that is set. Its output has the time `output`; by event time it also holds the watermark there."""

    time: float
    output: float
    held: bool = False  # an output timestamp was given


Timer = tuple[str, str | None]  # its name, and its tag in a family


@attrs.define
class Cell:
    """The state of a key and window: fields, timers, and rows that wait for their turn."""

    key: str
    window: Window
    fields: dict[str, Written] = attrs.Factory(dict)
    timers: dict[Timer, Firing] = attrs.Factory(dict)
    waiting: list[Row] = attrs.Factory(list)
    touched: bool = False  # some call has not raised


@attrs.frozen
class Moment:
    """The context of a call: its time, the earliest time of its output, and the values that a script may read."""

    now: float
    stamp: float
    watermark: float
    processing_time: float
    expiry: float  # of the window
    value: Any = None
    late: bool = False
    tag: str | None = None


class State:
    """The `s` of a script, with its fields as attributes."""

    def __init__(self, call: Call) -> None:
        vars(self)["_call"] = call

    def __getattr__(self, name: str) -> Any:
        return self._call.read(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._call.write(name, value)


class Call:
    """A call of a script, with a copy of the cell to write to, which is discarded if the script raises."""

    def __init__(self, script: Script, cell: Cell, moment: Moment) -> None:
        self.script, self.moment = script, moment
        self.cell = attrs.evolve(cell, fields=dict(cell.fields), timers=dict(cell.timers))
        self.out: list[Out] = []
        self.lent: dict[str, tuple[Any, Any]] = {}  # lists that the script has got, and what was in them

    def run(self, text: str) -> None:
        moment, offered = (
            self.moment,
            [self.emit, self.set, self.after, self.clear, self.clear_all, self.timer, join],
        )
        names = {function.__name__: function for function in offered} | {
            "s": State(self), "v": moment.value, "now": moment.now, "key": self.cell.key, "win": self.cell.window,
            "W": None if moment.watermark == START else moment.watermark, "P": moment.processing_time,
            "late": moment.late, "tag": moment.tag, "at_end": moment.watermark == END,
        }  # fmt: skip
        exec(compiled(text), names)
        for out in self.out:  # judged once the method has returned
            if out.time < self.moment.stamp:
                raise ValueError(f"output timestamp {out.time} is before {self.moment.stamp}")
        for name, (lent, before) in list(self.lent.items()):
            if lent != before:
                self.write(name, lent)

    # State

    def read(self, name: str) -> Any:
        """Returns the value of a field; a list that is changed in place counts as written."""
        if name in self.lent:
            return self.lent[name][0]
        written = self.cell.fields.get(name)
        found = written is not None and self._lasts(name, written)
        value = written.value if found else self.script.state[name]
        if isinstance(value, list | dict | set):
            self.lent[name] = deepcopy(value), value
            return self.lent[name][0]
        return value

    def write(self, name: str, value: Any) -> None:
        if name not in self.script.state:
            raise AttributeError(name)
        self.lent.pop(name, None)
        self.cell.fields[name] = Written(value, self.moment.now, self.moment.processing_time)

    def _lasts(self, name: str, written: Written) -> bool:
        """True if the value has not expired at the time of the reader."""
        if name not in self.script.ttl:
            return True
        domain, ttl = self.script.ttl[name]
        if domain == "event":
            return self.moment.now < written.event + ttl
        return self.moment.processing_time < written.processing + ttl

    def clear_all(self) -> None:
        """Clears all fields and timers."""
        self.cell.fields.clear()
        self.lent.clear()
        self.cell.timers.clear()

    # Timers

    def set(self, name: str, time: float, out: float | None = None, tag: str | None = None) -> None:
        """Sets a timer and replaces its earlier time."""
        by_event = self.script.timers[name].startswith("event")
        if by_event and time > self.moment.expiry:
            raise ValueError(f"timer {name!r} was set for {time}, after its window is collected")
        if out is None:  # by processing time, it holds and emits at the row that set it
            output = time if by_event else self.moment.stamp
        elif self.moment.stamp <= out <= (time if by_event else self.moment.expiry):
            output = out
        else:
            raise ValueError(
                f"timer {name!r}: output timestamp {out} is before {self.moment.stamp} or after it fires"
            )
        self.cell.timers[name, tag] = Firing(time, output, out is not None)

    def after(self, name: str, duration: float, out: float | None = None, tag: str | None = None) -> None:
        """Sets a timer relative to the time of the call; by event time at most to the window's end."""
        if self.script.timers[name].startswith("event"):
            self.set(name, min(self.moment.now + duration, self.moment.expiry), out, tag)
            if self.moment.now >= self.moment.expiry:
                self.clear(name, tag)
        else:
            self.set(name, self.moment.processing_time + duration, out, tag)

    def clear(self, name: str, tag: str | None = None) -> None:
        """Clears a timer: of a family the one with this tag, or all."""
        for timer in list(self.cell.timers):
            if timer == (name, tag) or (timer[0] == name and tag is None):
                del self.cell.timers[timer]

    def timer(self, name: str, tag: str | None = None) -> float | None:
        """Returns the time of a timer that is set, or None."""
        firing = self.cell.timers.get((name, tag))
        return None if firing is None else firing.time

    # Output

    def emit(self, value: Any, at: float | None = None) -> None:
        time = self.moment.stamp if at is None else at
        self.out.append(Out(self.cell.key, str(value), time))
