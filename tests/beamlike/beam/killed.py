"""A Beam pipeline with a checkpoint that is killed: `python -m tests.beamlike.beam.killed FOLDER`.

For each line of its input, `AT PART`, it runs in a process of its own, forked from this one, which has imported Beam.
The process is killed at the bundle with the number AT, before or after it is processed. If PART is given, the
checkpoint forgets the parts of the run whose name contains it. The exit code of each process is printed.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.options.pipeline_options import TypeOptions
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly

from beamlike.beam import run as beam_run
from beamlike.beam.bundles import Bundles
from tests.beamlike.beam.pipelines import AtTheEnd, RunningSum, pairs, streaming, timed

TENS = beam.window.FixedWindows(10)


class Counting(beam.transforms.core.RestrictionProvider):  # type: ignore[misc, name-defined, unused-ignore]
    """The numbers below an element."""

    def initial_restriction(self, element: int) -> Any:
        return OffsetRange(0, element)

    def create_tracker(self, restriction: Any) -> Any:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: int, restriction: Any) -> int:
        size: int = restriction.size()
        return size


class ThreeAtATime(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the numbers below an element, at most three of them in a bundle."""

    def process(
        self, element: int, tracker: Any = beam.DoFn.RestrictionParam(Counting())
    ) -> Iterator[tuple[str, int]]:
        start = tracker.current_restriction().start
        for number in count(start):
            if number == start + 3:
                tracker.defer_remainder()
            if not tracker.try_claim(number):
                return
            yield "numbers", number


def build(p: Any, folder: Path) -> None:
    """Declares groupings, state, timers, sides that end and that grow, and a splittable function; files in and out."""
    lines = p | beam.io.ReadFromText(str(folder / "input-*.txt"))
    rows = lines | "parse" >> beam.Map(lambda line: timed(int(line) % 20, f"key{int(line) % 3}", int(line)))
    sums = rows | "in tens" >> beam.WindowInto(TENS) | "sums" >> beam.CombinePerKey(sum)
    sums | "shown" >> beam.Map(str) | beam.io.WriteToText(str(folder / "sums"))
    stream = pairs().advance_watermark_to(0)
    for n in range(6):
        stream = stream.add_elements([timed(3 * n, "red", n), timed(3 * n + 1, "blue", n)])
        stream = stream.advance_watermark_to(3 * n + 1).advance_processing_time(20)
    events = p | stream.advance_watermark_to_infinity()
    placed = events | "events in tens" >> beam.WindowInto(TENS)
    grows = beam.WindowInto(
        beam.window.GlobalWindows(),
        trigger=Repeatedly(AfterCount(1)),
        accumulation_mode=AccumulationMode.DISCARDING,
    )
    heard = events | "grows" >> grows | "only keys" >> beam.Map(lambda row: row[0])
    found = {
        "totals": events | "totals" >> beam.ParDo(RunningSum()),
        "ends": events | "ends" >> beam.ParDo(AtTheEnd()),
        "clock": events | "clock" >> beam.ParDo(AtTheEnd(by_clock=True)),
        "sides": placed
        | "sides" >> beam.Map(lambda row, sums: (*row, sorted(sums.items())), beam.pvalue.AsDict(sums)),
        "growing": events
        | "growing" >> beam.Map(lambda row, keys: (*row, len([*keys])), beam.pvalue.AsIter(heard)),
        "panes": placed | "panes" >> beam.CombinePerKey(sum),
        "numbers": p | beam.Create([10]) | beam.ParDo(ThreeAtATime()),
    }
    named = [
        rows
        | f"name {name}" >> beam.Map(lambda row, name: (None, f"{name} {row}"), name)
        | f"global {name}" >> beam.WindowInto(beam.window.GlobalWindows())
        for name, rows in found.items()
    ]
    gathered = named | beam.Flatten() | "gather" >> beam.GroupByKey()
    gathered | "write" >> beam.Map(lambda row: (folder / "found.txt").write_text("\n".join(sorted(row[1]))))


def run(folder: Path, *, at: int, forgets: str) -> None:
    """Runs the pipeline of a folder."""
    process, bundles, parts = Bundles.process, count(1), beam_run.Run.parts.fget  # type: ignore[attr-defined]

    def dying(self: Any, *arguments: Any) -> Any:
        number = next(bundles)
        if number == at and at % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        made = process(self, *arguments)
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    Bundles.process = dying  # type: ignore[method-assign]
    beam_run.Run.parts = property(  # type: ignore[assignment]
        lambda self: {name: part for name, part in parts(self).items() if not forgets or forgets not in name}
    )
    with streaming(checkpoint=folder / "checkpoint") as p:
        p.options.view_as(TypeOptions).allow_unsafe_triggers = True  # of the grouping that gathers all
        build(p, folder)


def main(folder: Path) -> None:
    for line in sys.stdin:
        at, _, forgets = line.rstrip("\n").partition(" ")
        if (child := os.fork()) == 0:
            status = 1
            try:
                run(folder, at=int(at), forgets=forgets)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
