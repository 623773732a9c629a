"""A step runs no Python per window: the number of Python calls does not depend on how many windows fire."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, ClassVar

import polars as pl
import pytest

import beamlike as bl
from beamlike.expressions.row_expression import ExpressionOfRows
from stages.aggregates.builtin import Count
from stages.aggregates.combine_fn import Combine
from stages.aggregates.counted import CountDistinct, Median
from stages.aggregates.ranked import Top
from stages.aggregates.spread import Var
from stages.aggregates.totals import Sum
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from tests.support.runs import InOrder
from windowing import (
    Accumulation,
    AfterAny,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    FixedWindows,
    Sessions,
    Trigger,
    WindowFn,
    Windowing,
)
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_TIMING

SCHEMA = pl.Schema({"user": pl.Int64(), "score": pl.Int64()})
EARLY_AND_LATE = AfterWatermark(early=AfterCount(10), late=AfterCount(1))
NESTED = AfterWatermark(early=AfterAny(AfterCount(10), AfterProcessingTime("30s")), late=AfterCount(1))


def arrivals(windows: int, each: int) -> pl.DataFrame:
    """Returns `each` elements for each of `windows` users, and so windows."""
    user = pl.int_range(windows * each, eager=True) % windows
    return pl.DataFrame({"user": user, "score": 1, EVENT_TIME: 0}, schema={**SCHEMA, EVENT_TIME: pl.Int64()})


class Firing:
    """A stage in which all windows fire early, on time and late; counts the Python calls of each step."""

    def __init__(self, windowing: Windowing, windows: int) -> None:
        aggregates = {
            "score": Sum("score"),
            "plays": Count(where=ExpressionOfRows(bl.col("score") > 0)),
            "scores": CountDistinct("score"),
            "middle": Median("score"),
            "spread": Var("score"),
            "top": Top("score", 2),
        }
        self.stage = Stage("grouping", Grouping(("user",), windowing, aggregates, SCHEMA))
        self.windows, self.store, self.calls = windows, DictStore(), 0

    def run(self) -> dict[str, int]:
        """Runs the steps and returns the number of panes by timing."""
        sys.setprofile(self._count)
        try:
            panes = [self._step(10, 0), self._step(0, 60_000_000), self._step(1, 60_000_000)]
        finally:
            sys.setprofile(None)
        return dict(pl.concat(panes)[PANE_TIMING].value_counts().rows())

    def _step(self, each: int, watermark: int) -> pl.DataFrame:
        return self.stage.step(self.store, {MAIN: arrivals(self.windows, each)}, Times.of(watermark)).panes

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        self.calls += event == "call"


@pytest.mark.parametrize("accumulation", Accumulation)
@pytest.mark.parametrize("trigger", [EARLY_AND_LATE, NESTED], ids=["early and late", "nested"])
@pytest.mark.parametrize("windows", [FixedWindows("1m"), Sessions("1m")], ids=["fixed", "sessions"])
def test_python_calls_do_not_grow_with_the_windows_that_fire(
    windows: WindowFn, trigger: Trigger, accumulation: Accumulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Chunks of the store have a size of their own: of more rows there are more, each with a few calls. And of a large
    # bucket not all is looked at, which takes some calls, too. Few rows are sorted by another library than many. Only
    # small chunks are remembered.
    monkeypatch.setattr("stages.state.chunks.CHUNK_BYTES", 10**9)
    monkeypatch.setattr("stages.state.storage.LARGE_BYTES", 10**9)
    monkeypatch.setattr("stages.state.chunks._MOST_BYTES", 0)
    monkeypatch.setattr("windowing.sweep._FEW", 0)
    windowing = Windowing(windows, trigger, accumulation, allowed_lateness="1h")
    few, many = Firing(windowing, 2_000), Firing(windowing, 10_000)
    few.run()  # imports and caches
    few = Firing(windowing, 2_000)
    expected = {"early": 1, "on_time": 1, "late": 1}
    if accumulation is Accumulation.RETRACTING:
        expected = {"early": 2, "on_time": 2, "late": 1}
    assert few.run() == {timing: 2_000 * count for timing, count in expected.items()}
    assert many.run() == {timing: 10_000 * count for timing, count in expected.items()}
    # Now and then the garbage collector calls, too.
    assert abs(many.calls - few.calls) < 100


class Counted(Combine):
    """Counts the calls that polars makes to it, in threads of polars."""

    calls: ClassVar[list[int]] = []

    def _merge(self, groups: pl.Series, what: str) -> Any:
        self.calls.append(len(groups))
        return super()._merge(groups, what)


@pytest.mark.parametrize("windows", [FixedWindows("1m"), Sessions("1m")], ids=["fixed", "sessions"])
def test_all_windows_of_a_step_are_merged_in_one_call_to_a_users_aggregate(windows: WindowFn) -> None:
    def calls(count: int) -> int:
        own = {"scores": Counted(InOrder(), "score", pl.List(pl.Int64()))}
        stage, store = Stage("own", Grouping(("user",), Windowing(windows), own, SCHEMA)), DictStore()
        Counted.calls.clear()
        for rows in (arrivals(count, 3), arrivals(count, 2), arrivals(0, 0)):
            panes = stage.step(store, {MAIN: rows}, Times.of(0 if len(rows) else 120_000_000)).panes
        assert panes["scores"].to_list() == [[1] * 5] * count
        return len(Counted.calls)

    assert calls(1_000) == calls(10) < 10
