"""The gain of a second core in process: a pipeline pinned to one core and on all of them, in turns.

`python -m benchmarks.cores` runs the flagship and a pipeline of several stages over the same plays, each run in a
process of its own, whose start does not count. The rows must be the same, in the same order.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import click
import pyarrow as pa
import pyarrow.parquet as pq

import beamlike as bl
from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.machine import machine
from benchmarks.section import Section
from examples import generate
from examples.session_lengths import SCHEMA, pipeline, session_lengths

_BATCHES = 10


@attrs.frozen
class Run:
    """The seconds of a run, and of CPU time."""

    wall: float
    cpu: float


def flagship(data: Path, out: Path) -> bl.Pipeline:
    """Declares two sources, a stage for each, and a stage that reads both."""
    return pipeline(data, out, bl.END_OF_WINDOW)


def stages(data: Path, out: Path) -> bl.Pipeline:
    """Declares a pipeline of one source and four stages side by side."""
    p = bl.Pipeline("stages")
    plays = p.read(
        "plays",
        bl.Parquet(data / "mobile", SCHEMA, max_files_per_trigger=1),
        timestamp="event_time",
        watermark=bl.BoundedOutOfOrderness("5s"),
    )
    minutes = plays.window_into(bl.FixedWindows("1m"))
    results = {
        "sessions": session_lengths(plays, "users", bl.END_OF_WINDOW),
        "users": minutes.group_by("user").aggregate(plays=bl.count(), best=bl.max("score")),
        "scores": minutes.group_by("score").aggregate(plays=bl.count(), last=bl.last("user")),
        "all": plays.window_into(bl.SlidingWindows("4m", "1m"))
        .group_by("user")
        .aggregate(sum=bl.sum("score")),
    }
    for name, result in results.items():
        result.write(name, bl.Parquet(out / name))
    return p


JOBS: dict[str, Callable[[Path, Path], bl.Pipeline]] = {"flagship": flagship, "stages": stages}


def measure(job: str, data: Path, out: Path, cores: frozenset[int]) -> Run:
    """Measures one run on these cores."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.cores", "--one", job, str(data), str(out)]
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    finally:
        os.sched_setaffinity(0, before)
    return Run(*map(float, told.split()))


def rows(out: Path) -> list[pa.Table]:
    """Returns all rows, file by file."""
    return [pq.read_table(file) for file in sorted(out.rglob("*.parquet"))]


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Returns the table of the page, in seconds."""
    names = ("", "one core", "all cores", "times as fast", "CPU on one", "CPU on all")
    rows = (
        (
            f"{each['job']}, {each['events'] / 1e6:g} million plays",
            f"{each['one']:.2f}",
            f"{each['all']:.2f}",
            f"{each['one'] / each['all']:.2f}",
            f"{each['cpu_one']:.2f}",
            f"{each['cpu_all']:.2f}",
        )
        for each in sorted(figures, key=lambda each: each["events"])
    )
    return readme.table(names, rows)


SECTION = Section("cores", ("job", "events"), lines)


def _run(job: str, data: Path, out: Path) -> None:
    declared = JOBS[job](data, out)
    wall, cpu = time.perf_counter(), time.process_time()
    declared.run()
    print(time.perf_counter() - wall, time.process_time() - cpu)


@click.command()
@click.option(
    "--events",
    "sizes",
    default=[5_000_000, 20_000_000],
    multiple=True,
    show_default=True,
    type=click.IntRange(1),
    help="Plays; may be given several times.",
)
@click.option(
    "--rounds", default=5, show_default=True, type=click.IntRange(1), help="Rounds; the best counts."
)
@click.option("--work", default=Path("build/bench"), type=click.Path(file_okay=False, path_type=Path))
@click.option("--one", nargs=3, hidden=True)
def main(sizes: tuple[int, ...], rounds: int, work: Path, one: tuple[str, str, str] | None) -> None:
    """Prints a table."""
    if one is not None:
        _run(one[0], Path(one[1]), Path(one[2]))
        return
    for events in sizes:
        _compare(events, rounds, work)
    SECTION.show()
    click.echo("\n".join(SECTION.text()))


def _compare(events: int, rounds: int, work: Path) -> None:
    """Measures both jobs with so many plays. Raises `ClickException` if the rows depend on the cores."""
    data, every = work / f"plays-{events}", frozenset(os.sched_getaffinity(0))
    generate.write(data, generate.Plays(events, _BATCHES, ties=True))
    for job in JOBS:
        single, several = work / "one-core", work / "cores"
        turns = [
            (measure(job, data, single, frozenset([min(every)])), measure(job, data, several, every))
            for _ in range(rounds)
        ]
        if not all(one.equals(other) for one, other in zip(rows(single), rows(several), strict=True)):
            raise click.ClickException(f"{job}: the rows on one core and on several differ")
        one_core, cores = (min(runs, key=lambda run: run.wall) for runs in zip(*turns, strict=True))
        times = {"one": one_core.wall, "all": cores.wall, "cpu_one": one_core.cpu, "cpu_all": cores.cpu}
        SECTION.keep([{"job": job, "events": events, **times}], machine(None))


if __name__ == "__main__":
    main()
