"""Counts the polars queries and Python calls of a small batch: `python -m tests.support.small_batches` prints both.

The job is the flagship: sessions of two sources, and their means by two minutes, 300 rows of each source in a batch.
With `POLARS_MAX_THREADS=1` everything runs in one thread, so that the counts are the same in each run.
"""

from __future__ import annotations

import gc
import json
import sys
from types import FrameType
from typing import Any

import beamlike as bl

ROWS = 300
BATCHES = 30
WARM = 10
"""Batches that are not counted: in the first ones, imports and expressions of the plan are made."""


class Counter:
    """Counts Python calls and polars queries; pass `count` as a profile function."""

    def __init__(self) -> None:
        self.calls = self.queries = 0

    def count(self, frame: FrameType, event: str, argument: Any) -> None:
        self.calls += event == "call"
        self.queries += event == "c_call" and argument.__qualname__ in ("PyLazyFrame.collect", "collect_all")


def flagship(out: bl.Memory) -> bl.Pipeline:
    """Creates the pipeline; one of 500 users plays each hundredth of a second."""
    plays = [{"user": f"u{number * 7919 % 500}", "at": number / 100} for number in range(ROWS * BATCHES)]
    p = bl.Pipeline("averages")
    sessions = [
        p.read(
            name,
            bl.Rows(plays, rows_per_batch=ROWS),
            timestamp="at",
            timestamp_unit="s",
            watermark=bl.BoundedOutOfOrderness("5s"),
        )
        .window_into(bl.Sessions("1m"))
        .group_by("user")
        .aggregate(length=bl.window_length())
        for name in ("mobile", "console")
    ]
    both = bl.flatten(*sessions).window_into(bl.FixedWindows("2m"))
    both.aggregate(mean=bl.mean("length"), n=bl.count()).write("out", out)
    return p


def counts() -> dict[str, float]:
    """Runs the job and returns the mean numbers of queries and calls per batch."""
    counter, marks = Counter(), list[tuple[int, int]]()
    runner = bl.LocalRunner(on_batch=lambda record: marks.append((counter.queries, counter.calls)))
    flagship(bl.Memory()).run()  # imports
    gc.disable()  # it calls, too
    sys.setprofile(counter.count)
    try:
        flagship(bl.Memory()).run(runner)
    finally:
        sys.setprofile(None)
    first, last = marks[WARM], marks[BATCHES - 2]  # at the end of input all windows are emitted
    queries, calls = ((end - begin) / (BATCHES - 2 - WARM) for begin, end in zip(first, last, strict=True))
    return {"queries": queries, "calls": calls}


if __name__ == "__main__":
    print(json.dumps(counts()))
