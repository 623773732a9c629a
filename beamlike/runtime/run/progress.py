"""Shows the progress of a run: a line in a terminal, or tables in a notebook."""

from __future__ import annotations

import logging
from typing import Final, Self

import attrs
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn

from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.records.model import BatchRecord
from beamlike.records.shown import complete_to
from beamlike.rows.dead_letters import reason
from beamlike.runtime.run.cell import Cell
from beamlike.runtime.run.options import AVAILABLE_NOW, Trigger
from windowing.time import format_time

_LOG: Final = logging.getLogger("beamlike")

_OVER: Final = "all sources are over, so the run ends"


@attrs.define
class Progress:
    """The progress of a run on standard error: a line that is updated. A live run also prints a line for each batch.

    In a notebook, the line and tables are in the output of the cell instead, and are updated there.

    `live`: the run continues until it is stopped. Nothing is shown if `quiet`. Outside of a notebook, nothing is shown
    if standard error is no terminal.
    """

    title: str
    live: bool = attrs.field(default=False, kw_only=True)
    quiet: bool = attrs.field(default=False, kw_only=True)
    console: Console = attrs.field(factory=lambda: Console(stderr=True), kw_only=True, repr=False)
    elements: int = 0
    _bar: Bar = attrs.field(init=False)
    _cell: Cell | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[state]}", markup=False),
            console=self.console,
            transient=True,
            disable=self.quiet or not self.console.is_terminal,
        )
        self._bar.add_task(self.title, total=None, state="starting")
        self._bar.start()
        self._cell = None if self.quiet else Cell.open(f"{self.title}: starting", live=self.live)

    @classmethod
    def of(cls, plan: Plan, trigger: Trigger, *, quiet: bool) -> Self:
        """Creates the progress of a run with this trigger. A run of test streams is never live, because it
        has an end.
        """
        return cls(plan.name, live=trigger != AVAILABLE_NOW and steps_of(plan) is None, quiet=quiet)

    def up(self, checkpoint: str) -> None:
        """Prints that a live run has started, with the path of its checkpoint."""
        if self.live and not self._bar.disable:
            self.message(
                f"{self.title}: up, with the checkpoint {checkpoint}; Ctrl-C stops it after the current batch"
            )

    def over(self) -> None:
        """Reports that a live run ends by itself, since all its sources are over."""
        _LOG.info("%s: %s", self.title, _OVER)
        if self._cell is not None:
            self._cell.line = f"{self._cell.line}; {_OVER}"
        elif not self._bar.disable:
            self.message(f"{self.title}: {_OVER}")

    def update(self, record: BatchRecord) -> None:
        """Updates the line after a batch."""
        if self._bar.disable and self._cell is None:
            return
        arrived = sum(source.elements for source in record.sources.values())
        self.elements += arrived
        seconds = self._bar.tasks[0].elapsed or 0.0
        rate = f", {_short(self.elements / seconds)}/s" if 0 < seconds <= self.elements else ""
        to = format_time(complete_to(record))
        state = f"batch {record.batch}, {_short(self.elements)} elements{rate}, to {to}"
        if self._cell is not None:
            self._cell.update(f"{self.title}: {state}", record)
            return
        if self.live:
            written = f"{sum(record.sinks.values()):,} rows written"
            self.message(f"{self.title}: batch {record.batch}, {arrived:,} elements, {written}, to {to}")
        self._bar.update(self._bar.tasks[0].id, state=state)

    def message(self, text: str) -> None:
        """Prints a line above the line that is updated."""
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self, error: BaseException | None = None) -> None:
        """Removes the line, or shows the end of the run in the notebook, with the error if it failed. A run that is
        interrupted has not failed.
        """
        if self._bar.live.is_started:
            self._bar.stop()
        if self._cell is not None:
            self._cell.close(_failure(error) if isinstance(error, Exception) else "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.close(error)


def _failure(error: Exception) -> str:
    """Returns an error as a line, with its notes, which name the step."""
    notes: list[str] = getattr(error, "__notes__", [])
    return ", ".join(
        [f"{type(error).__name__}: {reason(error)}", *(note.partition("\n")[0] for note in notes)]
    )


def _short(count: float) -> str:
    """Formats a count in short form: 950, 12k, 1.5M."""
    if count < 1_000:
        return f"{count:.0f}"
    return f"{count / 1_000:.0f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"
