"""A pipeline with a splittable function that waits: `python -m tests.beamlike.beam.planned.counting FOLDER`.

The function counts, and asks for a delay after each number. Its watermark is the next number. Sums in windows and all
numbers are written to files that are named by them, and each number that is claimed to the file `claimed`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.utils.timestamp import Duration, Timestamp

import beamlike as bl
from beamlike.beam import BeamlikeRunner
from tests.beamlike.beam.killed import Counting
from tests.beamlike.beam.planned.readings import Write, written
from tests.faults.processes import descendants, kill

NUMBERS = 7
"""The number of numbers."""
WIDTH = 3
"""The width of windows (s)."""


class Slowly(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the numbers below an element, one a bundle, each at its time (s), and waits after each of them.

    A process is killed before it emits a number for which there is a file `number N` in the folder `traps`: that whose
    id the file contains, or this one.
    """

    def __init__(self, folder: str, delay: float) -> None:
        self.folder, self.delay = folder, delay

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator, unused-ignore]
    def process(
        self,
        element: int,
        tracker: Any = beam.DoFn.RestrictionParam(Counting()),
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider()),
    ) -> Iterator[Any]:
        number = tracker.current_restriction().start
        if not tracker.try_claim(number):
            return
        with open(f"{self.folder}/claimed", "a") as claimed:
            claimed.write(f"{number}\n")
        trap = Path(self.folder, "traps", f"number {number}")
        if trap.exists():
            process = int(trap.read_text() or os.getpid())
            trap.unlink()
            kill([process, *descendants(process)])
        yield beam.window.TimestampedValue(number, number)
        estimator.set_watermark(Timestamp(number + 1))
        tracker.defer_remainder(Duration(self.delay))


def build(pipeline: Any, folder: Path, delay: float = 0.2) -> Any:
    """Declares the transforms. Returns the pipeline."""
    numbers = pipeline | beam.Create([NUMBERS]) | "count" >> beam.ParDo(Slowly(str(folder), delay))
    numbers | "write numbers" >> beam.ParDo(Write(str(folder), "number"))
    windows = numbers | beam.WindowInto(beam.window.FixedWindows(WIDTH))
    sums = windows | "sums of numbers" >> beam.CombineGlobally(sum).without_defaults()
    sums | "write sums of numbers" >> beam.ParDo(Write(str(folder), "sum"))
    return pipeline


def run(folder: Path, runner: Any, delay: float = 0.2) -> list[str]:
    """Runs the pipeline in a folder. Returns all that it has written there, in runs so far."""
    for name in ("out", "traps"):
        folder.joinpath(name).mkdir(parents=True, exist_ok=True)
    with beam.Pipeline(runner=runner) as pipeline:
        build(pipeline, folder, delay)
    return written(folder)


def expected() -> list[str]:
    """Returns the expected output of the pipeline."""
    sums = [
        f"sum {sum(range(first, min(first + WIDTH, NUMBERS)))} [{first:.1f}, {first + WIDTH:.1f})"
        for first in range(0, NUMBERS, WIDTH)
    ]
    return sorted([*(f"number {number} GlobalWindow" for number in range(NUMBERS)), *sums])


def claimed(folder: Path) -> list[int]:
    """Returns the numbers that were claimed in all runs, in order."""
    return [int(line) for line in folder.joinpath("claimed").read_text().splitlines()]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    local = bl.LocalRunner(checkpoint=str(place / "checkpoint"), drain=True, quiet=True)
    run(
        place,
        BeamlikeRunner(spark=local) if sys.argv[2:] != ["own"] else BeamlikeRunner(checkpoint=place / "own"),
    )
