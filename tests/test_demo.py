"""The demo, in process: what it shows and when it fails. The Spark tests hold that both runners agree."""

from __future__ import annotations

import polars as pl
import pytest
from click.testing import CliRunner

from examples import demo, oracle, session_lengths
from windowing.time import MAX_TIME, MIN_TIME

SMALL = ["--runner", "local", "--events", "20000", "--files", "6"]


def test_both_variants_equal_the_oracle_and_earliest_delays_the_second_stage(tmp_path):
    result = CliRunner().invoke(demo.main, [*SMALL, "--work", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.output.count("OK all") == 2
    assert "END_OF_WINDOW the second stage" in " ".join(result.output.split())
    assert "EARLIEST delays the second stage by" in " ".join(result.output.split())


def test_it_can_be_run_again_on_the_same_folder(tmp_path):
    for _ in range(2):
        assert CliRunner().invoke(demo.main, [*SMALL, "--work", str(tmp_path)]).exit_code == 0


def test_a_wrong_answer_is_shown_and_fails(tmp_path, monkeypatch):
    right = oracle.averages
    monkeypatch.setattr(oracle, "averages", lambda *given: right(*given).with_columns(pl.col("sessions") + 1))
    result = CliRunner().invoke(demo.main, [*SMALL, "--work", str(tmp_path)])
    assert result.exit_code == 1
    assert "WRONG" in result.output


def test_the_pipelines_can_be_planned_before_there_is_any_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for pipeline in (session_lengths.end_of_window, session_lengths.earliest):
        stages = pipeline().plan().stages
        assert set(stages) == {"sessions of mobile", "sessions of console", "average"}


def test_points_are_spread_over_the_run_and_end_with_it():
    assert demo.points(range(11)) == [1, 4, 7, 10]
    assert demo.points(range(2)) == [0, 1]


@pytest.mark.parametrize(
    ("us", "shown"), [(MIN_TIME, "-inf"), (MAX_TIME, "+inf"), (1_767_268_859_999_999, "12:00:59")]
)
def test_watermarks_are_shown_as_time_of_day_with_their_limits(us, shown):
    assert demo.clock(us) == shown
