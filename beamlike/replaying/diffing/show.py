"""Formats rows of a comparison for people: times as text, and windows as one value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from beamlike.replaying.diffing.rows import RowsDiffer
from beamlike.system.printable import printable
from windowing.columns import EVENT_TIME, PANE_INDEX, PANE_RETRACTED, PANE_TIMING, WINDOW_END, WINDOW_START
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME, format_time


def fields(row: Mapping[str, Any]) -> dict[str, str]:
    """Returns the values of a row as texts, by the names that users know: the user's columns, then the window."""
    own = {name: repr(value) for name, value in row.items() if not name.startswith("__")}
    if WINDOW_END in row:
        start, end = (_time(row[name]) for name in (WINDOW_START, WINDOW_END))
        own["window"] = f"[{start}, {end})"
    elif EVENT_TIME in row:
        own["event_time"] = _time(row[EVENT_TIME])
    if PANE_TIMING in row:
        own["pane"] = f"{row[PANE_TIMING]} {row.get(PANE_INDEX, '')}".strip()
    if row.get(PANE_RETRACTED):
        own["retracted"] = "True"
    return {name: printable(text) for name, text in own.items()}


def _time(value: int | None) -> str:
    if value is None or value <= MIN_TIME:
        return "the beginning of time" if value is not None else "None"
    return "the end of time" if value >= GLOBAL_WINDOW_END - 1 else format_time(value)


def row_text(row: Mapping[str, Any]) -> str:
    """Formats a row as a line."""
    return ", ".join(f"{name}={text}" for name, text in fields(row).items())


def signed_rows(rows: RowsDiffer, most: int) -> Iterator[tuple[str, str]]:
    """Yields at most so many rows of each kind as text, with a sign: + new, - gone, ~ changed."""
    before, now = (frame.head(most).iter_rows(named=True) for frame in (rows.changed, rows.into))
    for one, other in zip(before, now, strict=True):
        yield "~", _change_text(fields(one), fields(other))
    yield from _more("~", len(rows.changed) - most)
    for sign, frame in (("+", rows.new), ("-", rows.gone)):
        yield from ((sign, row_text(row)) for row in frame.head(most).iter_rows(named=True))
        yield from _more(sign, len(frame) - most)


def _more(sign: str, count: int) -> Iterator[tuple[str, str]]:
    if count > 0:
        yield sign, f"{count:,} more"


def _change_text(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Formats a changed row: what both have, then each value that differs, before and now."""
    equal = [f"{name}={text}" for name, text in now.items() if before.get(name) == text]
    other = [
        f"{name} was {before.get(name, 'not there')}, now {now.get(name, 'gone')}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]
    return "; ".join([", ".join(equal), *other])
