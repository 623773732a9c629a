"""The flagship pipeline on one of this project's runners, as a process of its own for the benchmark."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

import click

import beamlike as bl
from beamlike.records.model import BatchRecord
from benchmarks.native import BATCHES
from examples.session_lengths import pipeline


def run(runner: str, data: Path, out: Path, cores: int, shards: int | None = None) -> None:
    """Runs END_OF_WINDOW over all plays of `data`; on Spark, a file of each source is a micro-batch.

    The seconds of micro-batches are written beside the result. By default there are as many shards as cores.
    """
    job = pipeline(data, out, bl.END_OF_WINDOW)
    if runner == "local":
        job.run()
        return
    with tempfile.TemporaryDirectory() as checkpoint:
        spark = bl.SparkRunner(
            checkpoint=checkpoint,
            trigger="available_now",
            drain=True,
            master=f"local[{cores}]",
            shards=shards or cores,
        )
        run = spark.start(job.plan())
        (query,) = run.session.streams.active
        run.wait()
        came = with_input(run.batches)
        seconds = [
            each["durationMs"]["triggerExecution"] / 1e3
            for each in (json.loads(progress.json) for progress in query.recentProgress)
            if each["batchId"] in came
        ]
        (out / BATCHES).write_text(json.dumps(seconds))


def with_input(batches: Iterable[BatchRecord]) -> set[int]:
    """Returns the numbers of the batches in which elements arrived."""
    return {record.batch for record in batches if any(source.elements for source in record.sources.values())}


@click.command()
@click.argument("runner", type=click.Choice(["local", "spark"]))
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--cores", default=2, show_default=True, type=click.IntRange(1))
@click.option("--shards", type=click.IntRange(1), help="On Spark; default: the cores.")
def main(runner: str, data: Path, out: Path, cores: int, shards: int | None) -> None:
    """Run the job over the plays below the folder DATA and write its averages below the folder OUT."""
    run(runner, data, out, cores, shards)


if __name__ == "__main__":
    main()
