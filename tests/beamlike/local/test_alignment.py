"""Sources that run ahead wait on the local runner; sources that cannot wait are refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.records.model import BatchRecord
from tests.support.examples import share
from windowing.time import MAX_TIME

law = share(4)
SECOND = 1_000_000


@attrs.define
class Clock:
    """Processing time that advances by some seconds with every batch."""

    every: float = 0
    now: int = 0

    def __call__(self) -> int:
        return self.now

    def tick(self, record: BatchRecord) -> None:
        self.now += round(self.every * SECOND)

    @property
    def runner(self) -> bl.LocalRunner:
        return bl.LocalRunner(chunk_rows=2, clock=self, on_batch=self.tick)


@attrs.frozen
class Counted:
    """A source of one element per chunk; `taken` records the requested chunks."""

    seconds: list[int]
    taken: list[int] = attrs.field(factory=list)
    bounded: bool = True

    def schema(self) -> pl.Schema:
        return pl.Schema({"at": pl.Int64()})

    def for_event_time(self, column: str) -> Self:
        return self

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        for second in self.seconds:
            self.taken.append(second)
            yield pl.LazyFrame({"at": [second]}, schema=self.schema())


def read(p: bl.Pipeline, name: str, source: Any, **choices: Any) -> bl.Collection:
    strategy = bl.MonotonousTimestamps(**choices)
    return p.read(name, source, timestamp="at", timestamp_unit="s", watermark=strategy)


def rows(*seconds: int, each: int | None = 1) -> bl.Rows:
    return bl.Rows([{"at": second} for second in seconds], schema={"at": int}, rows_per_batch=each)


def counted(*parts: bl.Collection) -> tuple[bl.Pipeline, bl.Memory]:
    out = bl.Memory()
    rows = bl.flatten(*parts) if len(parts) > 1 else parts[0]
    rows.window_into(bl.FixedWindows("10s")).aggregate(n=bl.count()).named("counts").write("out", out)
    return parts[0].pipeline, out


FAST, SLOW = range(0, 500, 100), range(0, 440, 40)


def fast_and_slow(**choices: Any) -> tuple[bl.Pipeline, bl.Memory]:
    p = bl.Pipeline("drift")
    return counted(read(p, "fast", rows(*FAST), **choices), read(p, "slow", rows(*SLOW)))


def elements(batches: list[BatchRecord], name: str) -> list[int]:
    return [batch.sources[name].elements for batch in batches]


def test_a_source_that_is_too_far_ahead_waits_until_the_slowest_has_caught_up() -> None:
    p, _ = fast_and_slow(max_drift="100s")
    batches = p.run().batches
    # fast  0  100  200       300       400
    # slow  0   40   80  120  160  200  240  280  320  360  400
    assert elements(batches, "fast") == [1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0]
    assert elements(batches, "slow") == [1] * len(SLOW) + [0]
    assert batches[-1].sources["fast"].watermark == MAX_TIME


def test_to_wait_changes_no_result_but_what_is_kept_meanwhile() -> None:
    (p, aligned), (free, ahead) = fast_and_slow(max_drift="50s"), fast_and_slow()
    kept, more = (max(batch.stages["counts"].live for batch in one.run().batches) for one in (p, free))
    assert kept < more
    assert aligned.frame().sort("window_start").equals(ahead.frame().sort("window_start"))


def test_chunks_of_any_size_wait() -> None:
    p = bl.Pipeline("chunks")
    fast = read(p, "fast", rows(*FAST, each=None), max_drift="100s")
    p, _ = counted(fast, read(p, "slow", rows(*SLOW, each=None)))
    batches = p.run(bl.LocalRunner(chunk_rows=2)).batches
    #                                    fast 100  300            400
    #                                    slow  40  120  200  280  360  400
    assert elements(batches, "fast") == [2, 2, 0, 1, 0, 0, 0]


def test_nobody_waits_for_a_source_at_its_end() -> None:
    p = bl.Pipeline("end")
    p, out = counted(read(p, "fast", rows(*FAST), max_drift="1s"), read(p, "slow", rows(0, 40)))
    batches = p.run().batches
    assert sum(elements(batches, "fast")) == len(FAST)
    assert out.frame()["n"].sum() == len(FAST) + 2


def test_a_source_does_not_become_idle_by_waiting() -> None:
    p, _ = fast_and_slow(max_drift="100s", idle_after="15s")
    batches = p.run(Clock(every=10).runner).batches
    waited = [3, 5, 7, 8]
    assert [batches[number].sources["fast"].elements for number in waited] == [0] * 4
    assert not any(batches[number].sources["fast"].idle for number in range(10))
    # At its end it is not made to wait: from then on its silence is its own, by now of 20 s.
    assert batches[10].sources["fast"].idle
    # Without max_drift the silence is its own.
    free, _ = fast_and_slow(idle_after="15s")
    free_batches = free.run(Clock(every=10).runner).batches
    assert [batch.sources["fast"].idle for batch in free_batches[:7]] == [*[False] * 6, True]


def test_nobody_waits_for_a_source_that_is_idle() -> None:
    """A source without rows so far holds the others, until it is idle."""
    p = bl.Pipeline("idle", max_dead_letters=6)
    nothing = rows(*[0] * 6).frame.with_columns(at=pl.lit(None, pl.Int64))
    silent = read(p, "silent", bl.Rows(nothing, rows_per_batch=1), idle_after="25s")
    lost = bl.Memory()
    silent.dead_letters().write("lost", lost)
    p, _ = counted(read(p, "fast", rows(*FAST), max_drift="1s"), silent)
    batches = p.run(Clock(every=10).runner).batches
    assert [batch.sources["silent"].idle for batch in batches[:5]] == [False, False, False, True, True]
    assert elements(batches, "fast")[:6] == [1, 0, 0, 0, 1, 1]
    assert len(lost.frame()) == 6


times = st.lists(st.integers(0, 200), max_size=8).map(sorted)


@law
@given(st.lists(times, min_size=1, max_size=3), st.lists(st.integers(1, 80) | st.none(), min_size=3))
def test_who_takes_a_chunk_was_not_too_far_ahead_and_all_come_to_their_end(
    seconds: list[list[int]], drifts: list[int | None]
) -> None:
    p = bl.Pipeline("law")
    sources = {f"source {number}": Counted(given) for number, given in enumerate(seconds)}
    drift = dict(zip(sources, drifts, strict=False))
    parts = [
        read(p, name, source, max_drift=None if drift[name] is None else f"{drift[name]}s")
        for name, source in sources.items()
    ]
    p, out = counted(*parts)
    batches: list[BatchRecord] = p.run().batches
    left = {name: len(source.seconds) for name, source in sources.items()}
    for before, batch in pairwise(batches):
        left = {name: count - before.sources[name].elements for name, count in left.items()}
        marks = {name: before.sources[name].watermark for name in sources if left[name]}
        for name in marks:
            allowed = drift[name]
            if batch.sources[name].elements and allowed is not None:
                assert marks[name] - min(marks.values()) <= allowed * SECOND
    assert {name: source.taken for name, source in sources.items()} == {
        name: source.seconds for name, source in sources.items()
    }
    assert sum(out.frame()["n"]) == sum(map(len, seconds))


# Refusals


def test_spark_cannot_let_a_source_wait_and_says_so_before_it_starts(tmp_path: Path) -> None:
    pl.DataFrame({"at": [1]}).write_parquet(tmp_path / "a.parquet")
    p, _ = counted(read(bl.Pipeline("spark"), "files", bl.Parquet(tmp_path), max_drift="5m"))
    message = "'files': .*max_drift=5m.* Spark itself decides how much .* max_files_per_trigger, or run with"
    with pytest.raises(bl.PlanError, match=message):
        p.run(bl.SparkRunner(master="no such master"))


def test_a_test_stream_cannot_wait() -> None:
    with pytest.raises(bl.PlanError, match="TestStream plays one step in every batch, so it cannot wait"):
        read(bl.Pipeline("stream"), "steps", bl.TestStream({"at": int}), max_drift="5m")
