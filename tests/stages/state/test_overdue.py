"""Overdue rows that a large bucket keeps for a while: no reader sees them, and they are removed together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stages.joins.base import LEFT, RIGHT
from stages.joins.corrected_side import CorrectedSide
from stages.joins.interval import IntervalJoin
from stages.joins.interval_of_changes import IntervalJoinOfChanges
from stages.operator import MAIN
from stages.pending_rows import NUMBER
from stages.process.dedup import Dedup
from stages.snapshot import save
from stages.stage import Stage, StageResult
from stages.state.store import DictStore
from stages.state_tables import StateTable, Table
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.time import MAX_TIME
from windowing.windowing import Windowing

SECOND = 1_000_000
TICK = 250_000  # a quarter of the span of time of a bucket
ROW = pl.Struct({"number": pl.Int64()})
IDS = pl.Schema({"key": pl.Int64(), "number": pl.Int64()})
SIDES = pl.Schema({"key": pl.Int64(), LEFT: ROW, RIGHT: ROW})

Row = tuple[int, int, bool, bool]
"""Key, time (ticks), true for a right row, true for a retraction."""
Bundle = tuple[list[Row], int, int]
"""Rows, and by how much watermark and processing time advance (ticks)."""

rows = st.tuples(st.integers(0, 3), st.integers(-20, 4), st.booleans(), st.booleans())
bundles = st.lists(st.tuples(st.lists(rows, max_size=8), st.integers(0, 12), st.integers(0, 12)), max_size=8)


def dedup(by: str = "event", lateness: str = "0s", within: int = 2) -> Stage:
    windowing = Windowing(allowed_lateness=lateness)
    options = {"within": within * SECOND, "by": by, "order": "arrival", "title": "dedup"}
    return Stage("stage", Dedup(("key",), IDS, windowing, **options))


def interval(low: int = 0, high: int = 2, lateness: int = 0, time_of: str = "latest") -> Stage:
    bounds = {"low": low * SECOND, "high": high * SECOND, "allowed_lateness": lateness * SECOND}
    return Stage("stage", IntervalJoin(("key",), SIDES, how="inner", time_of=time_of, **bounds))


def of_changes(low: int = 0, high: int = 2) -> Stage:
    bounds = {"low": low * SECOND, "high": high * SECOND, "corrected": (LEFT, RIGHT)}
    return Stage("stage", IntervalJoinOfChanges(("key",), SIDES, how="inner", **bounds))


STAGES: dict[str, Callable[[], Stage]] = {
    "dedup": dedup,
    "dedup with lateness": lambda: dedup(lateness="1s"),
    "dedup by processing time": lambda: dedup("processing"),
    "dedup for long": lambda: dedup(within=60),
    "interval join": interval,
    "interval join with lateness": lambda: interval(-1, 1, lateness=1),
    "interval join backwards": lambda: interval(-3, -1),
    "interval join that holds": lambda: interval(0, 3, time_of="left"),
    "interval join of changes": of_changes,
    "interval join of changes backwards": lambda: of_changes(-3, -1),
}


@contextmanager
def searched_from(size: int) -> Iterator[None]:
    """Sets the size (bytes) from which buckets are searched, and keep overdue rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stages.state.storage.SEARCHED_BYTES", size)
        patch.setattr("stages.state.working_set.SMALL_BYTES", size - 1)
        yield


