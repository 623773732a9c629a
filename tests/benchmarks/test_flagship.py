"""The conclusions of the benchmark from its runs, on made-up figures."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest
from click.testing import CliRunner

from benchmarks import flagship
from benchmarks.flagship import Answer, Run
from benchmarks.measure import Usage

EXPECTED = pl.DataFrame(
    {
        "window_start": [datetime(2026, 1, 1, 12, minute, tzinfo=UTC) for minute in (0, 2, 4)],
        "mean": [100.0, 200.0, 300.0],
        "sessions": [10, 20, 30],
    }
)
RIGHT = Answer(windows=3, missing=0, wrong=0, lost=0, joined=0)


def a_run(engine: str, events: int, wall: float, cpu: float) -> Run:
    return Run(engine, events, Usage(wall, cpu, memory=1, code=0), RIGHT)


def test_an_equal_result_in_any_order_is_right():
    assert flagship.check(EXPECTED.reverse(), EXPECTED) == RIGHT
    assert RIGHT.right


def test_an_engine_that_writes_nothing_misses_every_window():
    assert flagship.check(EXPECTED.clear(), EXPECTED) == Answer(3, missing=3, wrong=0, lost=60, joined=0)


def test_windows_never_emitted_are_told_from_sessions_that_were_joined():
    result = EXPECTED.head(2).with_columns(sessions=pl.Series([10, 19]), mean=pl.Series([100.0, 210.0]))
    answer = flagship.check(result, EXPECTED)
    assert answer == Answer(windows=3, missing=1, wrong=1, lost=30, joined=1)
    assert not answer.right
    assert str(answer) == (
        "1 of 3 windows missing, with 30 sessions in them; 1 others wrong, with 1 sessions too few"
    )

    assert str(Answer(3, missing=0, wrong=1, lost=0, joined=1)) == (
        "1 of 3 windows wrong, with 1 sessions too few"
    )


def test_the_marginal_cost_is_free_of_the_start():
    runs = [a_run("spark", 1_000_000, wall=30.0, cpu=40.0), a_run("spark", 10_000_000, wall=39.0, cpu=49.0)]
    (spark,) = flagship.marginal(runs)
    assert spark.rate == pytest.approx(1e6)
    assert spark.cost == pytest.approx(1.0)


def test_one_size_alone_has_no_marginal_cost():
    assert flagship.marginal([a_run("local", 1_000_000, 1.0, 1.0)]) == []


def test_a_difference_that_noise_hides_has_no_rate():
    runs = [a_run("local", 1_000, wall=2.0, cpu=1.0), a_run("local", 2_000, wall=1.9, cpu=1.1)]
    assert flagship.marginal(runs)[0].rate is None


def test_the_ratio_needs_both_engines():
    spark = [a_run("spark", 1_000_000, 30.0, 40.0), a_run("spark", 2_000_000, 31.0, 41.0)]
    native = [a_run("native", 1_000_000, 30.0, 40.0), a_run("native", 2_000_000, 34.0, 44.0)]
    assert flagship.ratio(flagship.marginal(spark + native)) == pytest.approx(0.25)
    assert flagship.ratio(flagship.marginal(spark)) is None


def test_of_repeated_runs_the_one_with_least_cpu_counts():
    runs = [a_run("local", 1, wall=1.0, cpu=3.0), a_run("local", 1, wall=2.0, cpu=2.0)]
    assert flagship.least(runs) is runs[1]


@pytest.mark.parametrize("arguments", [["--only", "local,flink"], ["--events", "many"], ["--events", "0"]])
def test_unknown_engines_and_sizes_are_refused(arguments):
    result = CliRunner().invoke(flagship.main, arguments)
    assert result.exit_code == 2
    assert repr(arguments[1].split(",")[-1]) in result.output
