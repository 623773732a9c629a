"""The scripts of a case as a `bl.Process`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import beamlike as bl
from tests.support.process_script import END, GLOBAL_WINDOW, Script, compiled, join

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
TYPED = (int, str, float)
"""Fields that begin with a value of these have a column of that type; others are pickled."""

Emitted = list[dict[str, Any] | bl.TimestampedValue]


def instant(seconds: float) -> datetime:
    """Returns a time from its seconds since 1970."""
    return _EPOCH + timedelta(seconds=seconds)


def in_seconds(time: datetime) -> float:
    """Returns seconds since 1970; times outside of the calendar are the end."""
    if time == _LAST:
        return END
    passed = (time - _EPOCH) / timedelta(seconds=1)
    return int(passed) if passed == math.floor(passed) else passed


class Scripted(bl.Process):
    """Plays the scripts. If the case `ends` before its input does, nothing is played at the end."""

    def __init__(self, script: Script, ends: bool) -> None:
        self.script, self.ends = script, ends

    def element(self, row: dict[str, Any]) -> Emitted:
        return self.play(row["do"] or self.script.element, v=json.loads(row["v"]))

    def play(self, text: str, v: Any = None, tag: str | None = None) -> Emitted:
        """Runs a script, and returns what it emits."""
        if self.at_end and not self.ends:
            return []
        calls = Calls(self)
        offered = [calls.emit, calls.set, calls.after, calls.clear, calls.clear_all, calls.timer, join]
        window = GLOBAL_WINDOW if self.window is None else tuple(map(in_seconds, self.window))
        names = {function.__name__: function for function in offered} | {
            "s": State(self), "v": v, "now": in_seconds(self.time), "key": self.key.key, "win": window,
            "W": None if self.watermark is None else in_seconds(self.watermark), "P": in_seconds(self.processing_time),
            "late": self.late, "tag": tag, "at_end": self.at_end,
        }  # fmt: skip
        exec(compiled(text), names)
        return calls.emitted


class State:
    """The `s` of a script."""

    def __init__(self, process: Scripted) -> None:
        vars(self)["process"] = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self.process, f"state_{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.process, f"state_{name}", value)


class Calls:
    """The functions that a script may call."""

    def __init__(self, process: Scripted) -> None:
        self.process = process
        self.emitted: Emitted = []

    def emit(self, value: Any, at: float | None = None) -> None:
        row = {"value": str(value)}
        self.emitted.append(row if at is None else bl.TimestampedValue(row, instant(at)))

    def set(self, name: str, time: float, out: float | None = None, tag: str | None = None) -> None:
        output = None if out is None else instant(out)
        self._timer(name).at(instant(time), output=output, **self._tagged(name, tag))

    def after(self, name: str, duration: float, out: float | None = None, tag: str | None = None) -> None:
        output = None if out is None else instant(out)
        self._timer(name).after(timedelta(seconds=duration), output=output, **self._tagged(name, tag))

    def clear(self, name: str, tag: str | None = None) -> None:
        self._timer(name).clear(*([] if tag is None else [tag]))

    def clear_all(self) -> None:
        for name in self.process.script.timers:
            self._timer(name).clear()
        for name, initial in self.process.script.state.items():
            setattr(self.process, f"state_{name}", deepcopy(initial))

    def timer(self, name: str, tag: str | None = None) -> float | None:
        time = self._timer(name).pending(*([] if tag is None else [tag]))
        return None if time is None else in_seconds(time)

    def _timer(self, name: str) -> Any:
        return getattr(self.process, f"timer_{name}")

    def _tagged(self, name: str, tag: str | None) -> dict[str, str]:
        return {"tag": tag or ""} if name in self.process.script.families else {}


def scripted(script: Script, ends: bool) -> Scripted:
    """Returns the process of a script, of a class of its own."""
    members: dict[str, Any] = {f"state_{name}": _field(script, name) for name in script.state}
    for name, kind in script.timers.items():
        members |= {
            f"timer_{name}": _timer(kind, name in script.families),
            f"on_timer_{name}": _firing(script, name),
        }
    if script.expire is not None:
        members["expire"] = lambda self: self.play(script.expire)
    return type("OfCase", (Scripted,), members)(script, ends)


def _field(script: Script, name: str) -> bl.Value:
    initial, (domain, ttl) = script.state[name], script.ttl.get(name, ("event", None))
    lasting = {} if ttl is None else {"ttl": timedelta(seconds=ttl), "by": domain}
    return bl.Value(type(initial) if type(initial) in TYPED else object, default=initial, **lasting)


def _timer(kind: str, family: bool) -> Any:
    domain, _, choice = kind.partition(" ")
    if domain == "event":
        made = bl.EventTimers if family else bl.EventTimer
        return made(at_end="drop") if choice == "drop" else made()
    made = bl.ProcessingTimers if family else bl.ProcessingTimer
    return made(hold=choice == "hold")


def _firing(script: Script, name: str) -> Callable[..., Emitted]:
    text = script.fire[name]
    if name in script.families:
        return lambda self, tag: self.play(text, tag=tag)
    return lambda self: self.play(text)
