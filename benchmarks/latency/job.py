"""The job in beamlike, on either runner.

python -m benchmarks.latency.job local|spark SERVERS INPUT OUTPUT CHECKPOINT
"""

from __future__ import annotations

import os
from datetime import datetime

import click

import beamlike as bl


def pipeline(servers: str, source: str, target: str) -> bl.Pipeline:
    """Counts by key and second."""
    p = bl.Pipeline("latency")
    elements = p.read(
        "elements",
        bl.Kafka(servers, source, value=bl.json({"key": int, "at": int}), start="latest"),
        timestamp="at",
        timestamp_unit="ms",
        watermark=bl.MonotonousTimestamps(),
    )
    counts = elements.window_into(bl.FixedWindows("1s")).group_by("key").aggregate(n=bl.count())
    counts.write(
        "panes", bl.KafkaSink(servers, target, value=bl.json({"window_end": datetime, "key": int, "n": int}))
    )
    return p


@click.command()
@click.argument("runner", type=click.Choice(["local", "spark"]))
@click.argument("servers")
@click.argument("source")
@click.argument("target")
@click.argument("checkpoint")
def main(runner: str, servers: str, source: str, target: str, checkpoint: str) -> None:
    """Runs until it is stopped."""
    p = pipeline(servers, source, target)
    if runner == "local":
        p.run(bl.LocalRunner(checkpoint=checkpoint, trigger="5 milliseconds"))
        return
    from tests.connectors.jars import jars

    config = {"spark.jars": ",".join(map(os.fspath, jars("spark-kafka")))}
    p.run(bl.SparkRunner(checkpoint, trigger="0 seconds", shards=2, master="local[2]", config=config))


if __name__ == "__main__":
    main()
