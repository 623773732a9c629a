"""Joins by time, dedup and distinct on a stage alone: rows per second, by the number of live rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import click
import numpy as np
import polars as pl

from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.machine import machine
from benchmarks.section import Section, resume
from stages.joins.asof import AsOfJoin
from stages.joins.base import LEFT, RIGHT
from stages.joins.interval import How, IntervalJoin
from stages.joins.interval_of_changes import IntervalJoinOfChanges
from stages.operator import MAIN
from stages.process.dedup import Dedup
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.time import MIN_TIME
from windowing.windowing import Windowing

SECOND = 1_000_000
REACH = 3600 * SECOND  # how long a row is live, where that is a time
ROWS = pl.Schema({"id": pl.Int64(), "value": pl.Float64()})
_SIDE = pl.Struct({"id": pl.Int64(), "value": pl.Float64()})
PAIRS = pl.Schema({"id": pl.Int64(), LEFT: _SIDE, RIGHT: _SIDE})
WARM_UP = 3

Make = Callable[[np.random.Generator, np.ndarray, int], pl.DataFrame]
"""A function that makes rows at these times, of this number of ids."""


def dedup(within: int | None) -> Stage:
    """Returns the stage of a dedup by id within a duration; without one it is distinct."""
    operator = Dedup(("id",), ROWS, Windowing(), within=within, by="event", order="arrival", title="dedup")
    return Stage("dedup", operator)


def interval(how: How) -> Stage:
    """Returns the stage of an interval join with rows of the right side, of the same id, up to `REACH` later."""
    return Stage("joined", IntervalJoin(("id",), PAIRS, how=how, low=0, high=REACH))


def of_changes(how: How) -> Stage:
    """Like `interval`, for rows that may be retracted in the next batch: they are stored for that much longer."""
    sides = {"changes": True, "corrected": (LEFT, RIGHT), "allowed_lateness": REACH // 4}
    return Stage("joined", IntervalJoinOfChanges(("id",), PAIRS, how=how, low=0, high=REACH, **sides))


def as_of() -> Stage:
    """Returns the stage of an as-of join with the newest version of the id."""
    return Stage("joined", AsOfJoin(("id",), PAIRS, "inner", None))


def plain(random: np.random.Generator, times: np.ndarray, ids: int) -> pl.DataFrame:
    """Returns rows with random ids, a fifth more than are live."""
    return rows_of(random.integers(0, ids + ids // 5, len(times)), times)


def rows_of(ids: np.ndarray, times: np.ndarray) -> pl.DataFrame:
    """Returns a row for each id."""
    return pl.DataFrame({"id": ids * 7919, "value": ids / 7, EVENT_TIME: times})


def sides(random: np.random.Generator, times: np.ndarray, ids: int) -> pl.DataFrame:
    """Returns rows with random ids, every other one of the right side."""
    return halves(random.integers(0, ids, len(times)), times)


def halves(ids: np.ndarray, times: np.ndarray) -> pl.DataFrame:
    """Returns a row for each id, of the two sides in turn."""
    row, right = pl.struct("id", "value"), pl.int_range(pl.len()) % 2 == 1
    nothing = pl.lit(None, _SIDE)
    left = pl.when(~right).then(row).otherwise(nothing)
    both = (left.alias(LEFT), pl.when(right).then(row).otherwise(nothing).alias(RIGHT))
    return rows_of(ids, times).select("id", *both, EVENT_TIME)


def with_retractions(rows: pl.DataFrame, stored: pl.DataFrame, random: np.random.Generator) -> pl.DataFrame:
    """Returns the rows of a batch, of which one in a hundred retracts an earlier one."""
    few = stored[random.permutation(len(stored))[: len(rows) // 100]]
    parts = [(rows.head(len(rows) - len(few)), False), (few, True)]
    return pl.concat(part.with_columns(pl.lit(flag).alias(PANE_RETRACTED)) for part, flag in parts)


def measured(name: str, live: int, rows: int, batches: int) -> float:
    """Returns the median CPU seconds per batch, with `live` live rows.

    For a join by time, half of them are of each side; for an as-of join all are versions, one of each id.
    """
    random, store = np.random.default_rng(7), DictStore()
    stage, make = _JOBS[name]()
    of_sides, changes = name.startswith(("interval", "outer")), name.endswith("of changes")
    ends = of_sides or name == "dedup"
    step = REACH * rows // live if ends else SECOND
    ids = live // 2 if of_sides else live
    begun = np.sort(random.integers(-REACH, 0, live)) if ends else np.zeros(live, np.int64)
    if of_sides:
        before = make(random, begun, ids)
    elif name == "as-of":
        versions = halves(np.repeat(random.permutation(ids), 2), np.repeat(begun, 2))
        before = versions.filter(pl.col(RIGHT).is_not_null())
    else:
        before = rows_of(random.permutation(ids), begun)
    first = with_retractions(before, before.clear(), random) if changes else before
    stage.step(store, {MAIN: first}, Times.of(0 if ends else MIN_TIME))
    took = []
    for number in range(batches + WARM_UP):
        times = number * step + np.sort(random.integers(0, max(1, step), rows))
        arrivals = make(random, times, ids)
        if changes:
            arrivals, before = (
                with_retractions(arrivals, before, random),
                arrivals.head(len(arrivals) * 9 // 10),
            )
        begin = time.process_time()
        stage.step(store, {MAIN: arrivals}, Times.of((number + 1) * step))
        took.append(time.process_time() - begin)
    return float(np.median(took[WARM_UP:]))


_JOBS: dict[str, Callable[[], tuple[Stage, Make]]] = {
    "interval": lambda: (interval("inner"), sides),
    "outer": lambda: (interval("full"), sides),
    "interval of changes": lambda: (of_changes("inner"), sides),
    "outer of changes": lambda: (of_changes("full"), sides),
    "as-of": lambda: (as_of(), sides),
    "dedup": lambda: (dedup(REACH), plain),
    "distinct": lambda: (dedup(None), plain),
}


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Returns the table of the page: milliseconds of CPU for a batch, a column for each number of live rows."""
    sizes = sorted({each["live"] for each in figures})
    known = {(each["job"], each["live"]): f"{1e3 * each['seconds']:,.0f}" for each in figures}
    rows = ((title, *(known.get((job, live), "") for live in sizes)) for job, title in TITLES.items())
    return readme.table(("", *(f"{live:,}" for live in sizes)), rows)


