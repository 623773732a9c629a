"""The part of a workload of one shard on a stage alone: its state is a dict in this process, without Spark."""

from __future__ import annotations

import json
import time
from pathlib import Path

import attrs
import click
import polars as pl

from benchmarks.workloads import SECOND, START, WORKLOADS, Load, Workload
from stages.aggregates.builtin import Count
from stages.aggregates.totals import Sum
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME

_WARM_UP = 3  # batches that are not measured: the first finds much overdue


@attrs.define
class CountingStore(DictStore):
    """A store that counts calls and bytes."""

    calls: int = 0
    read: int = 0
    written: int = 0

    def get(self, stage: str, key: str) -> bytes | None:
        value = self.values.get((stage, key))
        self.calls += 1
        self.read += len(value or b"")
        return value

    def put(self, stage: str, key: str, value: bytes) -> None:
        self.calls += 1
        self.written += len(value)
        self.values[stage, key] = value

    def delete(self, stage: str, key: str) -> None:
        self.calls += 1
        self.values.pop((stage, key), None)

    def reset(self) -> None:
        self.calls = self.read = self.written = 0

    @property
    def bytes(self) -> int:
        """The size of all values."""
        return sum(len(value) for value in self.values.values())


@attrs.frozen
class Batch:
    """The cost of one batch (seconds, bytes), and the live rows after it."""

    wall: float
    cpu: float
    calls: int
    read: int
    written: int
    panes: int
    live: int
    state: int


def run(workload: Workload, load: Load, batches: int) -> list[Batch]:
    """Returns the batches after the warm-up."""
    stage, store = _stage(workload, load), CountingStore()
    for plays in workload.before(load):
        stage.step(store, {MAIN: _arrivals(plays)}, Times.of(START - workload.lateness(load)))
    measured = [_batch(stage, store, workload, load, number) for number in range(_WARM_UP + batches)]
    return measured[_WARM_UP:]


def _stage(workload: Workload, load: Load) -> Stage:
    schema = pl.Schema({"user": pl.Int64(), "score": pl.Int64()})
    aggregates = {"score": Sum("score"), "plays": Count()}
    return Stage("scores", Grouping(("user",), workload.windowing(load), aggregates, schema))


def _batch(stage: Stage, store: CountingStore, workload: Workload, load: Load, number: int) -> Batch:
    arrivals = _arrivals(workload.batch(load, number))
    clock = Times.of(START + number * SECOND, START + number * SECOND)
    store.reset()
    wall, cpu = time.perf_counter(), time.process_time()
    step = stage.step(store, {MAIN: arrivals}, clock)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Batch(wall, cpu, store.calls, store.read, store.written, len(step.panes), step.live, store.bytes)


def _arrivals(plays: pl.DataFrame) -> pl.DataFrame:
    return plays.select("user", "score", pl.col("event_time").dt.timestamp("us").alias(EVENT_TIME))


@click.command()
@click.argument("workload", type=click.Choice(list(WORKLOADS)))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--rows", required=True, type=click.IntRange(1))
@click.option("--arrivals", required=True, type=click.IntRange(1))
@click.option("--batches", required=True, type=click.IntRange(1))
def main(workload: str, out: Path, rows: int, arrivals: int, batches: int) -> None:
    """Run a workload on a stage and write a list of the costs of each batch to the file OUT."""
    measured = run(WORKLOADS[workload], Load(rows, arrivals), batches)
    out.write_text(json.dumps([attrs.asdict(batch) for batch in measured]))


if __name__ == "__main__":
    main()
