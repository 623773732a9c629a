"""The job in native Structured Streaming.

python -m benchmarks.latency.native SERVERS INPUT OUTPUT CHECKPOINT
"""

from __future__ import annotations

import os

import click
from pyspark.sql import functions as F

from benchmarks.native import session
from tests.connectors.jars import jars

_TRIGGER = "0 seconds"  # the next batch follows at once


@click.command()
@click.argument("servers")
@click.argument("source")
@click.argument("target")
@click.argument("checkpoint")
def main(servers: str, source: str, target: str, checkpoint: str) -> None:
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
    counts = elements.groupBy(F.window("at", "1 second"), "key").agg(F.count("*").alias("n"))
    panes = counts.select(
        F.to_json(F.struct(F.unix_millis("window.end").alias("window_end"), "key", "n")).alias("value")
    )
    writer = panes.writeStream.format("kafka").options(**kafka, topic=target, checkpointLocation=checkpoint)
    writer.outputMode("append").trigger(processingTime=_TRIGGER).start().awaitTermination()


if __name__ == "__main__":
    main()
