"""A pipeline on Spark that is killed: `python -m tests.beamlike.beam.planned.killed_on_spark FOLDER`.

It has sources, windows, state, timers and a side input, and a splittable function that waits. If there is a trap for a
value or a number, this process is killed from the Python worker that processes it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import apache_beam as beam

import beamlike as bl
from beamlike.beam import BeamlikeRunner
from tests.beamlike.beam.planned import counting, readings


def build(pipeline: Any, folder: Path) -> Any:
    """Declares the transforms. Returns the pipeline."""
    readings.build(pipeline, str(folder))
    return counting.build(pipeline, folder)


def expected() -> list[str]:
    """Returns the expected output of the pipeline."""
    return sorted([*readings.expected(), *counting.expected()])


def places() -> list[str]:
    """Returns the values and numbers at which the process can be killed, in the order of their batches."""
    events = [[str(value) for _, _, value in bundle] for bundle in readings.events()]
    numbers = [f"number {number}" for number in range(counting.NUMBERS)]
    return [
        place for number, values in zip(numbers, [*events, []], strict=True) for place in (*values, number)
    ]


def main(folder: Path) -> None:
    for trap in folder.joinpath("traps").iterdir():
        trap.write_text(str(os.getpid()))
    runner = bl.SparkRunner(
        checkpoint=str(folder / "checkpoint"), drain=True, master="local[2]", shards=2, quiet=True
    )
    with beam.Pipeline(runner=BeamlikeRunner(spark=runner)) as pipeline:
        build(pipeline, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
