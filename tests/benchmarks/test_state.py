"""The benchmark of large state measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from benchmarks import state, state_flink, state_report
from benchmarks.state_native import NATIVE, frames
from benchmarks.state_operators import OPERATORS, run
from benchmarks.state_report import State
from benchmarks.workloads import Load


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_has_the_state_that_was_requested(operator: str) -> None:
    batches = run(OPERATORS[operator], rows=2_000, arrivals=100, batches=2)
    assert [batch.cpu > 0 for batch in batches] == [True, True]
    assert all(900 <= batch.live <= 2_200 for batch in batches)
    assert all(batch.read > 0 and batch.written > 0 for batch in batches)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("operator", ["early panes", "dedup", "distinct", "interval join"])
def test_native_spark_has_as_many_results_as_polars(operator: str, tmp_path: Path) -> None:
    load, batches = Load(1_000, 100), 2
    out = tmp_path / "out.json"
    options = [f"--rows={load.rows}", f"--arrivals={load.arrivals}", f"--batches={batches}"]
    subprocess.run([sys.executable, "-m", "benchmarks.state_native", operator, out, *options], check=True)
    rows = [*frames(operator, load, 5 + batches)]
    totals = [_results(operator, pl.concat(rows[:count])) for count in range(1, len(rows) + 1)]
    expected = [after - before for before, after in pairwise(totals)]
    if operator == "early panes":
        expected = [each["user"].n_unique() for each in rows[1:]]
    assert [batch["panes"] for batch in json.loads(out.read_text())] == expected[-batches:]


def _results(operator: str, rows: pl.DataFrame) -> int:
    if "join" not in operator:
        return rows["user"].n_unique()
    pairs = rows.remove("right").join(rows.filter("right"), on="user")
    after = pl.col("at_right") - pl.col("at")
    return len(pairs.filter(after.is_between(pl.duration(), pl.duration(hours=1))))


def test_flink_has_the_rows_of_the_others_in_three_files(tmp_path: Path) -> None:
    load, batches = Load(2_000, 10), state_flink.BATCHES
    state_flink.write("interval join", load, tmp_path)
    state_rows, warm, measured = (
        pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("state", "warm", "measured")
    )
    assert (len(state_rows), len(measured)) == (load.rows, batches * load.arrivals)
    everything = pl.concat([state_rows, warm, measured])
    assert everything["at"].is_sorted()
    others = pl.concat(frames("interval join", load, len(warm) // load.arrivals + batches))
    assert everything["user"].equals(others["user"])


def test_the_cost_of_a_batch_in_flink_is_its_share_of_what_the_job_measured(tmp_path: Path) -> None:
    (tmp_path / "seconds.json").write_text(json.dumps({"wall": 15.0, "cpu": 30.0}))
    assert state_flink.seconds(tmp_path) == (15.0 / state_flink.BATCHES, 30.0 / state_flink.BATCHES)


def _state(engine: str, workload: str, rows: int, cpu: float) -> State:
    return State(engine, workload, rows, 10, rows, cpu, cpu, cpu, cpu, 1)


def test_the_table_has_the_cpu_time_of_all_shards_beside_other_engines() -> None:
    states = [
        _state("stage", "dedup", 1_000, 0.02),
        _state("native", "dedup", 1_000, 0.5),
        _state("flink", "dedup", 1_000, 0.1),
        _state("stage", "dedup", 100_000, 0.03),
    ]
    names, _, *rows = state_report.side_by_side(states, OPERATORS, "operator")
    columns = "operator | live rows | stage ms | stage CPU ms | native ms | native CPU ms | flink CPU ms"
    assert names == f"| {columns} |"
    assert rows == ["| dedup | 1,000 | 20 | 40 | 500 | 500 | 100 |", "| dedup | 100,000 | 30 | 60 |  |  |  |"]
    assert [*state_report.growth(states)] == ["dedup: stage 1.50 times (1,000 to 100,000)"]


def test_a_run_that_fails_does_not_end_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(engine: str, workload: str, rows: int, *_: object) -> State:
        if workload == "dedup":
            raise state.click.ClickException("no")
        return _state(engine, workload, rows, 0.1)

    monkeypatch.setattr(state, "run", run)
    options = ["--only=stage", "--rows=1000", "--windows=dedup", "--windows=distinct"]
    folders = [f"--work={tmp_path}", f"--results={tmp_path / 'state.json'}"]
    done = CliRunner().invoke(state.main, [*options, *folders])
    assert done.exit_code == 1
    assert "failed: stage, dedup: 1,000 rows" in done.output
    assert [each["workload"] for each in json.loads((tmp_path / "state.json").read_text())["figures"]] == [
        "distinct"
    ]


def test_only_a_stage_has_ten_million_rows_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()

    def run(engine: str, workload: str, rows: int, *_: object) -> State:
        seen.add((engine, workload, rows))
        return _state(engine, workload, rows, 0.1)

    monkeypatch.setattr(state, "run", run)
    CliRunner().invoke(state.main, [f"--work={tmp_path}", f"--results={tmp_path / 'state.json'}"])
    assert {engine for engine, _, rows in seen if rows == 10_000_000} == {"stage"}
    in_flink = {(workload, rows) for engine, workload, rows in seen if engine == "flink"}
    assert ("dedup", 1_000_000) in in_flink
    assert {rows for workload, rows in in_flink if "join" in workload} == {100_000}
    assert {workload for engine, workload, _ in seen if engine == "native"} == {
        *NATIVE,
        "fixed",
        "sliding",
        "sessions",
    }
