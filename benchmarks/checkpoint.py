"""The cost of a checkpoint in process: milliseconds of a batch with and without one, by the number of open windows.

`python -m benchmarks.checkpoint` fills the state with windows of a day, each of a user of its own, and then runs
batches of a thousand plays of random users, with and without a checkpoint in turns.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import click
import numpy as np
import polars as pl

import beamlike as bl
from beamlike.records.model import BatchRecord
from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.machine import machine
from benchmarks.section import Section

BATCH = 1_000
_SKIPPED = 3  # batches after the filling, which are not counted
_DAY = 86_400


@attrs.frozen
class Cost:
    """The batches of one run: median milliseconds, and with a checkpoint the median of kilobytes that it wrote."""

    open: int
    checkpoint: bool
    milliseconds: float
    kilobytes: float | None


def measure(windows: int, batches: int, *, checkpoint: bool) -> Cost:
    """Measures one run."""
    ticks: list[float] = []
    written: list[int] = []

    def tick(record: BatchRecord) -> None:
        ticks.append(time.perf_counter())
        written.append(_written())

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "plays")
        _write(data, windows, batches)
        options = {"checkpoint": f"{folder}/checkpoint"} if checkpoint else {}
        _pipeline(data).run(bl.LocalRunner(on_batch=tick, **options))
    # Only batches with plays: a run without a checkpoint has one more, which closes all windows.
    last = batches + _SKIPPED + 1
    times = np.diff(ticks[:last])[_SKIPPED:]
    sizes = np.diff(written[:last])[_SKIPPED:]
    kilobytes = float(statistics.median(sizes)) / 1e3 if checkpoint else None
    return Cost(windows, checkpoint, 1e3 * float(statistics.median(times)), kilobytes)


def _written() -> int:
    """Returns the bytes that this process has written, also to pipes and terminals."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar:")).split()[1])


def _write(data: Path, windows: int, batches: int) -> None:
    """Writes a file that opens a window for each user, then one of random users for each batch."""
    data.mkdir()
    rng = np.random.default_rng(1)
    for number in range(batches + _SKIPPED + 1):
        users = np.arange(windows) if number == 0 else rng.integers(0, windows, BATCH)
        at = np.sort(rng.integers(0, _DAY // 2, len(users)))
        path = data / f"{number:04d}.parquet"
        pl.DataFrame({"user": users, "at": at}).write_parquet(path)
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def _pipeline(data: Path) -> bl.Pipeline:
    p = bl.Pipeline("plays")
    source = bl.Parquet(data, max_files_per_trigger=1)
    watermark = bl.BoundedOutOfOrderness("1d")
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    counted = plays.window_into(bl.FixedWindows("1d")).group_by("user").aggregate(plays=bl.count())
    counted.write("out", bl.Callback(lambda frame, batch: None))
    return p


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Returns the table of the page."""
    names = ("open windows", "without, ms", "with a checkpoint, ms", "written, kB")
    rows = (
        (f"{each['open']:,}", f"{each['without']:.1f}", f"{each['with']:.1f}", f"{each['kilobytes']:.0f}")
        for each in figures
    )
    return readme.table(names, rows)


SECTION = Section("checkpoint", ("open",), lines)


@click.command()
@click.option("--windows", multiple=True, type=click.IntRange(1), default=[1_000, 100_000, 1_000_000])
@click.option("--batches", default=100, show_default=True, type=click.IntRange(1))
@click.option(
    "--rounds", default=3, show_default=True, type=click.IntRange(1), help="Rounds; the best counts."
)
def main(windows: Sequence[int], batches: int, rounds: int) -> None:
    """Prints a table."""
    measured = list[Figures]()
    for count in windows:
        runs = [
            measure(count, batches, checkpoint=checkpoint)
            for _ in range(rounds)
            for checkpoint in (False, True)
        ]
        without, kept = (
            min((run for run in runs if run.checkpoint is checkpoint), key=lambda run: run.milliseconds)
            for checkpoint in (False, True)
        )
        times = {"without": without.milliseconds, "with": kept.milliseconds}
        measured.append({"open": count, **times, "kilobytes": kept.kilobytes})
    SECTION.keep(measured, machine(None), whole=True)
    SECTION.show()
    click.echo("\n".join(SECTION.text()))


if __name__ == "__main__":
    main()
