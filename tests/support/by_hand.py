"""Fixtures for cases worked out by hand, which are played on the stage and also on the model, to test the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.model import Model, Step
from tests.support.runs import Run, StageRun, in_order
from tests.support.strategies import us
from windowing import (
    Accumulation,
    AfterCount,
    AfterWatermark,
    DefaultTrigger,
    FixedWindows,
    TimestampCombiner,
    Trigger,
    WindowFn,
    Windowing,
)

TEN = FixedWindows(us(10))
ACCUMULATING, RETRACTING = Accumulation.ACCUMULATING, Accumulation.RETRACTING
EARLIEST, LATEST = TimestampCombiner.EARLIEST, TimestampCombiner.LATEST
COUNTS = AfterWatermark(early=AfterCount(2), late=AfterCount(1))


New = Callable[..., Run]


@pytest.fixture(params=[Model, StageRun], ids=["model", "stage"])
def new(request: pytest.FixtureRequest) -> New:
    """Returns a function that makes a model or a stage of a windowing: by default ten microseconds, default trigger."""

    def make(windows: WindowFn = TEN, trigger: Trigger | None = None, late: int = 0, **choices: Any) -> Run:
        trigger = trigger or DefaultTrigger()
        lateness = us(late)
        made: Run = request.param(
            Windowing(windows, trigger, allowed_lateness=lateness, allow_data_loss=True, **choices)
        )
        return made

    return make


def add(
    run: Run,
    *times: int,
    to: int | None = None,
    now: int = 0,
    percentiles: Mapping[int, int] | None = None,
) -> Step:
    """Adds one bundle of key "k" whose values are their times, then moves the clocks; without a time they stay."""
    elements = [("k", time, time) for time in times]
    return run.step(elements, run.input_watermark if to is None else to, now, percentiles)


def brief(step: Step) -> list[tuple[tuple[int, int], list[int], str, int, int]]:
    """Returns window, values, timing, index and nonspeculative index of each pane, in order of windows."""
    return [
        (pane.window, pane.values, pane.timing, pane.index, pane.nonspeculative_index)
        for pane in in_order(step).panes
    ]
