"""The numbers behind the charts of a report."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from beamlike.observe.charts.axes import BatchAxis, TimeAxis
from beamlike.observe.charts.charts import Charts, side_by_side
from beamlike.observe.charts.series import event_time_lag, lag_behind, run_series, steps, thinned
from tests.support.simulated import NOON, SECOND, flagship
from windowing.time import MAX_TIME, MIN_TIME

# Numbers behind the charts


def test_event_time_lag_is_a_saw_tooth_between_batches():
    #   lag  |   /|   /
    #        |  / |  /       the watermark stands still, and then moves
    #        | /  | /
    times = np.array([0, 10, 20]) * SECOND
    at, lag = event_time_lag(times, np.array([-5, 2, 2]) * SECOND)
    assert at.tolist() == [0, 10 * SECOND, 10 * SECOND, 20 * SECOND, 20 * SECOND]
    assert lag.tolist() == [5, 15, 8, 18, 18]


def test_the_ends_of_time_have_no_lag():
    times = np.array([0, 1, 2, 3]) * SECOND
    at, lag = event_time_lag(times, np.array([MIN_TIME, 0, SECOND, MAX_TIME]))
    assert lag.tolist() == [1, 2, 1]
    assert at.max() == 2 * SECOND


def test_the_lag_behind_another_watermark_is_told_while_both_are_somewhere_in_time():
    times, newest = np.array([0, 10, 20, 30]) * SECOND, np.array([MIN_TIME, 7, 9, MAX_TIME])
    newest[1:3] *= SECOND
    at, lag = lag_behind(newest, times, np.array([-5, 2, 2, 3]) * SECOND)
    assert (at / SECOND).tolist() == [10, 20, 20]
    assert lag.tolist() == [5, 5, 7]


def test_the_newest_source_is_one_that_has_not_ended():
    history = flagship(held=False, batches=4)
    last = history.batches[-1]
    history.batches[-1] = attrs.evolve(
        last, sources={**last.sources, "console": attrs.evolve(last.sources["console"], watermark=NOON)}
    )
    newest = run_series(history).newest
    assert newest[0] == MIN_TIME
    assert newest[1] == history.batches[1].sources["mobile"].watermark
    assert newest[-1] == NOON
    assert run_series(flagship(held=False, batches=4)).newest[-1] == MAX_TIME


def test_a_watermark_stands_still_until_the_next_batch():
    at, marks = steps(np.array([1, 2, 3]), np.array([10, 20, 20]))
    assert list(zip(at.tolist(), marks.tolist(), strict=True)) == [
        (1, 10),
        (2, 10),
        (2, 20),
        (3, 20),
        (3, 20),
    ]


def test_thinning_keeps_ends_and_peaks():
    values = np.zeros(10_000)
    values[4_321], values[77] = 9, -9
    kept = thinned(values)
    assert len(kept) <= 1_000
    assert {0, 77, 4_321, 9_999} <= set(kept.tolist())


def test_processing_time_lag_is_that_of_the_slowest_on_the_way():
    history = flagship(held=False, batches=2)
    stage = run_series(history).stages["average"]
    assert stage.input_system_lag.tolist() == [0.2, 0.23]
    assert stage.output_system_lag.tolist() == [0.4, 0.46]


def test_minus_infinity_is_nowhere_and_plus_infinity_at_the_edge():
    axis = TimeAxis(0, 10 * SECOND)
    places = axis.at(np.array([MIN_TIME, 5 * SECOND, MAX_TIME]))
    assert np.isnan(places[0])
    assert places[1:].tolist() == [5, 10]


@pytest.mark.parametrize(
    ("axis", "label", "clock"),
    [
        (TimeAxis(0, 3600 * SECOND), "event time (h:mm:ss)", "0:10:00"),
        (TimeAxis(NOON, NOON + 3600 * SECOND), "event time (UTC, 2026-01-01)", "00:10:00"),
        (
            TimeAxis(NOON, NOON + 86_400 * SECOND),
            "event time (UTC, 2026-01-01 to 2026-01-02)",
            "1970-01-01 00:10:00",
        ),
        (BatchAxis(-1, 1_000), "event time, in batches", "600,000,000"),
    ],
)
def test_times_are_said_as_shortly_as_the_axis_allows(axis, label, clock):
    assert axis.label("event time") == label
    assert axis.clock(600 * SECOND) == clock


def test_the_line_of_equal_times_is_drawn_only_where_it_is_in_view():
    live, replayed = flagship(held=False), flagship(held=False)
    later = 400 * 86_400 * SECOND
    replayed.batches[:] = [
        attrs.evolve(batch, processing_time=batch.processing_time + later) for batch in replayed.batches
    ]
    assert Charts.of(live).frame.same is not None
    assert Charts.of(replayed).frame.same is None


def test_runs_stand_side_by_side(tmp_path):
    runs = {"END_OF_WINDOW": flagship(held=False), "EARLIEST": flagship(held=True)}
    picture = side_by_side(runs, "average")
    svg = picture.svg()
    assert "END_OF_WINDOW" in svg
    assert "processing time, in batches" in svg
    picture.save(tmp_path / "pictures" / "runs.svg")
    picture.save(tmp_path / "pictures" / "runs.png")
    assert (tmp_path / "pictures" / "runs.svg").read_text(encoding="utf-8") == svg
    assert (tmp_path / "pictures" / "runs.png").read_bytes().startswith(b"\x89PNG")
