"""The benchmarks of state and throughput: their input is as described, and figures of other runs are kept."""

from __future__ import annotations

import attrs
import pytest
from click.testing import CliRunner

from benchmarks import engines, readme, throughput, throughput_report
from benchmarks.kept import keep, load
from benchmarks.logs import reason
from benchmarks.state_spark import CpuClock
from benchmarks.state_stage import run
from benchmarks.throughput_report import Run
from benchmarks.workloads import WORKLOADS, Load

NAMED = ("engine", "events")
MACHINE = {"commit": None, "processors": 2, "processor": "x"}


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))
def test_the_state_of_a_workload_is_as_large_as_asked(workload):
    asked = Load(rows=20_000, arrivals=500)
    batches = run(workload, asked, batches=6)
    lives = [batch.live for batch in batches]
    # Recent arrivals of a window may be stored beside its row.
    beside = 9 * asked.arrivals * workload.overlap
    assert max(lives) < 1.05 * asked.rows + beside
    assert min(lives) > 0.95 * asked.rows


@pytest.mark.parametrize("name", ["sessions", "sessions, early"])
def test_sessions_end_in_every_batch(name):
    batches = run(WORKLOADS[name], Load(rows=20_000, arrivals=500), batches=6)
    assert all(batch.panes > 20 for batch in batches)


def test_windows_end_as_fast_as_they_begin():
    batches = run(WORKLOADS["fixed, ending"], Load(rows=20_000, arrivals=500), batches=4)
    assert all(450 < batch.panes <= 500 for batch in batches)


def test_a_later_run_replaces_its_own_figures_only(tmp_path):
    path = tmp_path / "figures.json"
    keep(
        path,
        [{"engine": "a", "events": 1, "wall": 1.0}, {"engine": "b", "events": 1, "wall": 2.0}],
        NAMED,
        {},
    )
    kept = keep(path, [{"engine": "a", "events": 1, "wall": 3.0}], NAMED, {"processors": 2})
    assert [(each["engine"], each["wall"]) for each in kept] == [("a", 3.0), ("b", 2.0)]
    assert kept[0]["machine"] == {"processors": 2}
    assert load(path) == kept


def test_a_table_takes_the_place_between_its_markers(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- x -->\nold\n<!-- end of x -->\nafter\n")
    readme.put("x", readme.table(("engine", "s", "answer:"), [("a", "1", "right")]), path)
    table = "| engine | s | answer |\n|---|---:|---|\n| a | 1 | right |\n"
    assert path.read_text() == f"before\n<!-- x -->\n\n{table}\n<!-- end of x -->\nafter\n"
    with pytest.raises(ValueError, match="no place for 'y'"):
        readme.put("y", [], path)


def a_run(engine: str, events: int, wall: float, batch: float | None = None) -> Run:
    return Run(engine, events, wall, cpu=2 * wall, memory=1, answer="right", right=True, batch=batch)


def test_engines_are_compared_on_their_largest_inputs():
    runs = [
        a_run("local", 1_000_000, 1.0),
        a_run("local", 10_000_000, 4.0),
        a_run("beam", 100_000, 10.0),
        a_run("spark", 10_000_000, 20.0, batch=1.0),
        a_run("spark-large", 10_000_000, 10.0, batch=2.0),
        a_run("native", 10_000_000, 50.0, batch=4.0),
        a_run("flink-sql", 1_000_000, 15.0),
        a_run("flink-sql", 10_000_000, 60.0),
    ]
    assert throughput_report.ratios(runs) == [
        "beamlike, in process by Apache Beam, Python, local runner: whole runs 250.0",
        "beamlike, on Spark by PySpark streaming: whole runs 2.5, once they run 4.0",
        "beamlike, on Spark by Flink SQL: whole runs 3.0, once they run 2.5",
        "beamlike, on Spark, batches of 4 M by Flink SQL: whole runs 6.0, once they run 5.0",
    ]
    assert throughput_report.marginal(runs, "local") == (pytest.approx(3e6), pytest.approx(6 / 9))


def test_every_engine_that_was_measured_has_a_row_in_both_tables():
    runs = [
        a_run(name, size, size / 1e6) for name, engine in engines.ENGINES.items() for size in engine.sizes
    ]
    titles = [engine.title for engine in engines.ENGINES.values()]
    versions = dict.fromkeys(engines.ENGINES, "1.0")
    assert [row[0] for row in throughput_report.rows(runs, versions)] == titles
    assert [row[0] for row in throughput_report.front_rows(runs)] == titles
    beam = throughput_report.front_rows(runs)[-1]
    assert beam[1:] == ("0.5 million", "0 s", "1 s", "1 million/s", "right")


def test_an_engine_that_does_not_install_is_in_the_table_with_the_reason():
    versions = dict.fromkeys(engines.ENGINES, "1.0")
    none = Run("beam", 100_000, failed="does not install: no wheel")
    (row,) = throughput_report.rows([none], versions)
    assert row[0] == "Apache Beam, Python, local runner"
    assert row[-1] == "does not install: no wheel"
    assert len(row) == len(throughput_report.COLUMNS)
    (short,) = throughput_report.front_rows([none])
    assert short[-1] == "does not install: no wheel"
    failed = [Run("beam", 1, failed="no"), Run("beam", 2, failed="no")]
    assert throughput_report.marginal(failed, "beam") is None


def a_throughput_run(monkeypatch, tmp_path, *arguments: str) -> list[str]:
    """Returns the engines in the results after the command, with an earlier result and a stubbed engine."""

    def run(name, events, *_):
        return a_run(name, events, 1.0)

    monkeypatch.setattr(throughput, "run", run)
    monkeypatch.setattr(throughput, "install", lambda *_: None)
    results = tmp_path / "throughput.json"
    keep(results, [attrs.asdict(a_run("gone", 1, 1.0))], NAMED, MACHINE)
    folders = ["--work", str(tmp_path / "work"), "--environments", str(tmp_path / "environments")]
    done = CliRunner().invoke(throughput.main, [*arguments, *folders, "--results", str(results)])
    assert done.exit_code == 0, done.output
    return sorted({figure["engine"] for figure in load(results)})


def test_a_run_of_some_engines_leaves_the_others(monkeypatch, tmp_path):
    assert a_throughput_run(monkeypatch, tmp_path, "--only", "local,beam") == ["beam", "gone", "local"]


def test_of_a_java_trace_the_last_cause_is_shown():
    log = "java.lang.RuntimeException: all\n\tat a.B(D.java:1)\nCaused by: java.io.IOException: this\n\t... 19 more\n\n"
    assert reason(log) == "Caused by: java.io.IOException: this"
    assert reason("") == "nothing"
    assert reason("a\nb\n") == "b"


def test_cpu_time_between_two_looks_is_by_proportion():
    clock = CpuClock()
    clock.times, clock.used = [10.0, 11.0, 13.0], [1.0, 2.0, 4.0]
    assert clock.at(10.5) == pytest.approx(1.5)
    assert clock.at(12.0) == pytest.approx(3.0)
    assert [clock.at(9.0), clock.at(14.0)] == [1.0, 4.0]
