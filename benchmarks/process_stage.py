"""Keyed state and timers on a stage alone: its state is a dict in this process, there is no Spark.

The job is that of `examples/silence.py`: for each row two fields are written and a timer is set anew.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
import polars as pl

import beamlike as bl
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME

SCHEMA = pl.Schema({"user": pl.Int64(), "value": pl.Int64(), "at": pl.Datetime("us", "UTC")})
MANY = 10_000_000  # keys
SHARDS = 8
TIMERS = 1_000_000
_SECOND = 1_000_000
_GIVEN = {"user": int, "since": datetime, "rows": int}
_SILENCE = timedelta(minutes=10)


class Silence(bl.Process):
    """A process with two fields and a timer."""

    since = bl.Value(datetime)
    rows = bl.Value(int, default=0)
    quiet = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> None:
        self.since = self.time
        self.rows += 1
        self.quiet.after("10m")

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        yield {"user": self.key.user, "since": self.since, "rows": self.rows}


def silence(rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Finds silences in columns: the last reading of the state, then the rows, and the pauses between them."""
    pending = pl.col("quiet").is_not_null() | pl.col("user").is_in(due["user"].implode())
    before = state.filter(pl.col("since").is_not_null())
    before = before.select("user", "rows", event_time="since", pending=pending)
    come = rows.select("user", pl.lit(1, pl.Int64).alias("rows"), "event_time", pending=True)
    seen = pl.concat([before, come]).sort("user", maintain_order=True)
    following = pl.col("event_time").shift(-1).over("user").alias("next")
    seen = seen.with_columns(following, pl.col("rows").cum_sum().over("user"))
    over = pl.col("event_time") + _SILENCE
    told = seen.filter(pl.col("pending") & (over <= pl.col("next")))
    told = told.select("user", "rows", since="event_time", event_time=over)
    silent = due.join(rows, on="user", how="anti")
    told = pl.concat([told, silent.join(state, on="user").select(told.columns)])
    last = seen.filter(pl.col("next").is_null()).select("user", "rows", since="event_time", quiet=over)
    quiet = pl.when(~pl.col("user").is_in(silent["user"].implode())).then("quiet")
    return told, last.with_columns(quiet.alias("quiet"))


def _process(rows: bl.Collection) -> bl.Collection:
    return rows.group_by("user", name="job").process(Silence(), _GIVEN)


def _batches(rows: bl.Collection) -> bl.Collection:
    state, timers = {"since": datetime, "rows": int}, {"quiet": bl.EventTimer()}
    return rows.group_by("user", name="job").process_batches(silence, _GIVEN, state=state, timers=timers)


def _running(rows: bl.Collection) -> bl.Collection:
    return rows.group_by("user", name="job").running(rows=bl.count(), before=bl.previous("at"))


TIERS: dict[str, Callable[[bl.Collection], bl.Collection]] = {
    "Process": _process,
    "process_batches": _batches,
    "running": _running,
}


@attrs.frozen
class Figure:
    """CPU seconds of a step, the median of some, and its rows."""

    name: str
    rows: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows per CPU second."""
        return self.rows / self.seconds


@attrs.define
class Bench:
    """A stage with one kind of process function, and its state."""

    tier: str
    stage: Stage = attrs.field(init=False)
    store: DictStore = attrs.field(factory=DictStore)
    panes: int = 0

    def __attrs_post_init__(self) -> None:
        p = bl.Pipeline("bench")
        source = bl.Rows(pl.DataFrame(schema=SCHEMA))
        rows = p.read("rows", source, timestamp="at", watermark=bl.MonotonousTimestamps())
        TIERS[self.tier](rows).write("out", bl.Memory())
        self.stage = p.plan().stages["job"].stage

    def step(self, users: np.ndarray, times: np.ndarray, clock: int) -> float:
        """Returns the CPU seconds of a step in which these rows arrive and the watermark then moves to `clock`."""
        columns = {"user": users, "value": users, "at": times, EVENT_TIME: times}
        wanted = self.stage.operator.inputs[MAIN].schema
        arrivals = pl.DataFrame(columns, schema_overrides={"at": pl.Int64}).cast({"at": SCHEMA["at"]})
        begin = time.process_time()
        given = self.stage.step(
            self.store,
            {MAIN: arrivals.select(name for name in wanted if name in columns)},
            Times.of(clock, clock),
        )
        self.panes += len(given.panes)
        return time.process_time() - begin


def many_rows(tier: str, rows: int, keys: int, steps: int) -> Figure:
    """Measures rows of some keys, a minute of them in a step."""
    bench, rng, minute = Bench(tier), np.random.default_rng(1), 60 * _SECOND
    seconds = [
        bench.step(
            rng.integers(0, keys, rows),
            np.sort(rng.integers(0, minute, rows)) + number * minute,
            (number + 1) * minute,
        )
        for number in range(2 + steps)
    ]
    return Figure(f"{tier}, {rows:,} rows of {keys:,} keys", rows, statistics.median(seconds[2:]))


def timers(count: int) -> list[Figure]:
    """Measures timers of `count` keys: they are set, then set again, then fire."""
    bench, users = Bench("Process"), np.arange(count)
    names = {"set": _SECOND, "set again": 2 * _SECOND, "fired": 3600 * _SECOND}
    figures = []
    for name, clock in names.items():
        some = users if name != "fired" else users[:0]
        seconds = bench.step(some, np.full(len(some), clock - 1), clock)
        figures.append(Figure(f"{count:,} timers {name}", count, seconds))
    assert bench.panes == count, f"{bench.panes} of {count} timers fired"
    return figures


def many_keys(keys: int, rows: int, shards: int, steps: int) -> Figure:
    """Measures a batch of random rows with state and a timer for each key: one shard's share, times the shards."""
    bench, rng, own, part = Bench("Process"), np.random.default_rng(1), keys // shards, 250_000
    for number, first in enumerate(range(0, own, part)):
        users = np.arange(first, min(first + part, own))
        bench.step(users, np.full(len(users), number * _SECOND), (number + 1) * _SECOND)
    begin = own // part + 1
    seconds = [
        bench.step(
            rng.integers(0, own, rows // shards),
            np.sort(rng.integers(0, _SECOND, rows // shards)) + (begin + number) * _SECOND,
            (begin + number + 1) * _SECOND,
        )
        for number in range(2 + steps)
    ]
    return Figure(
        f"{rows:,} random rows of {keys:,} keys, {shards} shards",
        rows,
        shards * statistics.median(seconds[2:]),
    )


@click.command()
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--small", is_flag=True, help="A hundredth of everything.")
def main(out: Path, small: bool) -> None:
    """Measure and write a list of figures to the file OUT."""
    part = 100 if small else 1
    figures = [many_rows(tier, 100_000 // part, 10_000 // part, 8) for tier in TIERS]
    figures += timers(TIMERS // part)
    figures.append(many_keys(MANY // part, 100_000 // part, SHARDS, 4))
    out.write_text(json.dumps([attrs.asdict(figure) for figure in figures]))


if __name__ == "__main__":
    main()
