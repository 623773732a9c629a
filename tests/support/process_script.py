"""Scripts of keyed state and timers, as in the files of cases: declarations, and Python for each call.

A script calls `emit(value[, at])`, `set(timer, time[, out][, tag])`, `after(timer, duration)`, `clear(timer[, tag])`,
`clear_all()`, `timer(name)` and `join(values)`, and reads `v`, `now`, `s`, `W`, `P`, `win`, `key`, `late`, `tag` and
`at_end`. Times are seconds.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from types import CodeType
from typing import Any

import attrs

START, END = -math.inf, math.inf
"""The times before and after all others."""

Window = tuple[float, float]
GLOBAL_WINDOW: Window = (START, END)


@attrs.frozen
class Windows:
    """The windows of rows; `size` is None for the global window."""

    size: float | None = None
    period: float | None = None  # that of sliding windows

    def of(self, time: float) -> list[Window]:
        """Returns the windows that contain a time, the last one first."""
        if self.size is None:
            return [GLOBAL_WINDOW]
        period = self.period or self.size
        start = time - time % period
        found = []
        while start + self.size > time:
            found.append((start, start + self.size))
            start -= period
        return found


@attrs.frozen(slots=False)
class Script:
    """The process of a case. Timers are "event", "event drop", "processing" or "processing hold".

    `state` has the initial value of each field, `ttl` its lifetime after a write and the time domain.
    """

    element: str = ""
    fire: Mapping[str, str] = attrs.field(factory=dict)
    expire: str | None = None
    timers: Mapping[str, str] = attrs.field(factory=dict)
    state: Mapping[str, Any] = attrs.field(factory=dict)
    ttl: Mapping[str, tuple[str, float]] = attrs.field(factory=dict)
    windows: Windows = Windows()
    lateness: float = 0
    order: str = "arrival"
    others: tuple[str, ...] = ()  # scripts of single rows

    @cached_property
    def families(self) -> frozenset[str]:
        """The timers that are set with a tag in some call."""
        texts = [self.element, *self.fire.values(), self.expire or "", *self.others]
        return frozenset(name for text in texts for name in _tagged(text))


def _tagged(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(args=[ast.Constant(value=str(name)), *_], keywords=given):
                if any(keyword.arg == "tag" for keyword in given):
                    yield name


@lru_cache(maxsize=1024)
def compiled(text: str) -> CodeType:
    """Returns the code of a script."""
    return compile(text, "<script>", "exec")


def join(values: Iterable[Any]) -> str:
    """Returns the values as one text."""
    return ":".join(map(str, values))
