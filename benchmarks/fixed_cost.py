"""The fixed cost of a micro-batch: tiny batches of the flagship job, on the Spark runner and in native Spark.

Both have two operators with state, native Spark in RocksDB, and read a file of each source per batch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import attrs
import click
from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

import beamlike as bl
from benchmarks import native
from benchmarks.measure import _TICKS, _descendants
from examples import generate
from examples.session_lengths import pipeline

ENGINES = ("spark", "native")
PARTITIONS = 2
WARM = 15
"""Batches until Java has compiled most of what it runs: these are left out."""


@attrs.frozen
class Moment:
    """The end of a batch: wall time, and the CPU time so far of Java and of all Python processes, in seconds."""

    wall: float
    java: float
    python: float

    @classmethod
    def now(cls) -> Moment:
        java = python = 0
        for process in _descendants(os.getpid()):
            if _name(process.pid) == "java":
                java += process.ticks
            else:
                python += process.ticks
        own = time.process_time()
        return cls(time.monotonic(), java / _TICKS, python / _TICKS + own)


@attrs.frozen
class Cost:
    """A warm batch, in milliseconds: the medians of wall time and CPU, and of Java's and Python's share."""

    wall: float
    cpu: float
    java: float
    python: float

    @classmethod
    def between(cls, ends: Sequence[Moment]) -> Cost:
        """Returns the cost of the batches that end at these times."""
        steps = list(pairwise(ends))
        wall = median(end.wall - start.wall for start, end in steps)
        # Java compiles and collects garbage in some batches for others, so the mean CPU is the cost of a batch.
        java = (ends[-1].java - ends[0].java) / len(steps)
        python = (ends[-1].python - ends[0].python) / len(steps)
        return cls(*(1e3 * seconds for seconds in (wall, java + python, java, python)))


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def run(engine: str, data: Path, ended: Callable[[], None]) -> None:
    """Runs the job over all files of `data`; calls `ended` at the end of each batch."""
    with tempfile.TemporaryDirectory() as folder:
        out, checkpoint = Path(folder) / "out", str(Path(folder) / "checkpoint")
        (run_ours if engine == "spark" else run_native)(data, out, checkpoint, ended)


def run_ours(data: Path, out: Path, checkpoint: str, ended: Callable[[], None]) -> None:
    job = pipeline(data, out, bl.END_OF_WINDOW)
    job.run(
        runner=bl.SparkRunner(
            checkpoint=checkpoint,
            master=f"local[{PARTITIONS}]",
            shards=PARTITIONS,
            config={"spark.driver.memory": "4g"},
            on_batch=lambda record: ended(),
        )
    )


def run_native(data: Path, out: Path, checkpoint: str, ended: Callable[[], None]) -> None:
    out.mkdir()

    def keep(frame: DataFrame, batch: int) -> None:
        frame.toPandas().to_parquet(out / f"batch-{batch:04d}.parquet")
        ended()

    query = native.averages(native.session(PARTITIONS), data).writeStream.foreachBatch(keep)
    query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


def measured(engine: str, data: Path) -> Cost:
    """Measures the cost of a warm batch on an engine, in a process of its own."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        command = [sys.executable, "-m", "benchmarks.fixed_cost", "--one", engine, str(data), report.name]
        subprocess.run(command, check=True)
        ends = [Moment(*moment) for moment in json.load(report)]
    return Cost.between(ends[WARM:])


@click.command()
@click.option("--batches", default=60, show_default=True, type=click.IntRange(WARM + 2))
@click.option(
    "--rows", default=100, show_default=True, help="Rows of a batch, about.", type=click.IntRange(1)
)
@click.option(
    "--repeats", default=1, show_default=True, help="Runs of each engine; the one with the least CPU counts."
)
@click.option("--only", default=",".join(ENGINES), show_default=True)
@click.option("--one", nargs=3, hidden=True)
def main(batches: int, rows: int, repeats: int, only: str, one: tuple[str, str, str] | None) -> None:
    """Measure a micro-batch of the flagship job on this project's Spark runner and in native Spark, and the ratio."""
    if one is not None:
        engine, data, report = one
        ends: list[Moment] = []
        run(engine, Path(data), lambda: ends.append(Moment.now()))
        Path(report).write_text(json.dumps([attrs.astuple(end) for end in ends]))
        return
    with tempfile.TemporaryDirectory() as folder:
        generate.write(folder, generate.Plays(batches * rows, batches))
        costs = {
            engine: min((measured(engine, Path(folder)) for _ in range(repeats)), key=lambda cost: cost.cpu)
            for engine in only.split(",")
        }
    table = Table("engine", "wall ms", "CPU ms", "of it Java", "Python")
    for engine, cost in costs.items():
        table.add_row(engine, *(f"{value:.0f}" for value in attrs.astuple(cost)))
    if len(costs) == len(ENGINES):
        ours, theirs = costs["spark"], costs["native"]
        table.add_row("ratio", f"{ours.wall / theirs.wall:.2f}", f"{ours.cpu / theirs.cpu:.2f}", "", "")
    Console().print(table)


if __name__ == "__main__":
    main()
