"""Lookups in a side on a stage alone: rows per second, by the size of the side."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import click
import numpy as np
import polars as pl

import beamlike as bl
from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.machine import machine
from benchmarks.section import Section
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME

SECOND = 1_000_000
SIDE = "side.prices"
WARM_UP = 3


def prices(rows: int, *, text: bool) -> pl.DataFrame:
    """Returns a side: a key, and two columns."""
    random = np.random.default_rng(1)
    columns = {
        "key": random.permutation(rows) * 7919,
        "price": random.random(rows),
        "stock": random.random(rows),
    }
    return pl.DataFrame(columns).cast({"key": pl.String() if text else pl.Int64()})


def lookup_stage(side: pl.DataFrame) -> Stage:
    """Returns a stage that looks up two columns."""
    p = bl.Pipeline("bench")
    schema = {"key": side.schema["key"], "value": pl.Float64(), "at": pl.Int64()}
    rows = p.read(
        "rows",
        bl.Rows(pl.DataFrame(schema=schema)),
        timestamp="at",
        timestamp_unit="us",
        watermark=bl.MonotonousTimestamps(),
    )
    found = bl.lookup(p.read("prices", bl.Rows(side.clear())), on="key")
    priced = rows.with_columns(price=found["price"], stock=found["stock"])
    priced.write("out", bl.Memory())
    priced.late().write("late", bl.Memory())  # without that, a lookup in such a side needs no stage
    (stage,) = p.plan().stages.values()
    return stage.stage


def lookup(keys: int, rows: int, batches: int, *, text: bool) -> tuple[float, float]:
    """Returns CPU seconds per batch, and of the step in which the side arrives."""
    side = prices(keys, text=text)
    stage, store, random = lookup_stage(side), DictStore(), np.random.default_rng(7)
    inputs = stage.operator.inputs
    nothing = {role: one.no_arrivals() for role, one in inputs.items()}
    begin = time.process_time()
    stage.step(store, {**nothing, SIDE: side}, Times.of(0, sides={SIDE: MAX_TIME}))
    came, took = time.process_time() - begin, []
    for number in range(1, batches + WARM_UP + 1):
        at = number * SECOND + np.sort(random.integers(0, SECOND, rows))
        asked = random.integers(0, keys + keys // 10, rows) * 7919
        columns = {"key": asked, "value": random.random(rows), "at": at, EVENT_TIME: at}
        arrivals = pl.DataFrame(columns).cast({"key": side.schema["key"]}).select(list(inputs[MAIN].schema))
        begin = time.process_time()
        step = stage.step(
            store, {**nothing, MAIN: arrivals}, Times.of(number * SECOND, sides={SIDE: MAX_TIME})
        )
        took.append(time.process_time() - begin)
        assert len(step.panes) == rows
    return float(np.median(took[WARM_UP:])), came


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Returns the table of the page."""
    rows = (
        (
            f"{each['keys']:,}",
            each["kind"],
            f"{1e3 * each['seconds']:.1f}",
            f"{each['rows'] / each['seconds']:,.0f}",
            f"{1e3 * each['came']:,.0f}",
        )
        for each in figures
    )
    return readme.table(
        ("rows of the side", "keys:", "CPU ms of a batch", "rows/s", "CPU ms of the side"), rows
    )


SECTION = Section("sides", ("keys", "kind"), lines)


@click.command()
@click.option("--rows", default=100_000, show_default=True, help="Rows of a batch.")
@click.option("--batches", default=7, show_default=True)
@click.option(
    "--keys", multiple=True, default=(10_000, 1_000_000), show_default=True, help="Rows of the side."
)
def main(rows: int, batches: int, keys: tuple[int, ...]) -> None:
    """Print a line for each size of the side, for keys that are numbers and keys that are text."""
    for count in keys:
        for kind in ("numbers", "text"):
            seconds, came = lookup(count, rows, batches, text=kind == "text")
            figure = {"keys": count, "kind": kind, "rows": rows, "seconds": seconds, "came": came}
            SECTION.keep([figure], machine(None))
    SECTION.show()
    click.echo("\n".join(SECTION.text()))


if __name__ == "__main__":
    main()
