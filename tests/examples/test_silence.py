"""Silent sensors are found as by polars, for any batches of readings, on both runners."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal

import beamlike as bl
from examples import silence
from examples.silence import BOUND, SILENCE, Sensors, readings, run


@pytest.fixture(scope="module")
def heard() -> pl.DataFrame:
    return readings(Sensors(sensors=40))


def test_no_reading_comes_later_than_promised_and_most_are_out_of_order(heard: pl.DataFrame) -> None:
    behind = heard["at"].cum_max() - heard["at"]
    assert behind.max() <= BOUND
    assert (behind > pl.Series([0]).cast(pl.Duration("us"))[0]).mean() > 0.5


def test_some_sensors_die_and_some_come_back(heard: pl.DataFrame) -> None:
    told = silence.expected(heard)
    back = told.filter(pl.col("what") == "back")
    silent = told.filter(pl.col("what") == "silent")
    assert len(silent) > len(back) > 2
    assert silent["event_time"].dtype == pl.Datetime("us", "UTC")


def test_a_pause_of_exactly_ten_minutes_is_a_silence(heard: pl.DataFrame) -> None:
    times = run(heard).filter(pl.col("sensor") == "s000")["event_time"].to_list()
    assert times[0] == times[1]


@pytest.mark.parametrize("batches", [1, 7, 30])
def test_what_is_told_does_not_depend_on_batches(heard: pl.DataFrame, batches: int) -> None:
    assert_frame_equal(run(heard, batches=batches), silence.expected(heard))


def test_what_is_expected_is_right_for_one_sensor_by_hand() -> None:
    at = [silence.START + minutes * SILENCE / 10 for minutes in (0, 5, 15, 15.5, 40)]
    told = silence.expected(pl.DataFrame({"sensor": "a", "at": at, "celsius": 20.0}))
    minutes = [(time - silence.START) / SILENCE * 10 for time in told["event_time"]]
    assert list(zip(told["what"], minutes, strict=True)) == [
        ("silent", 15),
        ("back", 15),
        ("silent", 25.5),
        ("back", 40),
    ]


def test_a_wrong_answer_is_told_and_fails(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "expected", lambda heard: run(heard).head(1))
    done = CliRunner().invoke(silence.main, ["--sensors", "20", "--work", str(tmp_path)])
    assert done.exit_code == 1
    assert "WRONG" in done.output


@pytest.mark.slow
@pytest.mark.spark
def test_it_is_the_same_on_spark(spark: Any) -> None:
    few = readings(Sensors(sensors=12, hours=1))
    on_spark = run(few, bl.SparkRunner(session=spark, shards=2, drain=True), batches=4)
    assert_frame_equal(on_spark, silence.expected(few))
