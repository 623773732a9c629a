"""The numbers of charts: few points for many batches, without losing a row or a peak."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamlike.observe.charts.series import run_series
from beamlike.observe.live import chart
from beamlike.observe.live.chart import Points
from beamlike.observe.live.charts import RunCharts
from beamlike.records.graph import RunDescription
from tests.support.histories import PLAN, at, batch, history, source_record, stage, stage_record
from tests.support.simulated import flagship, wide
from windowing.time import MAX_TIME, MIN_TIME

COUNTS = st.lists(st.integers(0, 10**6), min_size=1, max_size=4 * chart._MOST)


@given(COUNTS)
def test_merged_points_keep_every_row_every_peak_and_the_last_value(counts: list[int]) -> None:
    values = np.array(counts, np.int64)
    points = Points.of(np.arange(len(counts), dtype=np.int64) * 1_000_000)
    assert len(points.seconds()) <= chart._MOST
    assert sum(points.sums(values)) == sum(counts)
    assert max(one for one in points.most(values.astype(float)) if one is not None) == max(counts)
    assert points.last(counts)[-1] == counts[-1]
    assert points.seconds()[-1] == len(counts) - 1


def test_a_watermark_at_an_end_of_time_has_no_point() -> None:
    points = Points.of(np.array([0, 1_000_000, 2_000_000]))
    assert points.marks(np.array([MIN_TIME, 500_000, MAX_TIME])) == [None, 0.5, None]
    reference = np.array([1_000_000, 2_000_000, 3_000_000])
    assert points.lag(np.array([MIN_TIME, 500_000, MAX_TIME]), reference) == [None, 1.5, None]


def test_all_lines_of_a_chart_have_a_value_for_each_time() -> None:
    for run in (flagship(held=True), wide(each=8), flagship(held=True, batches=1)):
        charts = RunCharts.of(run)
        every = [*charts.sources(), *charts.batches()]
        every += [one for name in run.plan.stages for one in charts.stage(name)]
        for one in every:
            assert {len(line.values) for line in one.lines} <= {len(one.times)}, one.title


def test_panes_are_marks_at_the_input_watermark() -> None:
    history = flagship(held=False)
    watermarks, *_ = RunCharts.of(history).stage("average")
    lines = {line.label: line.values for line in watermarks.lines}
    there = [place for place, value in enumerate(lines["on time panes"]) if value is not None]
    assert there
    assert all(lines["on time panes"][place] == lines["input watermark"][place] for place in there)


@pytest.mark.parametrize("stages", range(1, 6))
@pytest.mark.parametrize("workers", [1, 3])
def test_stages_of_one_level_share_the_time_of_the_level(stages: int, workers: int) -> None:
    """Each stage is done half a second after the one before it, or they are done together."""
    done = {f"stage {one}": 60 + 0.5 * (1 + one // workers) for one in range(stages)}
    records = {name: stage_record(50, 40, finished=at(when)) for name, when in done.items()}
    plan = RunDescription("p", {"plays": PLAN.sources["mobile"]}, {name: stage(("plays",)) for name in done})
    made = history(batch(0, 60, {"plays": source_record(55)}, records, finished=70), plan=plan)
    own = run_series(made).own_times()
    assert sum(float(one[0]) for one in own.values()) == max(done.values()) - 60, (
        "no more than the batch took"
    )
    assert all(float(one[0]) in (0.0, 0.5) for one in own.values())


@given(COUNTS)
def test_rates_keep_every_row(counts: list[int]) -> None:
    values = np.array(counts, np.int64)
    points = Points.of(np.arange(len(counts), dtype=np.int64) * 1_000_000)
    rates = points.rates(values, np.full(len(counts), 2.0))
    spans = 2 * (points.ends - points.starts + 1)
    assert round(sum((one or 0) * span for one, span in zip(rates, spans.tolist(), strict=True))) == sum(
        counts
    )
    assert set(points.rates(values, np.zeros(len(counts)))) == {None}


def test_the_parts_of_the_time_of_a_batch_are_within_the_whole() -> None:
    times, *_ = RunCharts.of(flagship(held=True)).batches()
    whole, *parts = times.lines
    for place in range(len(times.times)):
        below = [part.values[place] or 0 for part in parts]
        assert below == sorted(below, reverse=True)
        assert all(part <= (whole.values[place] or 0) for part in below)


def test_the_parts_of_a_point_are_those_of_one_batch() -> None:
    count = 2 * chart._MOST
    first = np.array([10.0, 0.0] * chart._MOST)
    second = 10 - first
    points = Points.of(np.arange(count, dtype=np.int64))
    shown = points.largest(first + 2 * second)
    assert set(first[shown]) == {0.0}
    assert set(second[shown]) == {10.0}
