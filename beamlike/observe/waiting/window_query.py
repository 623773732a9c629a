"""Parses windows and keys as users write them: `START/END`, `[START, END)` as in outputs, or a time in the window."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import UnknownKey, UnknownWindow
from beamlike.observe.words import window_text
from beamlike.records.graph import StageDescription
from stages.keys import text_of
from windowing.calendars import CalendarWindows
from windowing.columns import EVENT_TIME, WINDOW_END, WINDOW_START
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME, format_duration

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENDS = {"-inf": MIN_TIME, "+inf": GLOBAL_WINDOW_END}
_BETWEEN = re.compile(r"\s*(?:/|,|\.\.|--)\s*")


_READ: Final[Mapping[str, Any]] = {
    **{f"{sign}Int{size}": int for sign in ("", "U") for size in (8, 16, 32, 64)},
    "Float32": float,
    "Float64": float,
    "String": text_of,
    "Date": date.fromisoformat,
    "Boolean": {"true": True, "false": False}.__getitem__,
}
"""Functions that parse a key column, for the types of keys that can be parsed, by polars' names of types."""


def parse_key(text: str, name: str, stage: StageDescription) -> pl.DataFrame | None:
    """Parses a key of the stage `name` to a frame with one row.

    Returns None if a type of the key cannot be parsed, or if it is unclear where the parts of the text begin. Raises
    `UnknownKey` if the text does not have the types of the key.
    """
    if not stage.key_types or not set(stage.key_types) <= _READ.keys():
        return None
    parts = [text] if len(stage.keys) == 1 else text.split(", ")
    if len(parts) > len(stage.keys) and "String" in stage.key_types:
        return None  # a text contains ", ", so it is unclear where the parts begin
    columns = []
    try:
        for key, kind, part in zip(stage.keys, stage.key_types, parts, strict=True):
            value = None if part == "null" else _READ[kind](part)
            columns.append(pl.Series(key, [value], dtype=getattr(pl, kind)))
    except (ValueError, KeyError, OverflowError, TypeError, pl.exceptions.PolarsError):
        types = ", ".join(f"{key} ({kind})" for key, kind in zip(stage.keys, stage.key_types, strict=True))
        raise UnknownKey(f"stage `{name}` has no key {text!r}: a key is {types}") from None
    return pl.DataFrame(columns)


@attrs.frozen
class Window:
    """A window `[start, end)` in microseconds."""

    start: int
    end: int

    def __str__(self) -> str:
        return window_text(self.start, self.end)


def parse_time(text: str) -> int:
    """Parses a time in ISO 8601 to microseconds. A time without a zone is in UTC. Raises `UnknownWindow` for any other
    text.
    """
    if text in _ENDS:
        return _ENDS[text]
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UnknownWindow(
            f"{text!r} is no time; write it as in ISO 8601, such as 2026-01-31T12:00:00Z"
        ) from None
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def parse_window(text: str, name: str, stage: StageDescription) -> Window:
    """Parses a window of a stage. Raises `UnknownWindow` if the stage has no such window."""
    if not stage.windowed:
        raise UnknownWindow(f"stage `{name}` has no windows: it is {stage.what}")
    parts = _BETWEEN.split(text.strip().strip("[)").strip())
    if len(parts) > 2:
        raise UnknownWindow(f"{text!r} is no window; write START/END, each as in ISO 8601")
    start, *ends = map(parse_time, parts)
    if not ends:
        return _around(start, text, name, stage)
    window = Window(start, ends[0])
    if window.end <= window.start:
        raise UnknownWindow(f"{text!r} is no window: its end is not after its start")
    expected = _window_at(start, stage)
    if expected is not None and window != expected:
        raise UnknownWindow(
            f"stage `{name}` has no window {window}: its windows are {stage.choices['windows']}; "
            f"did you mean {expected}?"
        )
    return window


def found_by_time(stage: StageDescription) -> bool:
    """True if a time in a window of the stage is enough to find it, so that START/END is not needed."""
    known = (stage.spacing, stage.calendar, stage.session_gap)
    return stage.windowed and (stage.global_window or any(one is not None for one in known))


def _around(time: int, text: str, name: str, stage: StageDescription) -> Window:
    if stage.global_window:
        return Window(MIN_TIME, GLOBAL_WINDOW_END)
    if stage.session_gap is not None:  # of an element at this time; others make the session longer
        return Window(time, time + stage.session_gap)
    window = _window_at(time, stage)
    if window is None:
        raise UnknownWindow(
            f"{text!r} is one time, and the windows of stage `{name}` are {stage.choices['windows']}, whose ends "
            "do not follow from their starts; write START/END"
        )
    if stage.spacing is not None and window.end <= time:
        raise UnknownWindow(
            f"stage `{name}` has no window at {text}: there are gaps of "
            f"{format_duration(stage.spacing.period - stage.spacing.length)} between its windows"
        )
    return window


def _window_at(time: int, stage: StageDescription) -> Window | None:
    """Returns the last window that starts at or before a time; None if the windows depend on elements."""
    if stage.calendar is not None:
        assigned = CalendarWindows(**stage.calendar).assign(pl.DataFrame({EVENT_TIME: [time]}))
        return Window(*assigned.select(WINDOW_START, WINDOW_END).row(0))
    if stage.spacing is None:
        return None
    start = time - (time - stage.spacing.offset) % stage.spacing.period
    return Window(start, start + stage.spacing.length)
