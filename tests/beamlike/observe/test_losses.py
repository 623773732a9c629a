"""Losses of a run: each row counts once, and a run that loses much is not healthy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

import beamlike as bl
from beamlike.observe import History
from beamlike.observe.charts.layers import Frame
from beamlike.observe.charts.series import run_series
from beamlike.observe.health import Health
from beamlike.observe.totals import Losses
from tests.support.histories import PLAN, at, batch, history, source_record, stage, stage_record

ON_TIME, LATE = 40, 3


def ran(folder: Path, *windows: Any, after: bool = False) -> History:
    """Returns the history of a run of 43 rows, of which three come after all windows have passed."""
    times = [*range(0, 400, 10), 1_000, *range(LATE), 1_001]
    rows = bl.Rows([{"at": at} for at in times], rows_per_batch=1)
    read = bl.Pipeline("p").read(
        "plays", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    for number, one in enumerate(windows):
        counted = read.window_into(one).aggregate(n=bl.count()).named(f"stage {number}")
        counted.write(f"out {number}", bl.Memory())
    read.pipeline.run(bl.LocalRunner(records=folder / "run.jsonl"))
    return History.open(folder / "run.jsonl")


@pytest.mark.parametrize(
    "windows",
    [
        [bl.FixedWindows("1m")],
        [bl.SlidingWindows("1m", "30s")],
        [bl.SlidingWindows("1m", "10s")],
        [bl.SlidingWindows("1m", "1s")],
        [bl.CalendarWindows("days"), bl.FixedWindows("1m")],
        [bl.FixedWindows("1m"), bl.FixedWindows("10s")],
        [bl.FixedWindows("1m"), bl.SlidingWindows("1m", "10s"), bl.FixedWindows("20s")],
    ],
    ids=lambda windows: " and ".join(type(one).__name__ for one in windows),
)
def test_a_late_row_counts_once(windows: list[Any], tmp_path: Path) -> None:
    told = ran(tmp_path, *windows)
    losses = Losses.of(told, told.batches)
    assert losses.total == LATE
    assert str(losses) == "3 elements were"
    assert losses.read == ON_TIME + LATE + 2


@pytest.mark.parametrize(
    ("dropped", "placed", "expected"),
    [(0, 100, 0), (100, 100, 100), (5, 500, 1), (7, 500, 2), (1, 500, 1), (3, None, 3), (500, 500, 100)],
)
def test_drops_are_divided_by_the_windows_of_an_element(
    dropped: int, placed: int | None, expected: int
) -> None:
    record = stage_record(50, 40, elements=100, placed=placed, dropped={"late": dropped})
    made = history(batch(0, 60, {"mobile": source_record(55, elements=100)}, {"sessions": record}))
    assert Losses.of(made, made.batches).total == expected


@pytest.mark.parametrize(
    ("late", "dead", "healthy"), [(0, 0, True), (1, 0, True), (2, 0, False), (0, 2, False)]
)
def test_a_run_that_loses_more_than_a_hundredth_is_not_healthy(late: int, dead: int, healthy: bool) -> None:
    sources = {"mobile": source_record(55, elements=100, read=100, dead_letters=dead)}
    stages = {"average": stage_record(50, 40, elements=100, placed=100, dropped={"late": late}, live=1)}
    plan = attrs.evolve(
        PLAN, stages={"average": stage(("mobile",))}, sources={"mobile": PLAN.sources["mobile"]}
    )
    made = history(batch(0, 60, sources, stages, finished=61), plan=plan)
    made.alive = True
    series = run_series(made)
    told, *_ = Health(made, made.present(at(62)), series, Frame.around(series)).verdict()
    assert told.startswith("Healthy: no lag grows") == healthy
    if not healthy:
        assert told.startswith("Loses rows: of the last 100 ")
        assert f"most of them by `{'average' if late else 'mobile'}`" in told
