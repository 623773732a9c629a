"""Runs all queries over generated events on both runners, and compares each answer with that of another program.

python -m benchmarks.nexmark.verify --events 10_000_000
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import click

from benchmarks.nexmark.__main__ import run
from benchmarks.nexmark.answers import answer
from benchmarks.nexmark.check import difference, written
from benchmarks.nexmark.events import Nexmark
from benchmarks.nexmark.generate import Arrivals, write
from benchmarks.nexmark.pipeline import pipeline
from benchmarks.nexmark.queries import QUERIES

_BATCH = 1_000_000
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(context_settings={"show_default": True})
@click.option(
    "--events", default="10_000_000", callback=lambda *given: int(given[2]), help="How many in all."
)
@click.option("--seed", default=1)
@click.option("--work", default=Path("build/nexmark"), type=_FOLDER, help="For events and answers.")
@click.option("--runner", "runners", multiple=True, default=("local", "spark"))
def main(events: int, seed: int, work: Path, runners: tuple[str, ...]) -> None:
    """Check the answer of each query on each runner; fail if one is wrong."""
    arrivals = Arrivals(Nexmark(seed, lead=10), events, max(2, events // _BATCH), share=0.1, bound=500_000)
    data, out, wrong = write(work / f"verified-{events}-{seed}", arrivals), work / "answer", 0
    for query in QUERIES:
        expected = answer(query, data)
        for runner in runners:
            shutil.rmtree(out, ignore_errors=True)
            begun = time.monotonic()
            run(pipeline(query, data, out, files_per_batch=1), runner)
            seconds, told = time.monotonic() - begun, difference(query, written(out), expected)
            click.echo(f"query {query}, {runner}: {told or 'right'}, {seconds:.1f} s")
            wrong += told is not None
    shutil.rmtree(out, ignore_errors=True)
    if wrong:
        raise click.ClickException(f"{wrong} answers are wrong")


if __name__ == "__main__":
    main()
