"""Shows a run in the cell of a notebook: its watermarks and counts, which are updated while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Self

import attrs

from beamlike.records.model import BatchRecord
from beamlike.records.shown import batch_tables
from beamlike.system.html import html_text
from beamlike.system.notebooks import notebook_display

_SECONDS: Final = 0.2
"""The least time between two updates of a run with an end. Its batches may be many, and its end is shown in any case.
"""

Show = Callable[["Cell"], object]
"""Shows a cell again, at the place where it is already shown."""


@attrs.define(repr=False)
class Cell:
    """The output of a cell: a line about the run and, until the run is over, open tables.

    Args:
        line: The text of the line.
        show: The function that shows the cell after a change; None before the cell is shown.
        live: True if the run continues until it is stopped. Each batch is shown then, as none may follow for long.
        clock: A function that returns a time in seconds.
    """

    line: str
    show: Show | None = None
    live: bool = attrs.field(default=False, kw_only=True)
    clock: Callable[[], float] = attrs.field(default=time.monotonic, kw_only=True)
    _total: BatchRecord | None = None
    _over: bool = False
    _due: float = 0.0

    @classmethod
    def open(cls, line: str, *, live: bool) -> Self | None:
        """Shows a cell for a run that starts. Returns None outside of a notebook."""
        display = notebook_display()
        if display is None:
            return None
        cell = cls(line, live=live)
        cell.show = display(cell, display_id=True).update
        return cell

    def update(self, line: str, record: BatchRecord) -> None:
        """Adds a batch, and shows it. In a run with an end, it is not shown if the last update is too recent."""
        self.line = line
        self._total = record if self._total is None else self._total.then(record)
        if (now := self.clock()) >= self._due:
            self._due = now if self.live else now + _SECONDS
            self._refresh()

    def close(self, failure: str = "") -> None:
        """Shows the end of the run, with closed tables, and why it failed, if it did. Of later calls, only one with a
        failure has an effect.
        """
        if self._over and not failure:
            return
        self._over = True
        if failure:
            self.line = f"{self.line}; failed: {failure}"
        self._refresh()

    def _refresh(self) -> None:
        if self.show is not None:
            self.show(self)

    def __repr__(self) -> str:
        return self.line

    def _repr_html_(self) -> str:
        if self._total is None:
            return f"<p>{html_text(self.line)}</p>"
        state = "" if self._over else ' open=""'
        return (
            f"<details{state}><summary>{html_text(self.line)}</summary>{batch_tables(self._total)}</details>"
        )
