"""The flagship job written by hand in native Structured Streaming, with what Spark itself offers for it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(cores: int) -> SparkSession:
    """A local Spark with as many shuffle partitions as cores and its state in RocksDB."""
    settings = {
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("native")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def session_lengths(spark: SparkSession, folder: Path) -> DataFrame:
    """Sessions of one source: their windows and lengths in seconds, one file per micro-batch."""
    plays = (
        spark.readStream.schema("event_time timestamp, user long, score int")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
        .withWatermark("event_time", "5 seconds")
    )
    window = F.session_window("event_time", "60 seconds")
    ends = (F.col("session_window.end").cast("double"), F.col("session_window.start").cast("double"))
    # A session window needs an aggregate of its own, although its length is all that is asked for.
    sessions = plays.groupBy(window, "user").agg(F.count("*").alias("plays"))
    return sessions.select((ends[0] - ends[1]).alias("length"), "session_window")


def averages(spark: SparkSession, data: Path) -> DataFrame:
    """Mean session length (seconds) and number of sessions of both sources in windows of two minutes."""
    both = session_lengths(spark, data / "mobile").union(session_lengths(spark, data / "console"))
    windows = both.groupBy(F.window(F.window_time("session_window"), "2 minutes"))
    means = windows.agg(F.avg("length").alias("mean"), F.count("*").alias("sessions"))
    ends = F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")
    return means.select(*ends, "mean", "sessions")


def run(data: Path, out: Path, cores: int) -> None:
    """Run the job over all files of `data` and write its result below `out`, a file per micro-batch."""
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
        spark.stop()


@click.command()
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--cores", default=2, show_default=True, type=click.IntRange(1))
def main(data: Path, out: Path, cores: int) -> None:
    """Run the job over the plays below the folder DATA and write its averages below the folder OUT."""
    run(data, out, cores)


if __name__ == "__main__":
    main()