TITLES: Final[dict[str, str]] = {
    "interval": "interval join, pairs within an hour",
    "outer": "the same, full",
    "interval of changes": "interval join of changes",
    "outer of changes": "the same, full",
    "as-of": "as-of join, one version of each key",
    "dedup": "dedup for an hour",
    "distinct": "distinct",
}
SECTION = Section("joins", ("job", "live"), lines)


@click.command()
@click.option("--rows", default=100_000, show_default=True, help="Rows of a batch, both sides together.")
@click.option("--batches", default=5, show_default=True)
@click.option("--live", multiple=True, type=int, default=(100_000, 1_000_000, 10_000_000), show_default=True)
@click.option("--jobs", multiple=True, type=click.Choice(list(_JOBS)), default=tuple(_JOBS))
@resume
def main(rows: int, batches: int, live: tuple[int, ...], jobs: tuple[str, ...], resume: bool) -> None:
    """Print a line for each job and number of live rows."""
    about = machine(None)
    wanted = [(job, count) for job in jobs for count in live]
    for job, count in SECTION.left(wanted, about["commit"]) if resume else wanted:
        seconds = measured(job, count, rows, batches)
        click.echo(
            f"{job:<20}{count:>11,} rows live {seconds * 1000:8.1f} ms a batch {rows / seconds:>11,.0f} rows/s"
        )
        SECTION.keep([{"job": job, "live": count, "seconds": seconds}], about)
    SECTION.show()


if __name__ == "__main__":
    main()