class Run:
    """A stage, its state and its clocks. Rows are numbered as they arrive."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.store, self.clock, self.now, self.number = stage, DictStore(), 0, 0, 0

    def step(self, bundle: Bundle) -> StageResult:
        arrived, ahead, later = bundle
        frame = pl.DataFrame(
            [
                {
                    "key": key,
                    "number": self.number + n,
                    LEFT: None if right else {"number": 0},
                    RIGHT: {"number": 0} if right else None,
                    EVENT_TIME: (self.clock + at) * TICK,
                    PANE_RETRACTED: retracted,
                }
                for n, (key, at, right, retracted) in enumerate(arrived)
            ],
            {**IDS, **SIDES, EVENT_TIME: pl.Int64(), PANE_RETRACTED: pl.Boolean()},
        )
        self.number += len(frame)
        self.clock, self.now = self.clock + ahead, self.now + later
        times = Times.of(min(self.clock * TICK, MAX_TIME), self.now * TICK)
        return self.stage.step(self.store, {MAIN: self.input(frame)}, times)

    def input(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Returns the columns of the stage's input, with the flag of retractions if it has one."""
        operator = self.stage.operator
        known = {*operator.inputs[MAIN].schema, *([PANE_RETRACTED] if operator.gives_changes else [])}
        return frame[:, [name for name in frame.columns if name in known]]

    def end(self) -> StageResult:
        """Ends the input."""
        self.clock = MAX_TIME
        return self.step(([], 0, 0))

    def rows(self) -> list[pl.DataFrame]:
        """Returns the rows of a savepoint, which has no overdue rows."""
        saved = save(self.stage, self.store)
        return [_comparable(table, saved.rows[table.table.name]) for table in self.stage.operator.tables]


def _comparable(table: StateTable[Table], frame: pl.DataFrame) -> pl.DataFrame:
    # A row and its retraction are beside each other until their bucket is loaded.
    left = table.left_of(frame) if isinstance(table, CorrectedSide) else frame
    return left.sort(*_order(frame))


def _order(frame: pl.DataFrame) -> list[str]:
    return [name for name in frame.columns if name == NUMBER or frame.schema[name] == pl.Int64()]


def said(step: StageResult) -> tuple[object, ...]:
    return sorted(map(repr, step.panes.rows())), step.watermarks, step.dropped, step.emitted, step.pending


@pytest.mark.parametrize("name", STAGES)
@given(stream=bundles)
def test_overdue_rows_that_a_bucket_keeps_change_nothing(name: str, stream: list[Bundle]) -> None:
    at_once, together = Run(STAGES[name]()), Run(STAGES[name]())
    for bundle in stream:
        with searched_from(10**9):
            expected, rows = at_once.step(bundle), at_once.rows()
        with searched_from(1):
            found = together.step(bundle)
            for one, other in zip(together.rows(), rows, strict=True):
                assert_frame_equal(one, other)
        assert said(found) == said(expected)
    assert together.end().live == 0


class Noting(DictStore):
    """A store that notes the keys that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def put(self, stage: str, key: str, value: bytes) -> None:
        self.written.append(key)
        super().put(stage, key, value)


@pytest.mark.parametrize("make", [lambda: dedup(within=64), lambda: interval(0, 64)])
def test_a_bucket_whose_rows_are_due_one_by_one_is_removed_without_being_rewritten(
    make: Callable[[], Stage],
) -> None:
    run, store = Run(make()), Noting()
    run.store = store
    with searched_from(1):
        run.step(
            ([(key, key, False, False) for key in range(8)], 8, 0)
        )  # a bucket has the times of two seconds
        store.written.clear()
        live = [run.step(([], 1, 0)).live for _ in range(300)]
    assert live[0] == 8
    assert live[-1] == 0
    assert {*live} == {8, 0}
    assert not any("rows/" in key for key in store.written)


def test_a_bucket_that_rows_of_a_later_time_share_is_rewritten_without_those_that_are_overdue() -> None:
    run = Run(dedup(within=64))
    with searched_from(1):
        run.step(([(1, 0, False, False)], 0, 0))
        # Bucket numbers repeat after 128 buckets of two seconds: this row is in the same bucket.
        run.step(([(2, 128 * 8, False, False)], 0, 0))
        assert [run.step(([], ahead, 0)).live for ahead in (64 * 4, 7, 1)] == [2, 2, 1]


def test_the_rows_of_a_small_bucket_are_removed_at_once() -> None:
    run = Run(dedup(within=64))
    run.step(([(key, key, False, False) for key in range(8)], 8, 0))
    assert [run.step(([], ahead, 0)).live for ahead in (64 * 4 - 8, 1, 1, 1)] == [7, 6, 5, 4]
