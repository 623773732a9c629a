"""The long trials: a job is killed repeatedly, on Spark also executors of a cluster, and tasks are repeated."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import click
import pytest

from tests.faults.attempts import AS_IT_SHOULD_BE
from tests.faults.local_trials import deaths, survive_in_process
from tests.faults.trials import CLUSTER, Life, attempts, executors, is_death, lives, survive
from tests.support.databases import postgres

_NAMES = {"later": "all"}


@click.command()
@click.option(
    "--kills",
    default=30,
    show_default=True,
    type=click.IntRange(0),
    help="Runs that die, some with the whole job.",
)
@click.option(
    "--workers", default=1, show_default=True, type=click.IntRange(0), help="Python workers before each."
)
@click.option(
    "--executors", "lost", default=8, show_default=True, type=click.IntRange(0), help="Executors killed."
)
@click.option("--seed", default=1, show_default=True, type=int, help="Where and when.")
@click.option("--runner", type=click.Choice(["spark", "local"]), default="spark", show_default=True)
@click.option(
    "--state",
    type=click.Choice(["spark", "files"]),
    default="files",
    show_default=True,
    help="On Spark: where the run has its state.",
)
@click.option("--attempts/--no-attempts", "at_once", default=True, help="Of several at one task, one counts.")
def main(kills: int, workers: int, lost: int, seed: int, runner: str, state: str, *, at_once: bool) -> None:
    """Prints the kills; exits with status 1, and the differences, if a row is lost, doubled or changed.

    In process, the whole job is killed each time.
    """
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    if runner == "local":
        _survive_in_process(folder / "local", kills, seed)
        shutil.rmtree(folder)
        return
    if kills:
        _survive(folder / "alone", lives(seed, kills, workers), seed=seed, state=state)
    if lost:
        planned = [executors(seed, lost)]
        _survive(folder / "cluster", planned, seed=seed, master=CLUSTER, state=state)
    if at_once:
        _attempt(folder / "attempts", state)
    shutil.rmtree(folder)


def _attempt(folder: Path, state: str) -> None:
    with ExitStack() as stack:
        url = None
        with suppress(pytest.skip.Exception):  # no server can be started here
            url = stack.enter_context(postgres())
        found = attempts(folder, url, state)
    click.echo("\n".join(found))
    if any(AS_IT_SHOULD_BE not in line for line in found):
        click.echo(f"its checkpoint and sinks are left in {folder}")
        sys.exit(1)


def _survive_in_process(folder: Path, kills: int, seed: int) -> None:
    started = time.monotonic()
    planned = deaths(seed, kills)
    try:
        for number, death in enumerate(survive_in_process(folder, planned, seed=seed), start=1):
            click.echo(f"{number:3d}  {time.monotonic() - started:6.1f} s  {death}")
    except AssertionError as error:
        click.echo(error)
        click.echo(f"its input, checkpoint, sinks and log are left in {folder}")
        sys.exit(1)
    took, died = time.monotonic() - started, sum(death.count for death in planned)
    each = f", {took / died:.2f} s each" if died else ""
    click.echo(f"seed {seed}: {died} runs in process died in {took:.0f} s{each}; every row is there, once")


def _survive(folder: Path, planned: list[Life], *, seed: int, **choices: object) -> None:
    started = time.monotonic()
    killed: Counter[str] = Counter()
    deaths = 0
    try:
        for number, tripped in enumerate(survive(folder, planned, seed=seed, **choices), start=1):
            killed.update(_NAMES.get(wire.victim, wire.victim) for wire in tripped)
            deaths += sum(is_death(wire, planned[number - 1].tries) for wire in tripped)
            said = ", ".join(f"{wire.victim} at {wire.place} of batch {wire.batch}" for wire in tripped)
            click.echo(f"{number:3d}  {time.monotonic() - started:6.1f} s  {said}")
    except AssertionError as error:
        click.echo(error)
        click.echo(f"its input, checkpoint, sinks and log are left in {folder}")
        sys.exit(1)
    total = ", ".join(f"{count} x {victim}" for victim, count in sorted(killed.items()))
    took = time.monotonic() - started
    each = f", {took / deaths:.1f} s each" if deaths else ""
    click.echo(f"seed {seed}: {deaths} runs died in {took:.0f} s{each} ({total}); every row is there, once")


if __name__ == "__main__":
    main()
