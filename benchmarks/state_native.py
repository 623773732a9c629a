"""Operators whose state is read by key, by hand in native Spark, a file of rows per micro-batch."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs
import click
import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks import native
from benchmarks.state_operators import OPERATORS, Bench
from benchmarks.state_spark import (
    CORES,
    SETTINGS,
    WARM_UP,
    Batch,
    CpuClock,
    Progress,
    Told,
    measured_batches,
    progress_of,
)
from benchmarks.workloads import SECOND, START, Load
from windowing.columns import EVENT_TIME

_TYPES: Final = "user long, score long, right boolean, at timestamp"


def _totals(rows: DataFrame) -> DataFrame:
    days = rows.withWatermark("at", "0 seconds").groupBy(F.window("at", "1 day"), "user")
    return days.agg(F.sum("score").alias("score"), F.count("*").alias("rows"))


def _dedup(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["user"])


def _joined(rows: DataFrame, how: str) -> DataFrame:
    timed = rows.withWatermark("at", "0 seconds")
    left, right = timed.where("not right").alias("l"), timed.where("right").alias("r")
    within = F.expr("l.user = r.user and r.at between l.at and l.at + interval 1 hour")
    return left.join(right, within, how)


NATIVE: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "early panes": _totals,
    "dedup": _dedup,
    "distinct": lambda rows: rows.select("user").dropDuplicates(["user"]),
    "interval join": lambda rows: _joined(rows, "inner"),
    "interval join, outer": lambda rows: _joined(rows, "full_outer"),
}
"""The operators that native Spark has, by their names in `state_operators`. Its totals are emitted in each batch."""


def frames(operator: str, load: Load, batches: int) -> Iterator[pl.DataFrame]:
    """Yields the rows that make the state, and then those of each batch. In joins, every other row is a right one."""
    bench = Bench(OPERATORS[operator], load.rows, load.arrivals)
    for rows in itertools.chain(bench.parts(), bench.arriving(batches)):
        at = (pl.col(EVENT_TIME) + START).cast(pl.Datetime("us", "UTC")).alias("at")
        right = (pl.int_range(pl.len()) % 2 == 1).alias("right")
        yield rows.select("user", "score", right, at)


def prepare(operator: str, load: Load, batches: int, folder: Path) -> None:
    """Writes a file for each of the frames, in the order of reading."""
    folder.mkdir()
    for number, rows in enumerate(frames(operator, load, WARM_UP + batches)):
        path = folder / f"{number:05d}.parquet"
        rows.write_parquet(path, compression="snappy")
        os.utime(path, (START // SECOND + number,) * 2)  # Spark reads the oldest first


def run(operator: str, load: Load, batches: int, work: Path) -> list[Batch]:
    """Runs the job and returns the costs of the batches after those that warm up. Results are computed and dropped."""
    spark = native.session(CORES, SETTINGS)
    clock = CpuClock()
    clock.start()
    rows = spark.readStream.schema(_TYPES).option("maxFilesPerTrigger", 1).parquet(str(work / "data"))
    mode = "append" if "join" in operator else "update"
    query = (
        NATIVE[operator](rows)
        .writeStream.format("noop")
        .outputMode(mode)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = progress_of(query)
    told = {each["batchId"]: _told(each, operator) for each in progress}
    return measured_batches(progress, told, clock, load, batches)


def _told(progress: Progress, operator: str) -> Told:
    (state,) = progress["stateOperators"]
    # A join reads its source twice.
    elements = progress["numInputRows"] // (2 if "join" in operator else 1)
    size = state["customMetrics"].get("rocksdbSstFileSize", 0)
    return Told(elements, max(0, progress["sink"]["numOutputRows"]), state["numRowsTotal"], size)


@click.command()
@click.argument("operator", type=click.Choice(list(NATIVE)))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--rows", required=True, type=click.IntRange(1))
@click.option("--arrivals", required=True, type=click.IntRange(1))
@click.option("--batches", required=True, type=click.IntRange(1))
def main(operator: str, out: Path, rows: int, arrivals: int, batches: int) -> None:
    """Run an operator in native Spark and write a list of the costs of each batch to the file OUT."""
    load = Load(rows, arrivals)
    with tempfile.TemporaryDirectory() as work:
        prepare(operator, load, batches, Path(work) / "data")
        measured = run(operator, load, batches, Path(work))
    out.write_text(json.dumps([attrs.asdict(batch) for batch in measured]))


if __name__ == "__main__":
    main()
