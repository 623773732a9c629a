"""Rows that a user-defined aggregate rejects: they become dead letters of the grouping and are in no result."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import narwhals as nw
import polars as pl
import pytest
from hypothesis import given

import beamlike as bl
from beamlike.rows.dead_letters import UNCLAIMED, DeadLetterCounts
from stages.aggregates.combine_fn import Combine
from tests.beamlike.runtime.run.test_dead_letter_ways import kept, named, read, run
from tests.support.examples import share
from tests.support.model import Model
from tests.support.pipelines import plays
from tests.support.runs import AGGREGATES, StageRun, advance, in_order
from tests.support.shards import Query
from tests.support.strategies import Stream, streams, windowings
from windowing import Windowing
from windowing.columns import RESERVED_PREFIX

SECOND = 1_000_000


class Picky(bl.CombineFn):
    """A list of numbers in order. Multiples of `by` are refused after they have been added in part."""

    def __init__(self, by: int) -> None:
        self.by = by

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], element: int) -> list[int]:
        accumulator.append(element)
        if element % self.by == 0:
            raise ValueError(f"no {element}")
        return accumulator

    def merge_accumulators(self, accumulators: list[list[int]]) -> list[int]:
        return [element for accumulator in accumulators for element in accumulator]

    def extract_output(self, accumulator: list[int]) -> list[int]:
        return sorted(accumulator)


def picky(by: int) -> Combine:
    return Combine(Picky(by), "value", pl.List(pl.Int64()))


def good(value: int | None) -> bool:
    return value is not None and value % 2 != 0 and value % 3 != 0


@share(4)
@given(windowings(), streams())
def test_a_grouping_is_that_of_the_other_rows_whatever_its_windows_and_triggers(
    windowing: Windowing, stream: Stream
) -> None:
    model = Model(windowing)
    stage = StageRun(windowing, {**AGGREGATES, "twos": picky(2), "threes": picky(3)})
    for bundle in stream:
        kept = tuple(element for element in bundle.elements if good(element[1]))
        expected = in_order(advance(model, attrs.evolve(bundle, elements=kept)))
        assert in_order(advance(stage, bundle)) == expected
        for row in stage.frame.iter_rows(named=True):
            assert row["twos"] == row["threes"] == sorted(row["values"])
        refused = [value for part in stage.refused for value in part.rows["value"]]
        # Each once, whatever it is in and however many functions refuse it.
        assert Counter(refused) == Counter(value for _, value, _ in bundle.elements if not good(value))
        errors = [error for part in stage.refused for error in part.errors]
        assert all(
            value is None or str(error) == f"no {value}" for value, error in zip(refused, errors, strict=True)
        )


# In pipelines


def grouped(**options: Any) -> tuple[bl.Pipeline, dict[str, bl.Memory]]:
    """Declares overlapping windows with a dead letter sink, and a second grouping without one."""
    p, sinks = (
        bl.Pipeline("p", **options),
        {name: bl.Memory() for name in ("panes", "late", "lost", "totals")},
    )
    stream = bl.TestStream({"user": str, "value": int, "note": str, "at": int})
    rows = [
        {"user": "ab"[value % 2], "value": value, "note": f"n{value}", "at": value} for value in range(12)
    ]
    stream = stream.add_elements(rows[:11]).advance_watermark_to(60)
    # Late, and of these one also bad.
    stream = stream.add_elements([rows[6], rows[7]])
    source = p.read("rows", stream, timestamp="at", timestamp_unit="s")
    windowed = source.window_into(bl.SlidingWindows("10s", "5s"))
    fives = windowed.group_by("user", name="fives").aggregate(
        taken=bl.combine(Picky(3), "value", pl.List(pl.Int64())),
        sixes=bl.combine(Picky(6), "value", pl.List(pl.Int64())),
        rows=bl.count(),
    )
    fives.write("panes", sinks["panes"])
    fives.late().select("value", "reason").write("late", sinks["late"])
    fives.dead_letters().write("lost", sinks["lost"])
    again = fives.window_into(bl.FixedWindows("1h")).aggregate(
        total=bl.combine(Picky(3), "rows", pl.List(pl.Int64()))
    )
    again.named("again").write("totals", sinks["totals"])
    return p, sinks


LETTERS = {"fives": 5, "again": 2}


def test_the_rest_goes_on_and_every_row_is_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    p, sinks = grouped()
    done = run(p)
    panes = sinks["panes"].frame()
    assert panes["taken"].to_list() == panes["sixes"].to_list()
    assert panes["rows"].to_list() == [len(taken) for taken in panes["taken"].to_list()]
    values = Counter(value for taken in panes["taken"].to_list() for value in taken)
    assert values == dict.fromkeys([1, 2, 4, 5, 7, 8, 10], 2)
    assert sinks["late"].frame().select("value", "reason").rows() == [(7, "late")] * 2
    letters = [json.loads(row["row"]) for row in sinks["lost"].rows()]
    assert [letter["value"] for letter in letters] == [0, 3, 6, 9, 6]
    assert letters[1] == {"user": "b", "value": 3, "note": "n3", "at": 3}
    assert sinks["lost"].rows()[1]["error"] == "ValueError: no 3"
    assert Counter(letter["step"] for letter in kept(done)) == {"again": 2}
    assert sum((Counter(batch.dead_letters) for batch in done.batches), Counter()) == LETTERS
    assert done.batches[0].errors == {"fives": "ValueError: no 9"}
    stages = [batch.stages["fives"] for batch in done.batches]
    # In = in panes, dropped, or a dead letter.
    assert sum(stage.elements for stage in stages) == 13 - LETTERS["fives"]
    assert sum(stage.placed or 0 for stage in stages) == 2 * 8
    assert sum(stage.emitted or 0 for stage in stages) == 2 * 7
    assert sum((Counter(stage.dropped) for stage in stages), Counter()) == {"late": 2}


@pytest.mark.parametrize("shards", [1, 3])
def test_between_operators_they_are_what_they_are_in_process(
    shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    p, sinks = grouped()
    run(p)
    batches = list(Query(grouped()[0].plan(), shards, seed=shards).batches())
    for name, sink in sinks.items():
        frames = [found for batch in batches for found in batch.frames(name)]
        columns = [column for column in sink.frame().columns if column in frames[0].columns]
        assert not any(column.startswith(RESERVED_PREFIX) for column in columns)
        there = Counter(repr(row) for found in frames for row in found.select(columns).rows())
        assert there == Counter(map(repr, sink.frame().select(columns).rows()))
    left = Counter(step for batch in batches for found in batch.frames(UNCLAIMED) for step in found["step"])
    assert left == {"again": 2}
    notes = [told for batch in batches for _, told in batch.notes()]
    assert DeadLetterCounts.of_all(told.dead_letters for told in notes).counts == LETTERS


def test_nobody_has_to_ask_for_them_and_then_the_columns_that_it_reads_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    p = bl.Pipeline("p", max_dead_letters=2)
    windowed = read(p, ["x", "y"]).window_into(bl.FixedWindows("1m"))
    windowed.group_by("text", name="own").aggregate(x=bl.combine(Picky(1), "n", int)).write(
        "out", bl.Memory()
    )
    assert [json.loads(letter["row"]) for letter in kept(run(p))] == [
        {"text": "x", "n": 0},
        {"text": "y", "n": 1},
    ]


def test_a_time_that_python_cannot_hold_is_a_letter_of_its_row_alone() -> None:
    class Days(Picky):
        def add_input(self, accumulator: Any, element: Any) -> Any:
            return [*accumulator, element.day]

    p, out, lost = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    rows = read(p, ["1", "2"]).with_columns(day=bl.col("n") * 2**60)
    dated = rows.with_columns(day=bl.col("day").cast(nw.Datetime("us")))
    days = dated.window_into(bl.FixedWindows("1m")).aggregate(
        days=bl.combine(Days(1), "day", pl.List(pl.Int64()))
    )
    days.write("out", out)
    days.named("days").dead_letters().write("lost", lost)
    run(p)
    assert out.frame()["days"].to_list() == [[1]]
    assert named(lost) == [("days", 1)]


def test_a_run_that_is_to_fail_fails_with_the_users_own_error_and_names_the_step() -> None:
    with pytest.raises(ValueError, match="no 0") as caught:
        run(grouped(on_error="fail")[0])
    assert caught.value.__notes__[0] == "in step 'fives'"
    assert caught.value.__notes__[1].startswith('for the row {"user":')


def test_that_memory_is_at_its_end_is_no_fault_of_the_row() -> None:
    class Large(Picky):
        def add_input(self, accumulator: list[int], element: int) -> list[int]:
            raise MemoryError

    p = bl.Pipeline("p")
    windowed = read(p, ["x"]).window_into(bl.FixedWindows("1m"))
    windowed.aggregate(x=bl.combine(Large(1), "n", int)).write("out", bl.Memory())
    with pytest.raises(MemoryError):
        run(p)


def test_accumulators_that_cannot_be_kept_are_no_fault_of_the_rows() -> None:
    class Locked(Picky):
        def add_input(self, accumulator: list[int], element: int) -> Any:
            return threading.Lock()

    p = bl.Pipeline("p")
    windowed = read(p, ["x"]).window_into(bl.FixedWindows("1m"))
    windowed.aggregate(x=bl.combine(Locked(1), "n", int)).write("out", bl.Memory())
    with pytest.raises(TypeError, match="cannot pickle"):
        run(p)


def test_a_grouping_without_a_function_of_the_users_has_no_dead_letters() -> None:
    counts = plays().window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).named("counts")
    with pytest.raises(bl.PlanError, match="'counts' is neither: call it there"):
        counts.dead_letters()
