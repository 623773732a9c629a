"""Beam pipelines on `BeamlikeRunner` beside Beam's own runner, and one of the jobs in beamlike's interface.

    python -m benchmarks.beam_runner [--elements 100_000] [--turns 3]

It needs apache_beam. Each run is a process of its own, and the runs of a job are in turns. The result is the median of
the CPU time of each run, without the imports.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.userstate import CombiningValueStateSpec

import beamlike as bl
from beamlike.beam import BeamlikeRunner
from beamlike.beam.columns import InColumns

USERS: Final = 1_000
START: Final = 1_767_225_600_000  # ms
RUNNERS: Final = {"BeamlikeRunner": BeamlikeRunner, "FnApiRunner": FnApiRunner}
OWN: Final = "beamlike"


class Total(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Adds each score to the total of its user."""

    TOTAL = CombiningValueStateSpec("total", sum)

    def process(self, element: Any, total: Any = beam.DoFn.StateParam(TOTAL)) -> Iterator[Any]:  # noqa: B008
        total.add(element[1])
        yield element[0], total.read()


def pair(line: str) -> Any:
    """Returns the user and the score of a line, with its time."""
    row = json.loads(line)
    return beam.window.TimestampedValue((row["user"], row["score"]), row["at"] / 1000)


def grouping(pairs: Any) -> Any:
    """Returns sums for each user and minute."""
    return pairs | beam.WindowInto(beam.window.FixedWindows(60)) | beam.CombinePerKey(sum)


def sessions(pairs: Any) -> Any:
    """Returns sums for each session of a user."""
    return pairs | beam.WindowInto(beam.window.Sessions(15)) | beam.CombinePerKey(sum)


def minutes(scores: bl.Collection) -> bl.Collection:
    """Sums for each user and minute, in beamlike's interface."""
    return scores.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(score=bl.sum("score"))


def in_columns(pairs: Any) -> Any:
    """Applies the job `grouping` with its grouping in columns."""
    return pairs | InColumns(minutes, {"user": str, "score": int})


def state(pairs: Any) -> Any:
    """Returns the total of a user after each score."""
    return pairs | beam.ParDo(Total())


def side_input(pairs: Any) -> Any:
    """Returns the number of each user, in a side input."""
    users = pairs.pipeline | "users" >> beam.Create([(f"user{n}", n) for n in range(USERS)])
    return pairs | "find" >> beam.Map(lambda row, users: (users[row[0]], row[1]), beam.pvalue.AsDict(users))


JOBS: Final[dict[str, Callable[[Any], Any]]] = {
    "grouping": grouping,
    "in columns": in_columns,
    "sessions": sessions,
    "state": state,
    "side input": side_input,
}


def own_grouping(path: str) -> None:
    """Runs the job `grouping` in beamlike's interface."""
    p = bl.Pipeline("grouping")
    source = bl.JSONLines(path, schema={"user": str, "score": int, "at": int})
    end = bl.BoundedOutOfOrderness("1m")
    scores = p.read("scores", source, timestamp="at", timestamp_unit="ms", watermark=end)
    minutes(scores).write("out", bl.Memory())
    p.run()


def run(job: str, runner: str, path: str) -> float:
    """Runs a job, and returns its CPU time (s)."""
    began = time.process_time()
    if runner == OWN:
        own_grouping(path)
    else:
        with beam.Pipeline(runner=RUNNERS[runner]()) as p:
            JOBS[job](p | beam.io.ReadFromText(path) | beam.Map(pair))
    return time.process_time() - began


def main() -> None:
    """Measures all jobs in turns, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--run", nargs=3, metavar=("JOB", "RUNNER", "PATH"))
    given = parser.parse_args()
    if given.run:
        print(run(*given.run))
        return
    with TemporaryDirectory() as folder:
        path = Path(folder, "scores.jsonl")
        rows = (
            {"user": f"user{n * 7 % USERS}", "score": n % 10, "at": START + n * 10}
            for n in range(given.elements)
        )
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        for job in JOBS:
            runners = ["BeamlikeRunner"] if job == "in columns" else [*RUNNERS]
            runners += [OWN] if job == "grouping" else []
            times = {runner: list[float]() for runner in runners}
            for runner in runners * given.turns:
                command = [sys.executable, "-m", "benchmarks.beam_runner", "--run", job, runner, str(path)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                times[runner].append(float(done.stdout.splitlines()[-1]))
            medians = {runner: statistics.median(each) for runner, each in times.items()}
            print(job, ", ".join(f"{runner} {seconds:.2f} s" for runner, seconds in medians.items()))


if __name__ == "__main__":
    main()
