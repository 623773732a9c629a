"""The times until which elements are accepted and at which windows are collected."""

from __future__ import annotations

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from windowing.columns import EVENT_TIME, WINDOW_END
from windowing.lateness import collected_at, collection, in_time, is_collected
from windowing.time import GLOBAL_WINDOW_END, MAX_TIME, MIN_TIME

times = st.integers(MIN_TIME, GLOBAL_WINDOW_END)
latenesses = st.integers(0, GLOBAL_WINDOW_END - 1)


@given(times, latenesses)
@example(GLOBAL_WINDOW_END, 1)
def test_a_window_is_collected_the_lateness_after_its_end_and_before_the_end_of_input(
    end: int, lateness: int
) -> None:
    expected = min(end + lateness, GLOBAL_WINDOW_END)
    assert collection(end, lateness) == expected < MAX_TIME
    assert pl.select(collected_at(lateness, pl.lit(end, pl.Int64))).item() == expected
    assert pl.DataFrame({WINDOW_END: [end]}).select(collected_at(lateness)).item() == expected


@given(times, st.integers(MIN_TIME, MAX_TIME), latenesses)
@example(MIN_TIME, MIN_TIME, GLOBAL_WINDOW_END - 1)
@example(GLOBAL_WINDOW_END, GLOBAL_WINDOW_END, 1)
def test_a_window_is_collected_when_the_watermark_is_at_that_time(
    end: int, watermark: int, lateness: int
) -> None:
    found = is_collected(pl.Series([end]), watermark, lateness).to_list()
    assert found == [collection(end, lateness) <= watermark]


@given(times, times, latenesses)
@example(MIN_TIME, MIN_TIME, GLOBAL_WINDOW_END - 1)
def test_an_element_is_in_time_if_it_is_at_most_the_lateness_behind(
    at: int, watermark: int, lateness: int
) -> None:
    found = pl.DataFrame({EVENT_TIME: [at]}).select(in_time(watermark, lateness)).item()
    assert found == (at >= watermark - lateness)
