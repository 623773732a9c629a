"""Counts the polars queries and Python calls of a small batch: `python -m tests.support.small_batches` prints both.

There are three jobs: the flagship, which has sessions of two sources and their means by two minutes, 300 rows of each
source in a batch; counts of keys in windows of a second; and Kafka messages that become the elements of these windows.
With `POLARS_MAX_THREADS=1` everything runs in one thread, so that the counts are the same in each run.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import confluent_kafka

import beamlike as bl
from beamlike.io.kafka.buffer import MessageBuffer
from beamlike.runtime.batch.ingest import ingest

ROWS = 300
SINCE = 1_700_000_000_000
FEW = 100
"""The rows of a batch where a run keeps up with 10 thousand a second."""
BATCHES = 30
WARM = 10
"""Batches that are not counted: in the first ones, imports and expressions of the plan are made."""


class Counter:
    """Counts Python calls and polars queries inside its `with` block."""

    def __init__(self) -> None:
        self.calls = self.queries = 0

    def __enter__(self) -> None:
        gc.disable()  # it calls, too
        sys.setprofile(self.count)

    def __exit__(self, *raised: object) -> None:
        sys.setprofile(None)
        gc.enable()

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


def windows(out: bl.Memory) -> bl.Pipeline:
    """Creates the pipeline; one of 500 keys has an element each tenth of a millisecond."""
    rows = [{"key": number * 7919 % 500, "at": SINCE + number // 10} for number in range(FEW * BATCHES)]
    return counted_by_key(bl.Rows(rows, rows_per_batch=FEW), out)


def counted_by_key(source: bl.Source, out: bl.Memory) -> bl.Pipeline:
    """Creates the pipeline that counts the keys of a source."""
    p = bl.Pipeline("windows")
    late = bl.MonotonousTimestamps()
    elements = p.read("elements", source, timestamp="at", timestamp_unit="ms", watermark=late)
    elements.window_into(bl.FixedWindows("1s")).group_by("key").aggregate(n=bl.count()).write("out", out)
    return p


def counts(job: Callable[[bl.Memory], bl.Pipeline]) -> dict[str, float]:
    """Runs a job and returns the mean numbers of queries and calls per batch."""
    counter, marks = Counter(), list[tuple[int, int]]()
    runner = bl.LocalRunner(on_batch=lambda record: marks.append((counter.queries, counter.calls)))
    job(bl.Memory()).run()  # imports
    with counter:
        job(bl.Memory()).run(runner)
    first, last = marks[WARM], marks[BATCHES - 2]  # at the end of input all windows are emitted
    queries, calls = ((end - begin) / (BATCHES - 2 - WARM) for begin, end in zip(first, last, strict=True))
    return {"queries": queries, "calls": calls}


def counts_of_messages() -> dict[str, float]:
    """Returns the numbers of queries and calls by which the messages of a batch become elements."""
    kafka = bl.Kafka("localhost:1", "elements", value=bl.json({"key": int, "at": int}))
    source, counter = counted_by_key(kafka, bl.Memory()).plan().sources["elements"], Counter()
    received = [
        confluent_kafka.Message("elements", 0, offset, None, value, None, None, (1, SINCE))
        for offset, value in enumerate(b'{"key":%d,"at":%d}' % (key, SINCE) for key in range(FEW))
    ]

    def take() -> None:
        buffer = MessageBuffer(headers=False)
        ends = buffer.put(received)
        assert ingest(source, kafka.decode(buffer.take(ends)), SINCE * 1000).elements == FEW

    take()  # imports
    with counter:
        take()
    return {"queries": counter.queries, "calls": counter.calls}


if __name__ == "__main__":
    found = {job.__name__: counts(job) for job in (flagship, windows)}
    print(json.dumps(found | {"messages": counts_of_messages()}))
