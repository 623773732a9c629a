"""The flagship pipeline on one of this project's runners, as a process of its own for the benchmark."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

import beamlike as bl
from examples.session_lengths import pipeline


def run(runner: str, data: Path, out: Path, cores: int) -> None:
    """Run END_OF_WINDOW over all plays of `data`; on Spark one file of each source is a micro-batch."""
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
            shards=cores,
        )
        job.run(runner=spark)


@click.command()
@click.argument("runner", type=click.Choice(["local", "spark"]))
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--cores", default=2, show_default=True, type=click.IntRange(1))
def main(runner: str, data: Path, out: Path, cores: int) -> None:
    """Run the job over the plays below the folder DATA and write its averages below the folder OUT."""
    run(runner, data, out, cores)


if __name__ == "__main__":
    main()
