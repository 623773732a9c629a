"""The jobs in beamlike, on either runner.

python -m benchmarks.latency.job local|spark [--at-least-once] SERVERS INPUT OUTPUT CHECKPOINT windows|flagship
"""

from __future__ import annotations

import os
from datetime import datetime

import click
import narwhals as nw

import beamlike as bl


def windows(elements: bl.Collection) -> bl.Collection:
    """Counts elements by key and second."""
    return elements.window_into(bl.FixedWindows("1s")).group_by("key").aggregate(n=bl.count())


def flagship(elements: bl.Collection) -> bl.Collection:
    """Returns the sessions of each key, on two platforms, and their number and mean length by second."""
    lengths = [
        elements.filter(nw.col("key") % 2 == platform)
        .window_into(bl.Sessions("300ms"), timestamp_combiner=bl.END_OF_WINDOW)
        .group_by("key")
        .aggregate(length=bl.window_length())
        for platform in (0, 1)
    ]
    return (
        bl.flatten(*lengths)
        .window_into(bl.FixedWindows("1s"))
        .aggregate(n=bl.count(), length=bl.mean("length"))
    )


JOBS = {"windows": windows, "flagship": flagship}
COLUMNS: dict[str, dict[str, type]] = {
    "windows": {"window_end": datetime, "key": int, "n": int},
    "flagship": {"window_end": datetime, "n": int, "length": float},
}


def pipeline(servers: str, source: str, target: str, job: str, *, transactions: bool = True) -> bl.Pipeline:
    """Returns the pipeline of a job from a topic to another."""
    p = bl.Pipeline("latency")
    elements = p.read(
        "elements",
        bl.Kafka(servers, source, value=bl.json({"key": int, "at": int}), start="latest"),
        timestamp="at",
        timestamp_unit="ms",
        watermark=bl.MonotonousTimestamps(),
    )
    sink = bl.KafkaSink(servers, target, value=bl.json(COLUMNS[job]), transactions=transactions)
    JOBS[job](elements).write("panes", sink)
    return p


def run_in_process(p: bl.Pipeline, checkpoint: str) -> None:
    """Runs until it is stopped."""
    p.run(bl.LocalRunner(checkpoint=checkpoint, trigger="5 milliseconds"))


@click.command()
@click.argument("runner", type=click.Choice(["local", "spark"]))
@click.argument("servers")
@click.argument("source")
@click.argument("target")
@click.argument("checkpoint")
@click.argument("job")
@click.option("--at-least-once", is_flag=True, help="Without transactions: panes may arrive twice.")
def main(
    runner: str, servers: str, source: str, target: str, checkpoint: str, job: str, at_least_once: bool
) -> None:
    """Runs until it is stopped."""
    p = pipeline(servers, source, target, job, transactions=not at_least_once)
    if runner == "local":
        run_in_process(p, checkpoint)
        return
    from tests.connectors.jars import jars

    config = {"spark.jars": ",".join(map(os.fspath, jars("spark-kafka")))}
    p.run(bl.SparkRunner(checkpoint, trigger="0 seconds", shards=2, master="local[2]", config=config))


if __name__ == "__main__":
    main()
