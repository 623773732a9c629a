"""Joins as nested loops, and dedup row by row: written to be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

Row = tuple[str | None, Any]
"""Key, and what else the row has."""


def windowed_join(how: str, left: Sequence[Row], right: Sequence[Row]) -> list[tuple[Any, Any]]:
    """Returns (left value, right value) of one window's rows, with None for a missing or hidden side."""
    pairs = [
        (n, m)
        for n, (key, _) in enumerate(left)
        for m, (other, _) in enumerate(right)
        if key and key == other
    ]
    lone_left = [(n, None) for n in range(len(left)) if n not in {n for n, _ in pairs}]
    lone_right = [(None, m) for m in range(len(right)) if m not in {m for _, m in pairs}]
    found = {
        "inner": pairs,
        "left": pairs + lone_left,
        "right": pairs + lone_right,
        "full": pairs + lone_left + lone_right,
        "semi": sorted({(n, None) for n, _ in pairs}),
        "anti": lone_left,
    }[how]
    return [(None if n is None else left[n][1], None if m is None else right[m][1]) for n, m in found]


@attrs.define
class Dedup:
    """Dedup, row by row: a passed row, (id, time), is kept until it covers no row that can still be in time."""

    within: int
    lateness: int = 0
    kept: list[tuple[str | None, int]] = attrs.field(factory=list)

    def passes(self, id: str | None, time: int) -> bool:
        """True if no kept row covers the arriving row, which is then kept."""
        if any(other == id and at <= time < at + self.within for other, at in self.kept):
            return False
        self.kept.append((id, time))
        return True

    def forget(self, now: int) -> None:
        """Removes the kept rows that have expired at the time `now`."""
        self.kept = [(id, at) for id, at in self.kept if at + self.within + self.lateness > now]
