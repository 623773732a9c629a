"""Runs a query of Nexmark over a folder of events, and writes its answer as Parquet.

python -m benchmarks.nexmark --query 5 --data build/nexmark --out build/nexmark-q5 --runner spark
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

import beamlike as bl
from benchmarks.nexmark.pipeline import pipeline
from benchmarks.nexmark.queries import QUERIES
from benchmarks.peers import turns as measured

_FOLDER = click.Path(file_okay=False, path_type=Path)


def run(
    job: bl.Pipeline,
    runner: str,
    *,
    cores: int | None = None,
    shards: int | None = None,
    rows: int | None = None,
) -> object:
    """Runs it to the end of its input."""
    if runner == "local":
        return job.run(bl.LocalRunner() if rows is None else bl.LocalRunner(chunk_rows=rows))
    with tempfile.TemporaryDirectory() as checkpoint:
        master = f"local[{cores or '*'}]"
        return job.run(
            bl.SparkRunner(checkpoint=checkpoint, drain=True, master=master, shards=shards or cores)
        )


@click.command(context_settings={"show_default": True})
@click.option("--query", required=True, type=click.IntRange(min(QUERIES), max(QUERIES)))
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--turns", is_flag=True, help="Once for each folder of a line of standard input, not of DATA.")
@click.option("--out", type=_FOLDER, help="A folder, new or empty; without it rows are dropped.")
@click.option("--runner", default="local", type=click.Choice(["local", "spark"]))
@click.option(
    "--out-of-orderness",
    help="Greatest age of an event behind one before it; by default measured in the files.",
)
@click.option(
    "--files-per-batch", type=click.IntRange(1), help="Files of each kind; by default as many as fit."
)
@click.option("--cores", type=click.IntRange(1), help="Cores of Spark; by default all.")
@click.option("--shards", type=click.IntRange(1), help="On Spark; by default as many as cores.")
@click.option("--chunk-rows", type=click.IntRange(1), help="Rows of each kind in a batch in process.")
def main(
    query: int,
    data: Path | None,
    turns: bool,
    out: Path | None,
    runner: str,
    out_of_orderness: str | None,
    files_per_batch: int | None,
    cores: int | None,
    shards: int | None,
    chunk_rows: int | None,
) -> None:
    """Run a query over the events below DATA and write its rows below OUT."""
    if turns == (data is not None):
        raise click.UsageError("give either --data or --turns")
    for folder in measured.turns() if data is None else [data]:
        job = pipeline(query, folder, out, out_of_orderness=out_of_orderness, files_per_batch=files_per_batch)
        run(job, runner, cores=cores, shards=shards, rows=chunk_rows)


if __name__ == "__main__":
    main()
