"""The cost of a user-defined aggregate in Python: rows of many and of few keys in one stage, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence

import attrs
import click
import polars as pl

import beamlike as bl
from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.machine import machine
from benchmarks.section import Section
from stages.aggregates.base import Aggregate
from stages.aggregates.combine_fn import Combine
from stages.aggregates.totals import Mean
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME
from windowing.windowing import Windowing
from windowing.windows import WindowFn

SCHEMA = pl.Schema({"user": pl.Int64(), "score": pl.Int64()})
END = 60_000_000  # of the windows: a minute, in microseconds
WINDOWS: dict[str, WindowFn] = {"fixed": bl.FixedWindows("1m"), "sessions": bl.Sessions("1m")}


class Average(bl.CombineFn):
    """The mean, as in Beam's documentation."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add_input(self, accumulator: tuple[int, int], element: int) -> tuple[int, int]:
        total, count = accumulator
        return total + element, count + 1

    def merge_accumulators(self, accumulators: list[tuple[int, int]]) -> tuple[int, int]:
        totals, counts = zip(*accumulators, strict=True)
        return sum(totals), sum(counts)

    def extract_output(self, accumulator: tuple[int, int]) -> float | None:
        total, count = accumulator
        return total / count if count else None


@attrs.frozen
class Cost:
    """CPU seconds of a stage that receives rows in two steps and emits in a third."""

    aggregate: str
    windows: str
    rows: int
    keys: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows per CPU second."""
        return self.rows / self.seconds


def measure(aggregate: Aggregate, windows: str, rows: int, keys: int, repeats: int) -> Cost:
    """Measures the median of `repeats` runs."""
    seconds = statistics.median(_run(aggregate, WINDOWS[windows], rows, keys) for _ in range(repeats))
    return Cost(type(aggregate).__name__, windows, rows, keys, seconds)


def _run(aggregate: Aggregate, windows: WindowFn, rows: int, keys: int) -> float:
    grouping = Grouping(("user",), Windowing(windows), {"mean": aggregate}, SCHEMA)
    stage, store = Stage("means", grouping), DictStore()
    number = pl.int_range(rows, eager=True)
    arrivals = pl.DataFrame(
        {"user": number % keys, "score": number, EVENT_TIME: 0}, schema={**SCHEMA, EVENT_TIME: pl.Int64()}
    )
    begin = time.process_time()
    stage.step(store, {MAIN: arrivals.head(rows // 2)}, Times.of(0))
    stage.step(store, {MAIN: arrivals.tail(rows - rows // 2)}, Times.of(0))
    panes = stage.step(store, {MAIN: arrivals.clear()}, Times.of(2 * END)).panes
    seconds = time.process_time() - begin
    assert len(panes) == keys, f"{len(panes)} windows for {keys} keys"
    return seconds


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Returns the table of the page: a row per aggregate, kind of windows and number of keys."""
    names = [field.name for field in attrs.fields(Cost)]
    costs = [Cost(*(figure[name] for name in names)) for figure in figures]
    rows = (
        (
            cost.aggregate,
            cost.windows,
            f"{cost.rows:,}",
            f"{cost.keys:,}",
            f"{cost.seconds * 1e3:,.0f}",
            f"{cost.rate:,.0f}",
        )
        for cost in costs
    )
    return readme.table(("aggregate", "windows:", "rows", "keys", "CPU ms", "rows per CPU second"), rows)


SECTION = Section("combine", ("aggregate", "windows", "rows", "keys"), lines)


@click.command(context_settings={"show_default": True})
@click.option("--rows", default=100_000, type=click.IntRange(2), help="Rows in all.")
@click.option("--repeats", default=5, type=click.IntRange(1), help="Runs, of which the median counts.")
def main(rows: int, repeats: int) -> None:
    """Average rows of many and of few keys with a CombineFn and with `mean`, and show the CPU time."""
    averages: tuple[Aggregate, ...] = (Combine(Average(), "score", pl.Float64()), Mean("score"))
    costs = [
        measure(aggregate, windows, rows, keys, repeats)
        for aggregate in averages
        for windows in WINDOWS
        for keys in (rows // 2, 100)
    ]
    SECTION.keep([attrs.asdict(cost) for cost in costs], machine(None), whole=True)
    SECTION.show()
    click.echo("\n".join(SECTION.text()))


if __name__ == "__main__":
    main()
