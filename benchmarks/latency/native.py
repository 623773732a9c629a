"""The jobs in native Structured Streaming.

python -m benchmarks.latency.native SERVERS INPUT OUTPUT CHECKPOINT windows|flagship
"""

from __future__ import annotations

import os

import click
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.native import session
from tests.connectors.jars import jars

_TRIGGER = "0 seconds"  # the next batch follows at once


def windows(elements: DataFrame) -> tuple[DataFrame, list[str]]:
    """Returns counts by key and second, and their columns."""
    counted = elements.groupBy(F.window("at", "1 second"), "key").agg(F.count("*").alias("n"))
    return counted, ["key", "n"]


def flagship(elements: DataFrame) -> tuple[DataFrame, list[str]]:
    """Returns the number and mean length of sessions by second, and their columns."""
    sessions = elements.groupBy(F.session_window("at", "300 milliseconds"), "key").agg(
        F.count("*").alias("plays")
    )
    length = (F.unix_millis("session_window.end") - F.unix_millis("session_window.start")).alias("length")
    ended = sessions.select(F.window_time("session_window").alias("ended"), length)
    counted = ended.groupBy(F.window("ended", "1 second"))
    return counted.agg(F.count("*").alias("n"), F.avg("length").alias("length")), ["n", "length"]


@click.command()
@click.argument("servers")
@click.argument("source")
@click.argument("target")
@click.argument("checkpoint")
@click.argument("job")
def main(servers: str, source: str, target: str, checkpoint: str, job: str) -> None:
    """Runs until it is killed."""
    spark = session(2, {"spark.jars": ",".join(map(os.fspath, jars("spark-kafka")))})
    kafka = {"kafka.bootstrap.servers": servers}
    elements = (
        spark.readStream.format("kafka")
        .options(**kafka, subscribe=source, startingOffsets="latest")
        .load()
        .select(F.from_json(F.col("value").cast("string"), "key long, at long").alias("element"))
        .select("element.key", F.timestamp_millis("element.at").alias("at"))
        .withWatermark("at", "0 seconds")
    )
    counted, columns = (windows if job == "windows" else flagship)(elements)
    end = F.unix_millis("window.end").alias("window_end")
    panes = counted.select(F.to_json(F.struct(end, *columns)).alias("value"))
    writer = panes.writeStream.format("kafka").options(**kafka, topic=target, checkpointLocation=checkpoint)
    writer.outputMode("append").trigger(processingTime=_TRIGGER).start().awaitTermination()


if __name__ == "__main__":
    main()
