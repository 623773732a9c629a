"""The numbers of charts: few points for many batches, without losing a row or a peak."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from beamlike.observe.live import chart
from beamlike.observe.live.chart import Points
from beamlike.observe.live.charts import RunCharts
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
    for history in (flagship(held=True), wide(each=8), flagship(held=True, batches=1)):
        charts = RunCharts.of(history)
        every = [*charts.sources(), *charts.batches()]
        every += [one for name in history.plan.stages for one in charts.stage(name)]
        for one in every:
            assert {len(line.values) for line in one.lines} <= {len(one.times)}, one.title


def test_panes_are_marks_at_the_input_watermark() -> None:
    history = flagship(held=False)
    watermarks, *_ = RunCharts.of(history).stage("average")
    lines = {line.label: line.values for line in watermarks.lines}
    there = [place for place, value in enumerate(lines["on time panes"]) if value is not None]
    assert there
    assert all(lines["on time panes"][place] == lines["input watermark"][place] for place in there)


def test_the_parts_of_the_time_of_a_batch_are_within_the_whole() -> None:
    times, *_ = RunCharts.of(flagship(held=True)).batches()
    whole, *parts = times.lines
    for place in range(len(times.times)):
        below = [part.values[place] or 0 for part in parts]
        assert below == sorted(below, reverse=True)
        assert all(part <= (whole.values[place] or 0) for part in below)
