"""Interval join and dedup with many live rows, on our Spark runner, in native Spark and in Flink SQL.

The figures are CPU seconds per batch. Native Spark uses its stream-stream join and `dropDuplicatesWithinWatermark`,
with state in RocksDB. Flink keeps its state in memory, where it is fastest, and writes to a table that keeps no rows;
it has no batches, so its figure is the cost of as many more rows. Each runs with one core's worth of tasks, and CPU is
that of all its processes and threads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import attrs
import click
import numpy as np
import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import beamlike as bl
from beamlike.spark.session.java import find_java
from benchmarks import native
from benchmarks.engines import ENGINES, install, variables
from benchmarks.measure import cpu_of_family, measure

JOBS = ("join", "dedup")
TITLES = {"beamlike": "beamlike", "native": "Spark's own", "flink": "Flink SQL"}
REACH = 3600  # seconds: rows are live for so long
_START = 1_767_225_600  # 2026-01-01, in seconds
_WARM_UP = 3  # batches that are not measured: the live rows, and two after them
_INTERVAL = 0.2  # between two looks at the clocks, seconds
_TYPES = "k long, v double, at timestamp"
_FLINK = Path(__file__).parent / "peers" / "flink_joins.py"


def write(data: Path, live: int, rows: int, batches: int) -> None:
    """Writes a file of `live` rows for each side, then files of `rows`, in each of which as many rows expire.

    Keys are random, out of as many as there are live rows, so that a row has about one partner.
    """
    random = np.random.default_rng(7)
    for side in ("left", "right"):
        (data / side).mkdir(parents=True)
        begin = 0.0
        for number in range(batches + 1):
            count = rows if number else live
            length = REACH * count / live
            at = begin + np.sort(random.random(count)) * length
            begin += length
            columns = {
                "k": random.integers(0, live, count),
                "v": random.random(count),
                "at": (at * 1_000_000).astype(np.int64) + _START * 1_000_000,
            }
            path = data / side / f"part-{number:04d}.parquet"
            pl.DataFrame(columns).with_columns(pl.col("at").cast(pl.Datetime("us", "UTC"))).write_parquet(
                path
            )
            os.utime(path, (_START + number,) * 2)


def ours(job: str, data: Path, out: Path, checkpoint: str) -> list[float]:
    """Runs the job on the Spark runner with one shard; returns the start of its batches, in seconds since 1970."""
    p = bl.Pipeline("joins")
    left, right = (
        p.read(side, bl.Parquet(data / side, max_files_per_trigger=1), timestamp="at", watermark=_MARK)
        for side in ("left", "right")
    )
    if job == "join":
        made = left.select("k").join(right, on="k", within=("0s", f"{REACH}s"))
    else:
        made = left.dedup("k", within=f"{REACH}s")
    made.write("out", bl.Parquet(out))
    config = {"spark.driver.memory": "4g"}
    run = p.run(bl.SparkRunner(checkpoint, master="local[1]", config=config, shards=1))
    return [batch.processing_time / 1e6 for batch in run.batches]


_MARK = bl.MonotonousTimestamps()


def by_spark(job: str, data: Path, out: Path, checkpoint: str) -> list[float]:
    """Runs the equivalent job in native Spark; returns the start of its batches, in seconds since 1970."""
    # Counting the rows of the state costs a lookup for each that is written, so tuned jobs turn it off.
    spark = native.session(1, {"spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false"})

    def read(side: str, delay: int) -> DataFrame:
        stream = spark.readStream.schema(_TYPES).option("maxFilesPerTrigger", 1).parquet(str(data / side))
        return stream.withWatermark("at", f"{delay} seconds")

    if job == "join":
        left = read("left", 0)
        right = read("right", 0).select(F.col("k").alias("k_right"), "v", F.col("at").alias("at_right"))
        later = F.col("at_right") <= F.col("at") + F.expr(f"INTERVAL {REACH} SECONDS")
        on = (F.col("k") == F.col("k_right")) & (F.col("at_right") >= F.col("at")) & later
        made = left.drop("v").join(right, on)
    else:
        made = read("left", REACH).dropDuplicatesWithinWatermark(["k"])
    writer = (
        made.writeStream.format("parquet").option("path", str(out)).option("checkpointLocation", checkpoint)
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [json.loads(each.json) for each in query.recentProgress]
    return [
        datetime.fromisoformat(each["timestamp"]).timestamp() for each in progress if each["numInputRows"]
    ]


@attrs.define
class CpuClock:
    """A thread that samples the CPU seconds of this process and its descendants."""

    seen: list[tuple[float, float]] = attrs.field(factory=list)
    ended: threading.Event = attrs.field(factory=threading.Event)

    def __enter__(self) -> CpuClock:
        threading.Thread(target=self._look, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()

    def _look(self) -> None:
        while not self.ended.wait(_INTERVAL):
            self.seen.append((time.time(), cpu_of_family(os.getpid())))

    def between(self, begin: float, end: float) -> float:
        """Returns the CPU seconds from one time to another, in seconds since 1970."""
        at, cpu = zip(*self.seen, strict=True)
        return float(np.interp(end, at, cpu) - np.interp(begin, at, cpu))


def measured(job: str, engine: str, live: int, rows: int, batches: int) -> float:
    """Returns the CPU seconds of a batch, from the start of the first measured one to that of the last one."""
    with tempfile.TemporaryDirectory() as folder, CpuClock() as clock:
        data, out, checkpoint = (Path(folder, name) for name in ("data", "out", "checkpoint"))
        write(data, live, rows, batches)
        begun = (ours if engine == "beamlike" else by_spark)(job, data, out, str(checkpoint))
    counted = begun[_WARM_UP : batches + 1]
    return clock.between(counted[0], counted[-1]) / (len(counted) - 1)


def by_flink(job: str, live: int, rows: int, batches: int, environments: Path) -> float:
    """Returns the CPU seconds of `rows` more: a run with `batches` times as many more, less a run with none."""
    java, engine, took = find_java(), ENGINES["flink-sql"], []
    python = install(engine, environments)
    env = dict(os.environ) | ({} if java is None else {"JAVA_HOME": str(java.home)})
    for number in (_WARM_UP, _WARM_UP + batches):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder, "parts"), live, rows, number)
            for side in ("left", "right"):
                parts = pl.scan_parquet(Path(folder, "parts", side))
                parts.with_columns(pl.col("at").dt.timestamp("us")).sink_parquet(
                    Path(folder, f"{side}.parquet"), compression="snappy"
                )
            command = [f"{python}", f"{_FLINK}", folder, job, str(REACH)]
            usage = measure(command, env=variables(engine, python, environments, env))
            if usage.code:
                raise click.ClickException(f"Flink SQL ended with code {usage.code}")
            took.append(usage.cpu)
    return (took[1] - took[0]) / batches


def lines(
    jobs: Sequence[str],
    live: Sequence[int],
    engines: Sequence[str],
    rows: int,
    batches: int,
    environments: Path,
) -> Iterator[str]:
    """Yields a line for each job and number of live rows, each engine in a process of its own."""
    for job in jobs:
        for count in live:
            first = 0.0
            for engine in engines:
                took = _took(job, engine, count, rows, batches, environments)
                first = first or took
                title = f"{job:<6} {count:>11,} rows live  {TITLES[engine]:<12}"
                yield f"{title} {took:7.2f} s of CPU, {took / first:5.2f} times {TITLES[engines[0]]}"


def _took(job: str, engine: str, live: int, rows: int, batches: int, environments: Path) -> float:
    if engine == "flink":
        return by_flink(job, live, rows, batches, environments)
    options = [f"--rows={rows}", f"--batches={batches}", f"--live={live}", f"--only={job}:{engine}"]
    one = subprocess.run(
        [sys.executable, "-m", "benchmarks.joins_spark", *options],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "POLARS_MAX_THREADS": "1"},
    )
    return float(one.stdout.split()[-1])


@click.command()
@click.option("--rows", default=100_000, show_default=True, help="Rows of a batch and side.")
@click.option("--batches", default=8, show_default=True)
@click.option("--live", multiple=True, type=int, default=(100_000, 1_000_000), show_default=True)
@click.option("--environments", default=Path("build/bench-envs"), type=click.Path(path_type=Path))
@click.option("--jobs", "jobs", multiple=True, type=click.Choice(JOBS), default=JOBS, show_default=True)
@click.option("--engines", multiple=True, type=click.Choice(list(TITLES)), default=list(TITLES))
@click.option("--only", hidden=True)
def main(
    rows: int,
    batches: int,
    live: tuple[int, ...],
    environments: Path,
    jobs: tuple[str, ...],
    engines: tuple[str, ...],
    only: str | None,
) -> None:
    """Print a line for each job and number of live rows on each side: CPU seconds, and how many times the first's."""
    if only:
        job, _, engine = only.partition(":")
        click.echo(measured(job, engine, live[0], rows, batches))
        return
    for line in lines(jobs, live, engines, rows, batches, environments.absolute()):
        click.echo(line)


if __name__ == "__main__":
    main()
