"""A workload as a streaming query, a Parquet file per micro-batch: on the Spark runner, or by hand in native Spark."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import beamlike as bl
from beamlike.records.model import BatchRecord
from benchmarks import native
from benchmarks.measure import cpu_of_family
from benchmarks.workloads import SCHEMA, SECOND, START, WORKLOADS, Load, Workload

WARM_UP = 5  # batches that are not measured
_INTERVAL = 0.1  # between two looks at the CPU time, seconds
CORES = 2
_MEMORY = "4g"  # of the JVM
SETTINGS = {"spark.driver.memory": _MEMORY, "spark.sql.streaming.numRecentProgressUpdates": "1000"}
_NATIVE_TYPES = "user long, score long, event_time timestamp"

Progress: TypeAlias = dict[str, Any]


class CpuClock(threading.Thread):
    """A thread that samples the CPU seconds of this process and its descendants every tenth of a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.times: list[float] = []
        self.used: list[float] = []
        self.ended = threading.Event()

    def run(self) -> None:
        while True:
            self.times.append(time.time())
            self.used.append(cpu_of_family(os.getpid()))
            if self.ended.wait(_INTERVAL):
                return

    def at(self, moment: float) -> float:
        """Returns the CPU seconds until then, interpolated between two samples."""
        after = min(max(bisect_left(self.times, moment), 1), len(self.times) - 1)
        first, last = self.times[after - 1], self.times[after]
        share = min(max((moment - first) / (last - first), 0.0), 1.0)
        return self.used[after - 1] + share * (self.used[after] - self.used[after - 1])


@attrs.frozen
class Batch:
    """The time of one batch (seconds), the panes that it emitted, and the rows and bytes of state after it."""

    wall: float
    cpu: float
    panes: int
    live: int
    state: int


@attrs.frozen
class Told:
    """An engine's report of a batch: arrived elements, emitted panes, rows and bytes of state."""

    elements: int
    panes: int
    live: int
    state: int


def prepare(workload: Workload, load: Load, batches: int, folder: Path) -> None:
    """Writes the workload's files, those of its batches last, in the order of reading."""
    folder.mkdir()
    arrivals = (workload.batch(load, number) for number in range(WARM_UP + batches))
    for number, plays in enumerate(itertools.chain(workload.before(load), arrivals)):
        path = folder / f"{number:05d}.parquet"
        plays.write_parquet(path, compression="snappy")
        os.utime(path, (START // SECOND + number,) * 2)  # Spark reads the oldest first


def pipeline(workload: Workload, load: Load, work: Path) -> bl.Pipeline:
    """Declares sum and number of each user's plays in each window."""
    windowing = workload.windowing(load)
    p = bl.Pipeline("state")
    plays = p.read(
        "plays",
        bl.Parquet(work / "data", dict(SCHEMA), max_files_per_trigger=1),
        timestamp="event_time",
        watermark=bl.BoundedOutOfOrderness("1s"),
    )
    windows = plays.window_into(
        windowing.windows, trigger=windowing.trigger, allowed_lateness=windowing.allowed_lateness
    )
    scores = windows.group_by("user", name="scores").aggregate(score=bl.sum("score"), plays=bl.count())
    scores.write("totals", bl.Parquet(work / "out"))
    return p


def run_spark(workload: Workload, load: Load, batches: int, work: Path) -> list[Batch]:
    """Runs the job on the Spark runner."""
    runner = bl.SparkRunner(
        checkpoint=str(work / "checkpoint"), master=f"local[{CORES}]", shards=CORES, config=SETTINGS
    )
    clock = CpuClock()
    clock.start()
    run = runner.start(pipeline(workload, load, work).plan())
    (query,) = run.session.streams.active
    run.wait()
    told = {record.batch: _told(record) for record in run.batches}
    return measured_batches(progress_of(query), told, clock, load, batches)


def _told(record: BatchRecord) -> Told:
    stage = record.stages["scores"]
    return Told(record.sources["plays"].elements, sum(stage.panes.values()), stage.live, stage.bytes)


def native_scores(spark: SparkSession, workload: Workload, load: Load, data: Path) -> DataFrame:
    """Computes the same scores in native Spark; its only delay is also the time for which windows are stored."""
    delay = SECOND + workload.lateness(load)
    plays = (
        spark.readStream.schema(_NATIVE_TYPES)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(data))
        .withWatermark("event_time", f"{delay} microseconds")
    )
    if workload.sessions:
        window = F.session_window("event_time", f"{workload.gap(load)} microseconds")
    else:
        window = F.window("event_time", f"{workload.size} seconds", f"{workload.period} seconds")
    return plays.groupBy(window, "user").agg(F.sum("score").alias("score"), F.count("*").alias("plays"))


def run_native(workload: Workload, load: Load, batches: int, work: Path) -> list[Batch]:
    """Runs the job in native Spark, with its file sink."""
    spark = native.session(CORES, SETTINGS)
    clock = CpuClock()
    clock.start()
    query = (
        native_scores(spark, workload, load, work / "data")
        .writeStream.format("parquet")
        .option("path", str(work / "out"))
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = progress_of(query)
    told = {each["batchId"]: _told_by_native(each) for each in progress}
    return measured_batches(progress, told, clock, load, batches)


def _told_by_native(progress: Progress) -> Told:
    (operator,) = progress["stateOperators"]
    state = operator["customMetrics"]["rocksdbSstFileSize"]
    return Told(progress["numInputRows"], operator["numRowsRemoved"], operator["numRowsTotal"], state)


def progress_of(query: StreamingQuery) -> list[Progress]:
    return [json.loads(each.json) for each in query.recentProgress]


def measured_batches(
    progress: Sequence[Progress], told: Mapping[int, Told], clock: CpuClock, load: Load, batches: int
) -> list[Batch]:
    """Returns the last batches with ordinary arrivals. A batch's CPU time lasts until the next batch begins."""
    clock.ended.set()
    clock.join()
    begins = [datetime.fromisoformat(each["timestamp"]).timestamp() for each in progress]
    walls = [each["durationMs"]["triggerExecution"] / 1e3 for each in progress]
    ends = [*begins[1:], begins[-1] + walls[-1]]
    found = []
    for each, begin, end, wall in zip(progress, begins, ends, walls, strict=True):
        facts = told.get(each["batchId"])
        if facts is not None and facts.elements == load.arrivals:
            cpu = clock.at(end) - clock.at(begin)
            found.append(Batch(wall, cpu, facts.panes, facts.live, facts.state))
    if len(found) != WARM_UP + batches:
        raise RuntimeError(f"{len(found)} batches of {load.arrivals} arrivals, expected {WARM_UP + batches}")
    return found[WARM_UP:]


_ENGINES = {"spark": run_spark, "native": run_native}


@click.command()
@click.argument("engine", type=click.Choice(list(_ENGINES)))
@click.argument("workload", type=click.Choice(list(WORKLOADS)))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--rows", required=True, type=click.IntRange(1))
@click.option("--arrivals", required=True, type=click.IntRange(1))
@click.option("--batches", required=True, type=click.IntRange(1))
def main(engine: str, workload: str, out: Path, rows: int, arrivals: int, batches: int) -> None:
    """Run a workload on an engine and write a list of the costs of each batch to the file OUT."""
    load = Load(rows, arrivals)
    with tempfile.TemporaryDirectory() as work:
        prepare(WORKLOADS[workload], load, batches, Path(work) / "data")
        measured = _ENGINES[engine](WORKLOADS[workload], load, batches, Path(work))
    out.write_text(json.dumps([attrs.asdict(batch) for batch in measured]))


if __name__ == "__main__":
    main()
