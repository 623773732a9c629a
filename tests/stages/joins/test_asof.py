"""Joins as of a time: a row gets the newest version not after it that has arrived when the watermark passes the row."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stages.joins.asof import AsOfJoin, How
from stages.joins.base import LEFT, RIGHT
from stages.operator import MAIN
from stages.snapshot import restore, save
from stages.stage import Stage, StageResult
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME

SECOND = 1_000_000
ROW = pl.Struct({"number": pl.Int64()})
SCHEMA = pl.Schema({"key": pl.String(), LEFT: ROW, RIGHT: ROW})

Row = tuple[str | None, int]
Bundle = tuple[Sequence[Row], Sequence[Row], int]
"""Left rows and versions, as (key, time in s), and where the watermark moves (s)."""


def stage(how: How, tolerance: int | None, *, late: bool = False) -> Stage:
    us = None if tolerance is None else tolerance * SECOND
    return Stage("joined", AsOfJoin(("key",), SCHEMA, how, us, late=late))


@attrs.define
class Run:
    stage: Stage
    store: DictStore = attrs.field(factory=DictStore)
    number: int = 0

    def step(self, bundle: Bundle) -> StageResult:
        left, right, watermark = bundle
        rows = []
        for side, own in ((False, left), (True, right)):
            for key, at in own:
                row = {"number": self.number}
                rows.append((key, None if side else row, row if side else None, at * SECOND))
                self.number += 1
        arrivals = pl.DataFrame(rows, {**SCHEMA, EVENT_TIME: pl.Int64()}, orient="row")
        clock = Times.of(watermark if watermark == MAX_TIME else watermark * SECOND)
        return self.stage.step(self.store, {MAIN: arrivals}, clock)


def found(step: StageResult) -> list[tuple[int, int | None, int]]:
    rows = step.panes.select(LEFT, RIGHT, EVENT_TIME).rows()
    return [(left["number"], right and right["number"], at // SECOND) for left, right, at in rows]


def by_hand(
    bundles: Sequence[Bundle], how: How, tolerance: int | None
) -> list[list[tuple[int, int | None, int]]]:
    """Joins row by row: returns, for each step, the rows that the watermark passes with their best versions."""
    waiting: list[tuple[int, int, str | None]] = []
    versions: list[tuple[int, int, str | None]] = []
    steps, number, watermark = [], 0, -10_000
    for left, right, then in bundles:
        for rows, own in ((left, waiting), (right, versions)):
            for key, at in rows:
                if at >= watermark or own is versions:
                    own.append((at, number, key))
                number += 1
        watermark = max(watermark, then)
        step = []
        for at, one, key in sorted(row for row in waiting if row[0] < watermark):
            fits = [v for v in versions if key is not None and v[2] == key and v[0] <= at]
            best = max(fits, default=None)
            if best is not None and tolerance is not None and at - best[0] > tolerance:
                best = None
            if best is not None or how == "left":
                step.append((one, best and best[1], at))
        waiting = [row for row in waiting if row[0] >= watermark]
        steps.append(step)
    return steps


rows = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 20)), max_size=6)
bundles = st.lists(st.tuples(rows, rows, st.integers(0, 20)), min_size=1, max_size=6)


@given(bundles, st.sampled_from(["left", "inner"]), st.none() | st.integers(0, 6))
def test_each_row_has_the_version_of_its_time(given_: list[Bundle], how: How, tolerance: int | None) -> None:
    run, got = Run(stage(how, tolerance)), []
    for number, bundle in enumerate([*given_, ((), (), MAX_TIME)]):
        if number == 2:
            again = DictStore()
            restore(run.stage, again, save(run.stage, run.store))
            run.store = again
        step = run.step(bundle)
        got.append(found(step))
    assert got == by_hand([*given_, ((), (), MAX_TIME)], how, tolerance)
    assert (step.live, step.pending) == (0, 0)


def test_a_row_waits_and_holds_until_the_watermark_has_passed_it() -> None:
    run = Run(stage("left", None))
    run.step(((), [("k", 2)], 0))
    step = run.step(([("k", 5)], (), 5))
    assert (found(step), step.watermarks.output, step.pending) == ([], 5 * SECOND, 1)
    assert found(run.step(((), (), 6))) == [(1, 0, 5)]


def test_versions_that_no_row_can_see_any_more_are_forgotten() -> None:
    run = Run(stage("left", None))
    run.step(((), [("k", at) for at in (1, 2, 3, 9)], 0))
    step = run.step(((), (), 5))
    assert step.live == 2  # 3 and 9
    run = Run(stage("left", 4))
    run.step(((), [("k", 1)], 0))
    assert [run.step(((), (), at)).live for at in (5, 6)] == [1, 0]


def test_late_rows_are_dropped_and_corrections_are_not() -> None:
    run = Run(stage("left", None, late=True))
    run.step(((), [("k", 2)], 10))
    step = run.step(([("k", 9)], [("k", 3)], 10))
    assert step.dropped == {"late": 1}
    assert step.late.select(pl.col(RIGHT).is_not_null(), "reason").rows() == [(False, "late")]
    assert found(run.step(([("k", 11)], (), 20))) == [(3, 2, 11)]
