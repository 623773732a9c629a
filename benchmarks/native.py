"""The flagship job written by hand in native Structured Streaming, with Spark's own means."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

BATCHES = "batches.json"
"""Beside what a streaming run has written: the seconds that each micro-batch with input took."""

_PLAYS = "event_time timestamp, user long, score int"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(cores: int, more: Mapping[str, str] | None = None) -> SparkSession:
    """Starts a local Spark with as many shuffle partitions as cores and its state in RocksDB; `more` settings win."""
    settings = {
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Plays of a session become one row before they are shuffled.
        "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition": "true",
        # Python workers do not wait for acknowledgements of TCP, as in a Spark that beamlike starts.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.memory": "4g",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("native")
    for name, value in {**settings, **(more or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read(spark: SparkSession, folder: Path, streaming: bool) -> DataFrame:
    """Reads the plays of one source; as a stream, one file per micro-batch, with a watermark."""
    if not streaming:
        return spark.read.schema(_PLAYS).parquet(str(folder))
    plays = spark.readStream.schema(_PLAYS).option("maxFilesPerTrigger", 1).parquet(str(folder))
    return plays.withWatermark("event_time", "5 seconds")


def session_lengths(plays: DataFrame) -> DataFrame:
    """Returns sessions: their windows and lengths in seconds."""
    window = F.session_window("event_time", "60 seconds")
    ends = (F.col("session_window.end").cast("double"), F.col("session_window.start").cast("double"))
    # A session window needs an aggregate of its own, although its length is all that is asked for.
    sessions = plays.groupBy(window, "user").agg(F.count("*").alias("plays"))
    return sessions.select((ends[0] - ends[1]).alias("length"), "session_window")


def averages(spark: SparkSession, data: Path, streaming: bool = True) -> DataFrame:
    """Returns mean session length (seconds) and number of sessions of both sources in windows of two minutes."""
    mobile, console = (session_lengths(read(spark, data / name, streaming)) for name in ("mobile", "console"))
    windows = mobile.union(console).groupBy(F.window(F.window_time("session_window"), "2 minutes"))
    means = windows.agg(F.avg("length").alias("mean"), F.count("*").alias("sessions"))
    ends = F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")
    return means.select(*ends, "mean", "sessions")


def run(data: Path, out: Path, cores: int) -> None:
    """Runs the job over all files of `data`; writes its result below `out`, a file per micro-batch, and the seconds."""
    out.mkdir(parents=True, exist_ok=True)

    def keep(frame: DataFrame, batch: int) -> None:
        rows: pd.DataFrame = frame.toPandas()
        rows.to_parquet(out / f"batch-{batch:04d}.parquet")

    spark = session(cores)
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            averages(spark, data)
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = [json.loads(each.json) for each in query.recentProgress]
        seconds = [each["durationMs"]["triggerExecution"] / 1e3 for each in progress if each["numInputRows"]]
        (out / BATCHES).write_text(json.dumps(seconds))
        spark.stop()


def run_batch(data: Path, out: Path, cores: int) -> None:
    """Runs the same job over all files at once, as a batch job."""
    out.mkdir(parents=True, exist_ok=True)
    spark = session(cores)
    rows: pd.DataFrame = averages(spark, data, streaming=False).toPandas()
    rows.to_parquet(out / "averages.parquet")
    spark.stop()


@click.command()
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--cores", default=2, show_default=True, type=click.IntRange(1))
@click.option("--batch", is_flag=True, help="Run one batch job instead of a stream.")
def main(data: Path, out: Path, cores: int, batch: bool) -> None:
    """Run the job over the plays below the folder DATA and write its averages below the folder OUT."""
    (run_batch if batch else run)(data, out, cores)


if __name__ == "__main__":
    main()
