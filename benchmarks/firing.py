"""The time to fire many windows in one step of a stage: each trigger compared with the default one, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence

import attrs
import click
import polars as pl
from rich.console import Console
from rich.table import Table

import beamlike as bl
from beamlike.expressions.describe import describe
from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.machine import machine
from benchmarks.section import Section
from stages.aggregates.builtin import Count
from stages.aggregates.totals import Sum
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME
from windowing.triggers.base import Trigger
from windowing.windowing import Windowing

SCHEMA = pl.Schema({"user": pl.Int64(), "score": pl.Int64()})
END = 60_000_000  # of the windows: a minute, in microseconds

TRIGGERS: dict[str, Trigger] = {
    "default": bl.DefaultTrigger(),
    "early and late": bl.AfterWatermark(early=bl.AfterCount(10), late=bl.AfterCount(1)),
    "nested": bl.AfterWatermark(
        early=bl.AfterAny(bl.AfterCount(10), bl.AfterProcessingTime("30s")),
        late=bl.Repeatedly(bl.AfterCount(1)),
    ),
}


@attrs.frozen
class Firing:
    """CPU seconds of three steps, in which all windows of a trigger receive elements, end, and get a late element."""

    trigger: str
    windows: int
    elements: float
    over: float
    late: float

    @property
    def each(self) -> float:
        """CPU microseconds per window, of all three steps."""
        return (self.elements + self.over + self.late) / self.windows * 1e6


def fire(name: str, windows: int, repeats: int) -> Firing:
    """Measures the median of `repeats` runs, each over a new state of `windows` windows, one per user."""
    runs = [_steps(TRIGGERS[name], windows) for _ in range(repeats)]
    return Firing(name, windows, *(statistics.median(times) for times in zip(*runs, strict=True)))


def _steps(trigger: Trigger, windows: int) -> list[float]:
    windowing = Windowing(bl.FixedWindows("1m"), trigger, allowed_lateness="1h")
    aggregates = {"score": Sum("score"), "plays": Count()}
    stage, store = Stage("scores", Grouping(("user",), windowing, aggregates, SCHEMA)), DictStore()
    times = []
    for each, watermark in ((10, 0), (0, END), (1, END)):
        arrivals = pl.DataFrame(
            {"user": pl.int_range(windows * each, eager=True) % windows, "score": 1, EVENT_TIME: 0},
            schema={**SCHEMA, EVENT_TIME: pl.Int64()},
        )
        begin = time.process_time()
        stage.step(store, {MAIN: arrivals}, Times.of(watermark))
        times.append(time.process_time() - begin)
    return times


_NAMES = ("trigger", "10 early each, ms", "over, ms", "1 late each, ms", "µs/window", "ratio")


def _rows(firings: Sequence[Firing]) -> Iterator[tuple[str, ...]]:
    """Yields a row per trigger, with its cost by that of the first."""
    for firing in firings:
        steps = (f"{step * 1e3:,.0f}" for step in (firing.elements, firing.over, firing.late))
        yield firing.trigger, *steps, f"{firing.each:.2f}", f"{firing.each / firings[0].each:.2f}"


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Returns the table of the page."""
    names = [field.name for field in attrs.fields(Firing)]
    return readme.table(_NAMES, _rows([Firing(*(figure[name] for name in names)) for figure in figures]))


SECTION = Section("firing", ("trigger",), lines)


def table(firings: Sequence[Firing]) -> Table:
    """Returns the same rows, for a terminal."""
    shown = Table(*_NAMES)
    for row in _rows(firings):
        shown.add_row(*row)
    return shown


@click.command(context_settings={"show_default": True})
@click.option("--windows", default=100_000, type=click.IntRange(1), help="Windows that fire in each step.")
@click.option("--repeats", default=5, type=click.IntRange(1), help="Runs, of which the median counts.")
def main(windows: int, repeats: int) -> None:
    """Fire many windows in one step with each trigger, and show the CPU time beside that of the default trigger."""
    fire("default", windows, 1)  # imports and caches
    firings = [fire(name, windows, repeats) for name in TRIGGERS]
    console = Console()
    console.print(f"CPU time of steps in which {windows:,} windows fire:")
    console.print(table(firings))
    for name, trigger in TRIGGERS.items():
        console.print(f"{name}: {describe(trigger)}", highlight=False)
    SECTION.keep([attrs.asdict(firing) for firing in firings], machine(None), whole=True)
    SECTION.show()


if __name__ == "__main__":
    main()
