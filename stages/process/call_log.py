"""The input and the results of the calls of a user's methods in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import polars as pl

from stages.process.by_cell import FiringId


@attrs.frozen(eq=False)
class CallPlan:
    """The input of a step's calls.

    Attributes:
        state: The cells, one row each; fields and timers of a new cell are null.
        begins: The position of the first row of each cell, and after them the number of rows.
        timed_from: For each cell, the position of the first row that is processed in order of time. The rows before it
            are processed in order of arrival.
        rows: The rows, sorted by cell and in processing order.
        times: The event time of each row (us).
        retracted: For each row, whether it retracts an earlier one; None if no row does.
        late: For each row, whether it arrived after the watermark had passed its time. By default, this follows from
            its time.
        sides: The values of the side inputs by the name of their attribute.
    """

    state: pl.DataFrame
    begins: Sequence[int]
    timed_from: Sequence[int]
    rows: pl.DataFrame
    times: Sequence[int]
    retracted: Sequence[bool] | None = None
    late: Sequence[bool] | None = None
    sides: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.define
class CallLog:
    """The results of a step's calls.

    Attributes:
        items: The emitted rows, as the methods returned them.
        times: The event time (us) of each item.
        cells: The cell of each item.
        refused_rows: The position of each row that became a dead letter, and the error.
        refused_firings: The cell and firing that became a dead letter, and the error.
        fired: The number of timers that fired.
        early: The positions of items whose event time is before the time of their call, as that of a timer's output.
    """

    items: list[Any] = attrs.field(factory=list)
    times: list[int] = attrs.field(factory=list)
    cells: list[int] = attrs.field(factory=list)
    refused_rows: list[tuple[int, Exception]] = attrs.field(factory=list)
    refused_firings: list[tuple[int, FiringId, Exception]] = attrs.field(factory=list)
    fired: int = 0
    early: list[int] = attrs.field(factory=list)

    def remove(self, cell: int, fired: int) -> None:
        """Removes the entries of the last cell, which has no dead letters. `fired` is the count before it."""
        count = len(self.cells)
        while count and self.cells[count - 1] == cell:
            count -= 1
        del self.items[count:], self.times[count:], self.cells[count:]
        while self.early and self.early[-1] >= count:
            self.early.pop()
        self.fired = fired

    def mark(self) -> tuple[int, int, int, int, int]:
        """Returns the current length of the log, for `reset_to`."""
        return (
            len(self.items),
            len(self.refused_rows),
            len(self.refused_firings),
            self.fired,
            len(self.early),
        )

    def reset_to(self, mark: tuple[int, int, int, int, int]) -> None:
        """Removes all entries after a position that `mark` returned."""
        items, rows, firings, self.fired, early = mark
        del self.early[early:]
        del self.items[items:], self.times[items:], self.cells[items:]
        del self.refused_rows[rows:], self.refused_firings[firings:]
