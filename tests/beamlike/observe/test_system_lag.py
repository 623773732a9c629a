"""Lag in event time beside lag in processing time: old data or a slow system (the chapter's figures 3-12 to 3-15)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Self

import attrs
import polars as pl

import beamlike as bl
from beamlike.records.model import BatchRecord

SECOND = 1_000_000
EVERY = 10 * SECOND
BATCHES = 12


@attrs.define
class Clock:
    """Processing time that advances only by calls of `take`."""

    now: int = 0

    def __call__(self) -> int:
        return self.now

    def take(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


@attrs.frozen
class Ticking:
    """A source of one element every ten seconds, each a batch, available `delay` after its time."""

    clock: Clock
    bounded: bool = True

    def schema(self) -> pl.Schema:
        return pl.Schema({"at": pl.Int64(), "number": pl.Int64()})

    def for_event_time(self, column: str) -> Self:
        return self

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        for number in range(BATCHES):
            self.clock.now = max(self.clock.now, number * EVERY)
            yield pl.LazyFrame({"at": [number * EVERY], "number": [number]}, schema=self.schema())


def lags(
    take: list[float], windows: bl.WindowFn, timestamp_combiner: Any = bl.END_OF_WINDOW
) -> tuple[list[float], list[float]]:
    """Returns (event time lag, processing time lag) in seconds of a grouping's output, for all batches except the last.

    `take` is the duration of the work on each batch, before the grouping is done with it.
    """
    clock = Clock()

    def work(row: dict[str, Any]) -> dict[str, Any]:
        clock.take(take[row["number"]])
        return row

    records: list[BatchRecord] = []
    pipeline = bl.Pipeline("lag")
    source = pipeline.read(
        "source", Ticking(clock), timestamp="at", timestamp_unit="us", watermark=bl.MonotonousTimestamps()
    )
    counted = source.map(work).window_into(windows, timestamp_combiner=timestamp_combiner)
    counted.aggregate(n=bl.count()).named("counts").write("out", bl.Memory())
    pipeline.run(bl.LocalRunner(clock=clock, on_batch=records.append))
    seen = records[:-1]
    event = [_seconds(record.finished, record.stages["counts"].output) for record in seen]
    system = [record.output_system_lag("counts") / SECOND for record in seen]
    return event, system


def _seconds(finished: int | None, watermark: int) -> float:
    assert finished is not None
    return (finished - watermark) / SECOND


def rises(lag: list[float]) -> bool:
    return all(one < other for one, other in pairwise(lag))


def test_both_lags_grow_where_a_stage_is_stuck() -> None:
    # Figures 3-12 and 3-13: an operation that takes longer and longer.
    event, system = lags([1.5**number for number in range(BATCHES)], bl.FixedWindows("10s"))
    assert rises(event)
    assert rises(system)


def test_only_event_time_lag_grows_where_data_waits() -> None:
    # Figure 3-14: a window that stays open, held at its first element.
    event, system = lags([0.5] * BATCHES, bl.FixedWindows("10m"), bl.EARLIEST)
    assert rises(event)
    assert system == [0.5] * BATCHES


def test_event_time_lag_is_a_saw_tooth_where_fixed_windows_are_healthy() -> None:
    # Figure 3-15: lag grows while a window fills, and falls when it closes.
    event, system = lags([0.5] * BATCHES, bl.FixedWindows("40s"), bl.EARLIEST)
    assert event == [0.5, 10.5, 20.5, 30.5] * 3
    assert system == [0.5] * BATCHES
