"""The benchmark of keyed state and timers: its jobs have the same results, and its figures are as described."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks import process, process_job
from benchmarks.process_stage import TIERS, Bench, many_keys, many_rows, timers
from benchmarks.throughput_report import Run
from tests.support.small_batches import Counter

SECOND = 1_000_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return process.inputs(12, tmp_path_factory.mktemp("silence"))


@pytest.mark.parametrize("job", ["local", "batches"])
def test_the_job_finds_what_polars_finds(data: Path, tmp_path: Path, job: str) -> None:
    process_job._RUN[job](data, tmp_path / "out", 1)
    told, right = process.answer(tmp_path / "out", process.expected(data))
    assert right, told


def test_what_is_missing_and_what_is_wrong_is_told(data: Path, tmp_path: Path) -> None:
    right = process.expected(data)
    other = right.head(1).with_columns(sensor=pl.lit("nobody"))
    pl.concat([right.slice(2), other]).write_parquet(tmp_path / "some.parquet")
    assert process.answer(tmp_path, right) == (f"2 of {len(right)} silences missing, 1 wrong", False)


@pytest.mark.parametrize("tier", TIERS)
def test_a_step_of_each_tier_is_measured(tier: str) -> None:
    figure = many_rows(tier, rows=200, keys=20, steps=1)
    assert figure.rows == 200
    assert figure.seconds > 0


def test_process_and_the_function_of_frames_find_the_same_silences() -> None:
    found = []
    for tier in ("Process", "process_batches"):
        bench = Bench(tier)
        for number in range(4):
            bench.step(*quarter(number), (number + 1) * 900 * SECOND)
        found.append(bench.panes)
    assert found[0] == found[1] > 0


def quarter(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns some rows of few users in a quarter of an hour, in order of time."""
    rows = pl.DataFrame({"user": [(7 * i + number) % 5 for i in range(8)]})
    times = pl.Series([number * 900 * SECOND + i * 100 * SECOND for i in range(8)])
    return rows["user"].to_numpy(), times.to_numpy()


def test_all_timers_fire_and_all_keys_are_there() -> None:
    assert [figure.rows for figure in timers(50)] == [50, 50, 50]
    assert many_keys(keys=400, rows=40, shards=2, steps=1).rows == 40


def test_native_spark_is_compared_on_the_same_input() -> None:
    runs = [
        Run("spark", 1_000, 9.0, 9.0, 1, "right", True, batch=0.5),
        Run("native", 1_000, 9.0, 9.0, 1, "right", True, batch=5.0),
    ]
    assert [*process.ratios(runs)] == [
        "1,000 readings, native Spark by beamlike on Spark: a batch 10.0, CPU of the whole run 1.0"
    ]
    assert len([*process.job_rows(runs)]) == 2


def calls(rows: int, keys: int) -> int:
    """Returns the Python calls of a step in which these rows arrive."""
    bench, counter = Bench("Process"), Counter()
    for number in range(2):  # imports and expressions are made in the first step
        if number:
            sys.setprofile(counter.count)
        bench.step(np.arange(rows) % keys, np.arange(rows) + number * SECOND, (number + 1) * SECOND)
    sys.setprofile(None)
    return counter.calls


def test_a_row_of_a_process_takes_few_python_calls() -> None:
    # The dict of the row, `element` with `self.time` and `after`, and what follows the call.
    more_rows = calls(rows=9_000, keys=100) - calls(rows=5_000, keys=100)
    assert more_rows / 4_000 == pytest.approx(5, abs=0.05)
    # Fewer keys would be stored without a directory, with fewer calls.
    more_keys = calls(rows=5_000, keys=1_100) - calls(rows=5_000, keys=600)
    assert more_keys / 500 < 12
