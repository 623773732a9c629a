"""The cost of each aggregate, compared with `sum`: rows of many, of some and of one key in one stage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

import click
import polars as pl

import beamlike as bl
from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.machine import machine
from benchmarks.section import Section
from stages.aggregates.base import Aggregate
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME
from windowing.windowing import Windowing

SCHEMA: Final = pl.Schema(
    {
        "key": pl.Int64(),
        "user": pl.String(),
        "price": pl.Float64(),
        "good": pl.Boolean(),
    }
)
END: Final = 60_000_000
"""The end of the windows: a minute, in microseconds."""

AGGREGATES: Final[dict[str, Aggregate]] = {
    "sum": bl.sum("price"),
    "max": bl.max("price"),
    "any": bl.any("good"),
    "arg_max": bl.arg_max("user", by="price"),
    "arg_max of two": bl.arg_max(["price", "user"], by="price"),
    "var": bl.var("price"),
    "quantile": bl.quantile("price", 0.99),
    "count_distinct": bl.count_distinct("user"),
    "approx_count_distinct": bl.approx_count_distinct("user"),
    "collect_set": bl.collect_set("user"),
    "mode": bl.mode("user"),
    "top": bl.top("user", 3, by="price"),
    "sample": bl.sample("user", 3),
    "collect": bl.collect("price"),
}


def milliseconds(aggregate: Aggregate, rows: int, keys: int, repeats: int) -> float:
    """Returns the least CPU time of `repeats` runs."""
    return 1e3 * min(_run(aggregate, rows, keys) for _ in range(repeats))


def _run(aggregate: Aggregate, rows: int, keys: int) -> float:
    """Returns CPU seconds of the rows in two steps, and of a third in which all windows emit."""
    grouping = Grouping(("key",), Windowing(bl.FixedWindows("1m")), {"value": aggregate}, SCHEMA)
    stage, store, arrivals = Stage("stage", grouping), DictStore(), _arrivals(rows, keys)
    begin = time.process_time()
    stage.step(store, {MAIN: arrivals.head(rows // 2)}, Times.of(0))
    stage.step(store, {MAIN: arrivals.tail(rows - rows // 2)}, Times.of(0))
    panes = stage.step(store, {MAIN: arrivals.clear()}, Times.of(2 * END)).panes
    seconds = time.process_time() - begin
    assert len(panes) == min(keys, rows), f"{len(panes)} windows for {keys} keys"
    return seconds


def _arrivals(rows: int, keys: int) -> pl.DataFrame:
    number = pl.int_range(rows, eager=True)
    spread = number * 7_919 % 10_007
    return pl.DataFrame(
        {
            "key": number % keys,
            "user": "user " + spread.cast(pl.String),
            "price": spread / 7,
            "good": spread % 3 == 0,
            EVENT_TIME: number % 1_000,
        }
    )


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Returns the table of the page, in milliseconds of CPU."""
    every = sorted({each["keys"] for each in figures})
    known = {(each["aggregate"], each["keys"]): each["milliseconds"] for each in figures}
    rows = (
        (name, *(f"{known[name, keys]:,.0f}" for keys in every))
        for name in dict.fromkeys(name for name, _ in known)
    )
    return readme.table(("aggregate", *(f"{keys:,} keys" for keys in every)), rows)


SECTION = Section("aggregates", ("aggregate", "keys"), lines)


@click.command(context_settings={"show_default": True})
@click.option("--rows", default=100_000, type=click.IntRange(2), help="Rows in all.")
@click.option("--repeats", default=3, type=click.IntRange(1), help="Runs, of which the fastest counts.")
def main(rows: int, repeats: int) -> None:
    """Show the CPU time of a stage with each aggregate."""
    every = (1, 1_000, rows // 2)
    measured = [
        {"aggregate": name, "keys": keys, "milliseconds": milliseconds(aggregate, rows, keys, repeats)}
        for name, aggregate in AGGREGATES.items()
        for keys in every
    ]
    SECTION.keep(measured, machine(None), whole=True)
    SECTION.show()
    click.echo("\n".join(SECTION.text()))


if __name__ == "__main__":
    main()
