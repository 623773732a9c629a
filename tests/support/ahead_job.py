"""A run whose journal is never synced to disk, until it is killed: `python -m tests.support.ahead_job CHECKPOINT`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import attrs
import polars as pl

import beamlike as bl
from beamlike.runtime.loop.journal import Journal
from beamlike.runtime.loop.logged_batch import LoggedBatch

NUMBERS = 200
STUCK_FROM = 3
"""The first batch of the killed run that is not logged on disk."""
DIES_AT = 80


@attrs.frozen
class Numbers:
    """A source of the numbers up to `NUMBERS`, one a second, `step` in a batch; kills the process before `dies_at`."""

    step: int
    dies_at: int | None = None

    bounded = True
    watermark = bl.MonotonousTimestamps()

    def schema(self) -> pl.Schema:
        return pl.Schema({"n": pl.Int64()})

    def plan(self, position: Mapping[str, Any], rows: int) -> bl.PlannedBatch | None:
        first = position.get("next", 0)
        if first == self.dies_at:
            os._exit(9)
        last = min(NUMBERS, first + self.step)
        return None if first == last else bl.PlannedBatch([first, last], {"next": last}, more=last < NUMBERS)

    def read(self, batch: bl.PlannedBatch) -> pl.LazyFrame:
        return pl.LazyFrame({"n": range(*batch.input)})


def pipeline(source: Numbers, out: Path) -> bl.Pipeline:
    """Creates the pipeline: the sums of a hundred numbers each, so that most batches have no output."""
    p = bl.Pipeline("sums")
    numbers = p.read("numbers", source, timestamp="n", timestamp_unit="s")
    numbers.window_into(bl.FixedWindows("100s")).aggregate(total=bl.sum("n")).write("sums", bl.JSONLines(out))
    return p


def with_stuck_disk() -> None:
    """Makes the journal's writes hang from batch `STUCK_FROM` on."""
    begin = Journal._begin

    def stuck(self: Journal, batch: LoggedBatch) -> None:
        if batch.number >= STUCK_FROM:
            Event().wait()
        begin(self, batch)

    Journal._begin = stuck  # type: ignore[method-assign]


if __name__ == "__main__":
    with_stuck_disk()
    folder = Path(sys.argv[1])
    pipeline(Numbers(10, DIES_AT), folder / "out").run(bl.LocalRunner(checkpoint=folder / "checkpoint"))
