"""Side inputs, row by row: written to be read. Times are whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

END: Final = 10**9


@attrs.frozen
class Row:
    """A row of the main input or of the side."""

    at: int
    value: int


@attrs.define
class Sides:
    """Rows in fixed windows of `size` that read a side in fixed windows of `side_size`, None for the global one.

    If the side is `early`, every bundle of its rows emits a pane with all rows so far; else it emits at the window's
    end.
    """

    size: int
    side_size: int | None
    early: bool
    lateness: int = 0
    ordered: bool = False
    """Rows also wait until the watermark has passed their time, and are late from then on."""
    drops: bool = True
    """Rows whose window is over are dropped."""
    watermark: int = -END
    side_watermark: int = -END
    waiting: list[Row] = attrs.field(factory=list)
    open: dict[int, list[int]] = attrs.field(factory=dict)
    panes: dict[int, list[int]] = attrs.field(factory=dict)
    late: list[int] = attrs.field(factory=list)
    silent: set[int] = attrs.field(factory=set)
    """Values of rows without a hold: they arrived after the watermark had passed them."""

    def step(
        self, main: Sequence[Row], side: Sequence[Row], watermark: int, side_watermark: int
    ) -> list[tuple[int, list[int], int]]:
        """Returns (value, values of the side, time) of the rows that no longer wait."""
        for row in main:
            late = self.ordered and row.at < self.watermark - self.lateness
            if late or (self.drops and self.end(row) + self.lateness <= self.watermark):
                self.late.append(row.value)
            else:
                self.waiting.append(row)
            if row.at < self.watermark:
                self.silent.add(row.value)
        for row in side:
            if self.side_end(row.at) > self.side_watermark:
                self.open.setdefault(self.side_end(row.at), []).append(row.value)
                if self.early:
                    self.panes[self.side_end(row.at)] = list(self.open[self.side_end(row.at)])
        self.watermark = max(self.watermark, watermark)
        self.side_watermark = max(self.side_watermark, side_watermark)
        for end, values in self.open.items():
            if end <= self.side_watermark:
                self.panes[end] = list(values)
        ready = [row for row in self.waiting if self.is_ready(self.sees(row)) and self.in_turn(row)]
        self.waiting = [row for row in self.waiting if row not in ready]
        return sorted((row.value, sorted(self.panes.get(self.sees(row), [])), row.at) for row in ready)

    def end(self, row: Row) -> int:
        return (row.at // self.size + 1) * self.size

    def side_end(self, instant: int) -> int:
        return END if self.side_size is None else (instant // self.side_size + 1) * self.side_size

    def sees(self, row: Row) -> int:
        return self.side_end(self.end(row) - 1)

    def in_turn(self, row: Row) -> bool:
        return not self.ordered or row.at < self.watermark

    def is_ready(self, end: int) -> bool:
        return end in self.panes or end <= self.side_watermark
