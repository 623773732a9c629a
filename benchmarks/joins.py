"""Dedup on a stage alone: rows per second, by how many ids are live."""

from __future__ import annotations

import time

import click
import numpy as np
import polars as pl

from stages.operator import MAIN
from stages.process.dedup import Dedup
from stages.progress.watermarks import Clock
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.columns import EVENT_TIME
from windowing.windowing import Windowing

SECOND = 1_000_000
SCHEMA = pl.Schema({"id": pl.Int64(), "value": pl.Float64()})
WARM_UP = 2


def dedup_stage(within: int) -> Stage:
    """Dedup by id, for so many microseconds of event time."""
    operator = Dedup(("id",), SCHEMA, Windowing(), within=within, by="event", order="arrival", title="dedup")
    return Stage("dedup", operator)


def batch(random: np.random.Generator, number: int, rows: int, ids: int) -> pl.DataFrame:
    """Rows of a second, with ids at random."""
    times = number * SECOND + np.sort(random.integers(0, SECOND, rows))
    columns = {"id": random.integers(0, ids, rows) * 7919, "value": random.random(rows), EVENT_TIME: times}
    return pl.DataFrame(columns, {**SCHEMA, EVENT_TIME: pl.Int64()})


def dedup(live: int, rows: int, batches: int) -> tuple[float, int]:
    """Seconds per batch, and how many ids are live at the end: about as many as there are."""
    stage, store, random = dedup_stage(3600 * SECOND), DictStore(), np.random.default_rng(7)
    every = pl.DataFrame({"id": np.arange(live) * 7919, "value": 0.0, EVENT_TIME: 0}).cast(
        {EVENT_TIME: pl.Int64}
    )
    stage.step(store, {MAIN: every}, Clock(0))
    took = []
    for number in range(1, batches + WARM_UP + 1):
        arrivals = batch(random, number, rows, live + live // 5)
        start = time.perf_counter()
        step = stage.step(store, {MAIN: arrivals}, Clock(number * SECOND))
        took.append(time.perf_counter() - start)
    return float(np.median(took[WARM_UP:])), step.live


@click.command()
@click.option("--rows", default=50_000, show_default=True, help="Of a batch.")
@click.option("--batches", default=5, show_default=True)
@click.option("--live", multiple=True, default=(100_000, 500_000, 1_000_000), show_default=True)
def main(rows: int, batches: int, live: tuple[int, ...]) -> None:
    """Print a line for each number of live ids."""
    for ids in live:
        seconds, left = dedup(ids, rows, batches)
        click.echo(
            f"dedup  {left:>10,} ids live  {seconds * 1000:7.1f} ms a batch  {rows / seconds:>10,.0f} rows/s"
        )


if __name__ == "__main__":
    main()
