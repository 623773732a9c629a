"""The prediction for a bound equals a run with that bound."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import beamlike as bl
from beamlike.observe.tuning.stages import Range
from stages.progress import arrivals

WINDOWS = st.sampled_from(
    [
        bl.FixedWindows("10s"),
        bl.FixedWindows("7s", offset="3s"),
        bl.SlidingWindows("10s", "4s"),
        bl.SlidingWindows("3s", "5s"),
        bl.Sessions("4s"),
        bl.CalendarWindows.days(),
    ]
)
SPLITS = ("eu", "us", "", "null")


@attrs.frozen
class Input:
    """The rows of a source, in batches, and the options of its strategy. In a batch without rows, 20 s pass."""

    batches: list[list[tuple[int, str | None]]]
    per_split: str | None
    idle_after: str | None

    def read(self, p: bl.Pipeline, name: str, bound: int) -> bl.Collection:
        stream = bl.TestStream({"at": int, "region": str})
        for batch in self.batches:
            rows = [{"at": at, "region": region} for at, region in batch]
            stream = stream.add_elements(rows) if rows else stream.advance_processing_time("20s")
        strategy = bl.BoundedOutOfOrderness(f"{bound}s", per_split=self.per_split, idle_after=self.idle_after)
        return p.read(name, stream, timestamp="at", timestamp_unit="s", watermark=strategy)


def times(most: int = 60) -> st.SearchStrategy[tuple[int, str | None]]:
    return st.tuples(st.integers(0, most), st.sampled_from([*SPLITS, None]))


def inputs(idle_after: st.SearchStrategy[str | None]) -> st.SearchStrategy[Input]:
    batches = st.lists(st.lists(times(), max_size=6), min_size=1, max_size=8)
    return st.builds(Input, batches, st.sampled_from([None, "region"]), idle_after)


def run(
    sources: list[Input], bounds: list[int], windows: Any, lateness: str, records: Path
) -> list[bl.observe.BatchRecord]:
    """Counts the elements of all sources in windows, with these bounds."""
    p = bl.Pipeline("p")
    read = [
        source.read(p, f"s{number}", bound)
        for number, (source, bound) in enumerate(zip(sources, bounds, strict=True))
    ]
    all_rows = bl.flatten(*read) if len(read) > 1 else read[0]
    windowed = all_rows.window_into(windows, allowed_lateness=lateness)
    windowed.group_by("region").aggregate(n=bl.count()).named("counts").write("out", bl.Memory())
    return list(p.run(bl.LocalRunner(records=records)).batches)


def late_in(sources: list[Input], batches: list[bl.observe.BatchRecord]) -> int:
    """Returns the number of late elements of the first source: behind its watermark before their batch."""
    marks = [-(2**62), *(batch.sources["s0"].watermark for batch in batches)]
    return sum(
        at * 1_000_000 < mark
        for batch, mark in zip(sources[0].batches, marks, strict=False)
        for at, _ in batch
    )


@given(
    st.lists(inputs(st.none()), min_size=2, max_size=2)
    # Test streams have clocks of their own, so silence is exact only with one of them.
    | st.lists(inputs(st.sampled_from([None, "30s"])), min_size=1, max_size=1),
    WINDOWS,
    st.sampled_from(["0s", "2s", "9s"]),
    st.integers(0, 20),
    st.integers(0, 20),
    st.booleans(),
)
@settings(max_examples=10, deadline=None)
def test_a_prediction_equals_a_run_with_that_bound(
    sources: list[Input], windows: Any, lateness: str, known: int, asked: int, large: bool
) -> None:
    assume(any(sources[0].batches))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        records = Path(folder) / "run.jsonl"
        if large:
            patch.setattr(arrivals, "_MOST_ROWS", 1)
        run(sources, [known, 3][: len(sources)], windows, lateness, records)
        (found,) = bl.observe.tune(records, source="s0", bounds=[f"{asked}s"]).sources
        batches = run(sources, [asked, 3][: len(sources)], windows, lateness, Path(folder) / "other.jsonl")
    (prediction,) = [one for one in found.bounds if one.bound == asked * 1_000_000]
    dropped = sum(batch.stages["counts"].dropped.get("late", 0) for batch in batches)
    late = late_in(sources, batches)
    assert not any("estimates" in note for note in found.notes)
    assert found.resolution == 0
    assert (prediction.late, prediction.stages["counts"].dropped) == (
        Range(late, late),
        Range(dropped, dropped),
    )
    assert (late == 0) or asked * 1_000_000 < found.needed
