"""The long trials: `python -m tests.faults` kills a job on Spark, and executors of a small cluster, again and again."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

from tests.faults.trials import CLUSTER, Life, executors, lives, survive


@click.command()
@click.option("--kills", default=30, show_default=True, type=click.IntRange(0), help="Of the whole job.")
@click.option(
    "--workers", default=1, show_default=True, type=click.IntRange(0), help="Python workers before each."
)
@click.option(
    "--executors", "lost", default=8, show_default=True, type=click.IntRange(0), help="Executors killed."
)
@click.option("--seed", default=1, show_default=True, type=int, help="Where and when.")
def main(kills: int, workers: int, lost: int, seed: int) -> None:
    """Prints what was killed; status 1, with the differences, if a row is lost, doubled or another."""
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    if kills:
        _survive(folder / "alone", lives(seed, kills, workers), files=kills + 5, seed=seed)
    if lost:
        planned = [executors(seed, lost)]
        _survive(folder / "cluster", planned, files=lost + 3, seed=seed, master=CLUSTER)
    shutil.rmtree(folder)


def _survive(folder: Path, planned: list[Life], **choices: object) -> None:
    started = time.monotonic()
    killed: Counter[str] = Counter()
    try:
        for number, tripped in enumerate(survive(folder, planned, **choices), start=1):
            killed.update("all" if wire.victim == "later" else wire.victim for wire in tripped)
            said = ", ".join(f"{wire.victim} at {wire.place} of batch {wire.batch}" for wire in tripped)
            click.echo(f"{number:3d}  {time.monotonic() - started:6.1f} s  {said}")
    except AssertionError as error:
        click.echo(error)
        click.echo(f"its input, checkpoint, sinks and log are left in {folder}")
        sys.exit(1)
    total = ", ".join(f"{count} x {victim}" for victim, count in sorted(killed.items()))
    click.echo(f"killed in {time.monotonic() - started:.0f} s: {total}; every row is there, once")


if __name__ == "__main__":
    main()
