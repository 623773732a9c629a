"""A pipeline that fails or is killed at chosen elements: `python -m tests.beamlike.beam.planned.readings FOLDER`.

It has windows, state, timers, and side inputs, and writes each result to a file that is named by it. So a result that
is written again changes nothing, and one that is wrong or lost is found.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer

import beamlike as bl
from beamlike.beam import BeamlikeRunner, Read
from tests.beamlike.beam.pipelines import pairs, timed
from tests.faults.processes import descendants, kill

EVENTS = 6
"""The number of bundles of elements."""


class Trap(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Raises an error, or kills a process tree, when it processes a value for which there is a file with this name.

    The file contains the id of the process, or nothing for an error. It is removed first.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def process(self, element: Any) -> Iterator[Any]:
        with open(f"{self.folder}/processed", "a") as processed:
            processed.write(f"{element[1]}\n")
        trap = Path(self.folder, "traps", str(element[1]))
        if trap.exists():
            process = trap.read_text()
            trap.unlink()
            if not process:
                raise RuntimeError("trapped")
            kill([int(process), *descendants(int(process))])
        yield element


class Running(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the sum of the values of a key so far with each value, and their number when the watermark reaches 60."""

    VALUES = BagStateSpec("values", beam.coders.VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        element: Any,
        names: Any,
        values: Any = beam.DoFn.StateParam(VALUES),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> Iterator[Any]:
        key, value = element
        values.add(value)
        end.set(60)
        yield names[key], sum(values.read())

    @on_timer(END)
    def finish(
        self, key: Any = beam.DoFn.KeyParam, values: Any = beam.DoFn.StateParam(VALUES)
    ) -> Iterator[Any]:
        yield key, len(list(values.read()))


class Write(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Writes each element to a file that is named by it."""

    def __init__(self, folder: str, name: str) -> None:
        self.folder, self.name = folder, name

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> None:
        text = f"{self.name} {element} {window}"
        Path(self.folder, "out", sha256(text.encode()).hexdigest()).write_text(text)


def events() -> list[list[tuple[int, str, int]]]:
    """Returns the elements of each bundle: time, key and value."""
    return [
        [(number * 10, key, number * 10 + place) for place, key in enumerate("ab")]
        for number in range(EVENTS)
    ]


def stream() -> Any:
    """Returns the events of a TestStream."""
    found = pairs()
    for number, bundle in enumerate(events()):
        found = found.add_elements([timed(*each) for each in bundle]).advance_watermark_to(number * 10 - 5)
    return found.advance_watermark_to_infinity()


def rows(folder: str) -> Any:
    """Returns a source of the engine with the same elements, a file for each bundle, which is a batch."""
    for number, bundle in enumerate(events()):
        lines = [json.dumps({"at": at, "room": room, "value": value}) for at, room, value in bundle]
        file = Path(folder, "in", f"{number:03}.jsonl")
        file.parent.mkdir(exist_ok=True)
        if not file.exists():
            file.write_text("\n".join(lines))
    columns = {"at": int, "room": str, "value": int}
    source = bl.JSONLines(f"{folder}/in/*.jsonl", schema=columns, max_files_per_trigger=1)
    late = bl.BoundedOutOfOrderness("5s")
    return Read(source, timestamp="at", timestamp_unit="s", watermark=late)


def build(pipeline: Any, folder: str, *, streamed: bool = False) -> Any:
    """Declares the transforms. Returns the pipeline."""
    names = pipeline | "names" >> beam.Create([("a", "kitchen"), ("b", "cellar")])
    found = pipeline | "readings" >> (stream() if streamed else rows(folder))
    if not streamed:
        found = found | "pair" >> beam.Map(lambda row: (row["room"], row["value"]))
    readings = found | "trap" >> beam.ParDo(Trap(folder)).with_output_types(tuple[str, int])
    running = readings | "running" >> beam.ParDo(Running(), beam.pvalue.AsDict(names))
    running | "write running" >> beam.ParDo(Write(folder, "running"))
    minutes = readings | "minutes" >> beam.WindowInto(beam.window.FixedWindows(20))
    sums = (
        minutes
        | "sums" >> beam.GroupByKey()
        | "sort" >> beam.MapTuple(lambda key, values: (key, sorted(values)))
    )
    sums | "write sums" >> beam.ParDo(Write(folder, "sums"))
    beside = beam.Map(lambda pair, sums: (*pair, *sums[pair[0]]), beam.pvalue.AsMultiMap(sums))
    minutes | "beside" >> beside | "write beside" >> beam.ParDo(Write(folder, "beside"))
    return pipeline


def run(folder: Path, runner: Any, *, streamed: bool = False) -> list[str]:
    """Runs the pipeline in a folder, as a plan. Returns all that it has written there, in runs so far."""
    return run_with(folder, BeamlikeRunner(spark=runner), streamed=streamed)


def run_with(folder: Path, runner: Any, *, streamed: bool = False) -> list[str]:
    """Runs the pipeline in a folder with a Beam runner. Returns all that it has written there, in runs so far."""
    for name in ("out", "traps"):
        folder.joinpath(name).mkdir(parents=True, exist_ok=True)
    with beam.Pipeline(runner=runner) as pipeline:
        build(pipeline, str(folder), streamed=streamed)
    return written(folder)


def expected() -> list[str]:
    """Returns the expected output of the pipeline."""
    names, found = {"a": "kitchen", "b": "cellar"}, list[str]()
    for key in "ab":
        values = [value for bundle in events() for _, room, value in bundle if room == key]
        found += [
            f"running {(names[key], sum(values[:number]))} GlobalWindow" for number in range(1, EVENTS + 1)
        ]
        found.append(f"running {(key, EVENTS)} GlobalWindow")
        for first in range(0, EVENTS, 2):
            window = f"[{first * 10:.1f}, {first * 10 + 20:.1f})"
            own = values[first : first + 2]
            found += [f"sums {(key, own)} {window}", *(f"beside {(key, n, own)} {window}" for n in own)]
    return sorted(found)


def written(folder: Path) -> list[str]:
    """Returns all that runs in a folder have written."""
    return sorted(file.read_text() for file in folder.joinpath("out").iterdir())


def stopping(batch: int) -> Any:
    """Returns a function that stops a run after a batch."""

    def stop(record: Any) -> None:
        if record.batch == batch:
            os.kill(os.getpid(), signal.SIGINT)

    return stop


def trap(folder: Path, value: int, process: int | None = None) -> None:
    """Sets a trap: an error, or the end of a process, when a value is processed."""
    folder.joinpath("traps").mkdir(parents=True, exist_ok=True)
    folder.joinpath("traps", str(value)).write_text("" if process is None else str(process))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    for waiting in place.joinpath("traps").iterdir():
        waiting.write_text(str(os.getpid()))
    local = bl.LocalRunner(checkpoint=str(place / "checkpoint"), drain=True, quiet=True)
    own = sys.argv[2:] == ["own"]
    run_with(place, BeamlikeRunner(checkpoint=place / "own") if own else BeamlikeRunner(spark=local))
