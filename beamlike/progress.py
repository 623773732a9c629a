"""Progress on a terminal while a pipeline runs: batches, elements, their rate, and where event time stands."""

from __future__ import annotations

import attrs
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from beamlike.records import BatchRecord
from windowing.time import format_time


@attrs.define
class Progress:
    """One line on the terminal that follows a run; nothing where standard error is no terminal."""

    title: str
    elements: int = 0
    _bar: Bar = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        console = Console(stderr=True)
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bar.add_task(self.title, total=None, state="starting")
        self._bar.start()

    def update(self, record: BatchRecord) -> None:
        """After one more batch."""
        self.elements += sum(source.elements for source in record.sources.values())
        seconds = self._bar.tasks[0].elapsed or 0.0
        rate = f", {self.elements / seconds:,.0f}/s" if seconds else ""
        stages = [stage.output for stage in record.stages.values()]
        behind = min([*stages, *(source.watermark for source in record.sources.values())])
        state = f"batch {record.batch}: {self.elements:,} elements{rate}, complete to {format_time(behind)}"
        self._bar.update(self._bar.tasks[0].id, state=state)

    def close(self) -> None:
        self._bar.stop()
