"""Assertions on panes. A failure lists the missing and the unexpected panes, and their differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import isnan
from typing import Any

import polars as pl

from beamlike.errors import unknown_column
from beamlike.io import Memory
from beamlike.io.test_stream.times import instant
from windowing.time import format_time

Panes = Memory | pl.DataFrame | Iterable[Mapping[str, Any]]
Pane = Mapping[str, Any]


def assert_panes(actual: Panes, expected: Iterable[Pane]) -> None:
    """Asserts that the panes are exactly the expected ones, in any order. NaN equals NaN.

    Args:
        actual: The panes of a sink: `bl.Memory`, a polars frame, or dicts.
        expected: Dicts of the columns that matter, such as `{"user": "a", "window_start": 0, "pane_timing": "early"}`.
            A time may be a datetime, ISO text, or a number of seconds since 1970.

    Raises:
        AssertionError: The panes differ; the message has the difference.
        UnknownColumn: No pane has an expected column. It is a `ValueError`.

    Example, with the `plays` of `bl.Collection`:
        >>> counts = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
        >>> expected = [{"window_start": "2026-01-31T12:00Z", "n": 2}, {"window_start": "2026-01-31T12:01Z", "n": 1}]
        >>> bl.testing.assert_panes(counts.collect(), expected)
    """
    frame = actual.frame() if isinstance(actual, Memory) else actual
    known = frame.columns if isinstance(frame, pl.DataFrame) else []
    came = (
        frame.to_dicts()
        if isinstance(frame, pl.DataFrame)
        else _dicts(frame, "actual is a sink's panes: bl.Memory,")
    )
    wanted = _dicts(expected, "expected is")
    columns = list(dict.fromkeys([*known, *(name for pane in came for name in pane)]))
    for name in (name for pane in wanted for name in pane if columns and name not in columns):
        raise unknown_column(name, columns, None, "the panes")
    pairs = _matching(wanted, came)
    missing = [pane for number, pane in enumerate(wanted) if number not in pairs]
    unexpected = [pane for number, pane in enumerate(came) if number not in pairs.values()]
    if missing or unexpected:
        raise AssertionError(_difference(missing, unexpected, len(pairs)))


def _dicts(panes: object, what: str) -> list[dict[str, Any]]:
    expected = f"assert_panes: {what} a list of dicts such as [{{'user': 'a', 'clicks': 1}}]"
    if isinstance(panes, Mapping | str | bytes) or not isinstance(panes, Iterable):
        raise TypeError(f"{expected}, not {panes!r}")
    listed = list(panes)
    for pane in listed:
        if not isinstance(pane, Mapping):
            raise TypeError(f"{expected}; {pane!r} is no dict")
    return [dict(pane) for pane in listed]


def _matching(expected: Sequence[Pane], actual: Sequence[Pane]) -> dict[int, int]:
    """Returns pairs of indexes of expected and actual panes that match, as many pairs as possible."""
    return pairs_of(
        [[n for n, pane in enumerate(actual) if not _differences(want, pane)] for want in expected]
    )


def pairs_of(fits: Sequence[Sequence[int]]) -> dict[int, int]:
    """Computes a maximum matching by augmenting paths. Returns the actual pane for each matched expected pane.

    `fits` has, for each expected pane, the indexes of the actual panes that match it.
    """
    owner: dict[int, int] = {}

    def place(number: int, tried: set[int]) -> bool:
        for other in fits[number]:
            if other not in tried:
                tried.add(other)
                if other not in owner or place(owner[other], tried):
                    owner[other] = number
                    return True
        return False

    for number in range(len(fits)):
        place(number, set())
    return {number: other for other, number in owner.items()}


def _differences(expected: Pane, came: Pane) -> list[str]:
    """Returns the columns in which a pane differs from the expected one."""
    return [name for name, value in expected.items() if name not in came or not _same(value, came[name])]


def _same(expected: Any, came: Any) -> bool:
    if isinstance(came, datetime) and isinstance(expected, datetime | str | int | float):
        return instant(expected) == instant(came)
    if isinstance(expected, float) and isinstance(came, float) and isnan(expected):
        return isnan(came)
    if isinstance(expected, list) and isinstance(came, list):
        return len(expected) == len(came) and all(map(_same, expected, came))
    if isinstance(expected, dict) and isinstance(came, dict):
        return expected.keys() == came.keys() and all(_same(expected[name], came[name]) for name in came)
    return bool(expected == came)


def _difference(missing: Sequence[Pane], unexpected: Sequence[Pane], matched: int) -> str:
    """Describes the difference: each missing pane, with the most similar unexpected one."""
    lines = [f"{matched} panes are as expected, {len(missing)} missing, {len(unexpected)} unexpected"]
    for pane in missing:
        lines.append(f"  missing:    {_text(pane)}")
        if unexpected:
            near = min(unexpected, key=lambda other: len(_differences(pane, other)))
            lines += [
                f"    nearest has {name}={_value(near.get(name))}, expected {_value(pane[name], near.get(name))}"
                for name in _differences(pane, near)
            ]
    named = list(dict.fromkeys(name for pane in missing for name in pane))
    for pane in unexpected:
        lines.append(f"  unexpected: {_text(pane, named)}")
    return "\n".join(lines)


def _text(pane: Pane, first: Sequence[str] = ()) -> str:
    """Formats a pane as a line that begins with the columns `first`."""
    names = [name for name in first if name in pane] + [name for name in pane if name not in first]
    return ", ".join(f"{name}={_value(pane[name])}" for name in names)


def _value(value: Any, other: Any = None) -> str:
    """Formats a value. If it is compared with a time, it is formatted as a time."""
    if isinstance(value, datetime) or (isinstance(other, datetime) and value is not None):
        return format_time(instant(value))
    return repr(value)
