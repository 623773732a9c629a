"""Dedup of changes: the emitted rows, and how long rows are remembered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.operator import MAIN
from stages.process.dedup_of_changes import DedupOfChanges
from stages.stage import Stage, StageResult
from stages.state.store import DictStore
from tests.support.examples import share
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.time import MAX_TIME
from windowing.windowing import Windowing

Change = tuple[str, int, int, bool]
"""(id, value, second, whether it is a retraction)"""

NumberChange = tuple[int, int, int, bool]
"""A change whose id is an integer. Rows of integers are packed into one integer each."""

SCHEMA = pl.Schema({"id": pl.String(), "value": pl.Int64()})
NUMBERS = pl.Schema({"id": pl.Int64(), "value": pl.Int64()})
SECOND = 1_000_000


class Run:
    """A stage that removes duplicates within a duration or in a window, and its state."""

    def __init__(self, within: int | None, lateness: int = 0, schema: pl.Schema = SCHEMA) -> None:
        choices: dict[str, Any] = {
            "order": "arrival", "title": "dedup", "retracted": True, "late": True,
            "within": None if within is None else within * SECOND,
        }  # fmt: skip
        windowing = Windowing(allowed_lateness=f"{lateness}s")
        self.schema = schema
        self.stage = Stage("dedup", DedupOfChanges(("id",), schema, windowing, **choices))
        self.store, self.net = DictStore(), dict[Any, int]()

    def step(self, changes: Sequence[Change | NumberChange], watermark: int = -1) -> StageResult:
        columns = [*self.schema, EVENT_TIME, PANE_RETRACTED]
        rows = pl.DataFrame(
            [(id, value, at * SECOND, back) for id, value, at, back in changes],
            dict(zip(columns, [*self.schema.dtypes(), pl.Int64(), pl.Boolean()], strict=True)),
            orient="row",
        )
        end = MAX_TIME if watermark == MAX_TIME else watermark * SECOND
        result = self.stage.step(self.store, {MAIN: rows}, Times.of(end))
        for *row, back in result.panes.select(columns).iter_rows():
            key = (*row[:2], row[2] // SECOND)
            self.net[key] = self.net.get(key, 0) + (-1 if back else 1)
        assert all(count in (0, 1) for count in self.net.values())
        return result

    @property
    def left(self) -> list[Any]:
        """The emitted rows that are not retracted."""
        return sorted(row for row, count in self.net.items() if count)


def expected(rows: list[tuple[str, int, int]], within: int | None) -> list[Any]:
    """Returns the rows that no earlier one covers."""
    passed: dict[str, int] = {}
    found = []
    for id, value, at in sorted(rows, key=lambda row: (row[2], row[0], row[1])):
        if id not in passed or (within is not None and at - passed[id] >= within):
            passed[id] = at
            found.append((id, value, at))
    return sorted(found)


@share(1)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 20)), max_size=12),
    st.lists(st.integers(0, 11), max_size=8, unique=True),
    st.one_of(st.none(), st.integers(1, 9)),
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(0, 9),
)
def test_the_rows_that_are_left_pass_as_one_by_one(
    rows: list[tuple[str, int, int]],
    gone: list[int],
    within: int | None,
    size: int,
    lateness: int,
    bound: int,
) -> None:
    """The watermark is behind the newest row; a row is only retracted while it is not final."""
    run, left, watermark = Run(within, lateness), list[tuple[str, int, int]](), -1
    pieces = [rows[start : start + size] for start in range(0, len(rows), size)]
    for piece in [*pieces, *([] for _ in gone)]:
        in_time = [row for row in piece if within is None or row[2] >= watermark - lateness]
        left += in_time
        changes = [(*row, False) for row in piece]
        there = [row for row in left if row[2] >= watermark - lateness]
        if gone and there:
            row = there[gone.pop() % len(there)]
            left.remove(row)
            changes.append((*row, True))
        watermark = max([watermark, *(row[2] - bound for row in piece)])
        result = run.step(changes, watermark)
        assert result.dropped.get("late", 0) == len(piece) - len(in_time)
        assert run.left == expected(left, within)
    assert run.step([], MAX_TIME).live == 0


def test_rows_are_remembered_until_they_are_final_and_cover_nothing() -> None:
    run = Run(within=10, lateness=2)
    assert (
        run.step([("a", 1, 0, False), ("a", 2, 5, False), ("a", 3, 5, False), ("b", 1, 9, False)]).live == 4
    )
    assert run.step([], 7).live == 4
    assert run.step([], 8).live == 2  # neither of the rows of 5 s, which are covered, can be retracted
    assert run.step([], 11).live == 2
    assert run.step([], 12).live == 1  # no row that the row of 0 s covers is in time
    assert run.step([], 21).live == 0


def test_a_retraction_of_a_row_that_is_not_there_is_dropped_and_shown() -> None:
    run = Run(within=None)
    run.step([("a", 1, 0, False)])
    result = run.step([("a", 2, 0, True), ("a", 2, 0, True), ("b", 1, 0, True), ("a", 1, 3, False)])
    assert result.dropped == {"unmatched": 3}
    shown = result.late.select("id", "value", "reason", PANE_RETRACTED).sort("id").rows()
    assert shown == [*[("a", 2, "unmatched", True)] * 2, ("b", 1, "unmatched", True)]
    assert run.left == [("a", 1, 0)]


def test_a_bundle_that_adds_and_retracts_the_same_emits_nothing() -> None:
    run = Run(within=None)
    assert run.step([("a", 1, 0, True), ("a", 1, 0, False), ("b", 1, 0, False)]).panes["id"].to_list() == [
        "b"
    ]


@pytest.mark.parametrize("within", [None, 10])
def test_steps_without_rows_emit_nothing_if_ids_are_numbers(within: int | None) -> None:
    run = Run(within, schema=NUMBERS)
    assert run.step([]).panes.is_empty()
    run.step([(1, 1, 0, False), (1, 1, 3, False)])
    assert run.step([], MAX_TIME).live == 0
    assert run.step([], MAX_TIME).panes.is_empty()
    assert run.left == [(1, 1, 0)]
