"""Progress on a terminal while a pipeline runs: batches, elements, their rate, and where event time stands."""

from __future__ import annotations

import attrs
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn

from beamlike.records.model import BatchRecord
from windowing.time import MAX_TIME, format_time


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
            TextColumn("{task.fields[state]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bar.add_task(self.title, total=None, state="starting")
        self._bar.start()

    def update(self, record: BatchRecord) -> None:
        """After one more batch."""
        if self._bar.disable:
            return
        self.elements += sum(source.elements for source in record.sources.values())
        seconds = self._bar.tasks[0].elapsed or 0.0
        rate = f", {_short(self.elements / seconds)}/s" if seconds else ""
        stages = [stage.output for stage in record.stages.values()]
        behind = min([*stages, *(source.watermark for source in record.sources.values())])
        whole_seconds = behind // 1_000_000 * 1_000_000 if behind < MAX_TIME else behind
        to = format_time(whole_seconds)
        state = f"batch {record.batch}, {_short(self.elements)} elements{rate}, to {to}"
        self._bar.update(self._bar.tasks[0].id, state=state)

    def tell(self, text: str) -> None:
        """A line on standard error, above the one that follows the run."""
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """The line goes; the first call counts."""
        if self._bar.live.is_started:
            self._bar.stop()


def _short(count: float) -> str:
    """A count to read at a glance: 950, 12k, 1.5M."""
    if count < 1_000:
        return f"{count:.0f}"
    return f"{count / 1_000:.0f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"
