"""Interval join and dedup with many live rows, ours on Spark, Spark's own and Flink SQL: seconds per batch on one core.

Spark's own are its stream-stream join and `dropDuplicatesWithinWatermark`, with state in RocksDB. Flink keeps its state
in memory, where it is fastest, and writes to a table that keeps no rows; it has no batches, so its figure is what as
many rows more take.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import beamlike as bl
from beamlike.spark.session.java import find_java
from benchmarks import native
from benchmarks.engines import ENGINES, install, variables

JOBS = ("join", "dedup")
TITLES = {"beamlike": "beamlike", "native": "Spark's own", "flink": "Flink SQL"}
REACH = 3600  # seconds: rows are live for so long
_START = 1_767_225_600  # 2026-01-01, in seconds
_WARM_UP = 2  # batches of `rows` that are not measured
_TYPES = "k long, v double, at timestamp"
_FLINK = Path(__file__).parent / "peers" / "flink_joins.py"


def write(data: Path, live: int, rows: int, batches: int) -> None:
    """A file of `live` rows for each side, then files of `rows`, each over the time in which as many rows go.

    Keys are at random among as many as there are live rows, so that a row has about one partner.
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
    """The seconds from batch to batch of the job on the Spark runner, with one shard."""
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
    return [(later.processing_time - one.processing_time) / 1e6 for one, later in pairwise(run.batches)]


_MARK = bl.MonotonousTimestamps()


def by_spark(job: str, data: Path, out: Path, checkpoint: str) -> list[float]:
    """The seconds of each batch of the job by what Spark has for it."""
    spark = native.session(1)

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
    return [each["durationMs"]["triggerExecution"] / 1e3 for each in progress if each["numInputRows"]]


def measured(job: str, engine: str, live: int, rows: int, batches: int) -> float:
    """The median of the seconds of a batch."""
    with tempfile.TemporaryDirectory() as folder:
        data, out, checkpoint = (Path(folder, name) for name in ("data", "out", "checkpoint"))
        write(data, live, rows, batches)
        took = (ours if engine == "beamlike" else by_spark)(job, data, out, str(checkpoint))
    return statistics.median(took[1 + _WARM_UP :])


def by_flink(job: str, live: int, rows: int, batches: int, environments: Path) -> float:
    """The seconds that `rows` more take, of a run with `batches` times as many more and one with none."""
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
            start = time.perf_counter()
            subprocess.run(
                [f"{python}", f"{_FLINK}", folder, job, str(REACH)],
                check=True,
                capture_output=True,
                text=True,
                env=variables(engine, python, environments, env),
            )
            took.append(time.perf_counter() - start)
    return (took[1] - took[0]) / batches


def lines(live: tuple[int, ...], rows: int, batches: int, environments: Path) -> Iterator[str]:
    """One for each job and number of live rows, each engine in a process of its own, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for job in JOBS:
        for count in live:
            took = {}
            for engine in TITLES:
                if engine == "flink":
                    took[engine] = by_flink(job, count, rows, batches, environments)
                    continue
                options = [f"--{name}={value}" for name, value in (("rows", rows), ("batches", batches))]
                command = [sys.executable, "-m", "benchmarks.joins_spark", *options, f"--live={count}"]
                one = subprocess.run(
                    [*command, f"--only={job}:{engine}"],
                    check=True,
                    capture_output=True,
                    text=True,
                    env={**os.environ, "POLARS_MAX_THREADS": "1"},
                )
                took[engine] = float(one.stdout.split()[-1])
            told = "  ".join(
                f"{title} {took[name]:6.2f} s ({took[name] / took['beamlike']:4.1f})"
                for name, title in TITLES.items()
            )
            yield f"{job:<6} {count:>11,} rows live  {told}"


@click.command()
@click.option("--rows", default=100_000, show_default=True, help="Of a batch and side.")
@click.option("--batches", default=8, show_default=True)
@click.option("--live", multiple=True, type=int, default=(100_000, 1_000_000), show_default=True)
@click.option("--environments", default=Path("build/bench-envs"), type=click.Path(path_type=Path))
@click.option("--only", hidden=True)
def main(rows: int, batches: int, live: tuple[int, ...], environments: Path, only: str | None) -> None:
    """Print a line for each job and number of live rows on each side: seconds, and how many times ours."""
    if only:
        job, _, engine = only.partition(":")
        click.echo(measured(job, engine, live[0], rows, batches))
        return
    for line in lines(live, rows, batches, environments.absolute()):
        click.echo(line)


if __name__ == "__main__":
    main()
