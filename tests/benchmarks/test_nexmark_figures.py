"""The figures of Nexmark: costs per event without the start, ratios, and failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measure import Usage
from benchmarks.nexmark.measure import ENGINES_OF, best_of, is_known
from benchmarks.nexmark.native import CANNOT, NATIVE
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.report import Run, cpu_per_event, geometric_mean, plot, table

TITLES = {"spark": "ours", "flink": "theirs"}
RUNS = [
    Run("spark", 1, 1_000, wall=9, cpu=10.0, memory=10**9),
    Run("spark", 1, 10_000, wall=12, cpu=10.9, memory=2 * 10**9),
    Run("flink", 1, 1_000, wall=9, cpu=20.0),
    Run("flink", 1, 10_000, wall=12, cpu=23.6),
    Run("spark", 2, 1_000, wall=9, cpu=10.0),
    Run("spark", 2, 10_000, failed="out of memory"),
]


def test_what_an_event_costs_is_known_from_two_sizes() -> None:
    assert cpu_per_event(RUNS, "spark", 1) == pytest.approx(100)
    assert cpu_per_event(RUNS, "flink", 1) == pytest.approx(400)
    assert cpu_per_event(RUNS, "spark", 2) is None
    assert cpu_per_event(RUNS, "flink", 2) is None
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4)


def test_of_several_rounds_the_one_with_the_least_cpu_time_counts() -> None:
    rounds = [
        Usage(wall, cpu, memory, 0) for wall, cpu, memory in ((4.0, 9.0, 7), (5.0, 8.0, 5), (3.0, 10.0, 6))
    ]
    assert best_of("spark", 1, 1_000, rounds, "") == Run("spark", 1, 1_000, 5.0, 8.0, 7, rounds=3)


def test_a_query_is_known_when_both_sizes_have_all_rounds() -> None:
    both = [Run("spark", 1, size, cpu=1.0, rounds=3) for size in (1_000, 10_000)]
    assert is_known(both, "spark", 1, 10_000, 3)
    assert not is_known(both, "spark", 1, 10_000, 4)
    assert not is_known(both[1:], "spark", 1, 10_000, 3)
    assert not is_known([*both[1:], Run("spark", 1, 1_000, failed="out of memory")], "spark", 1, 10_000, 1)
    assert not is_known(both, "spark", 2, 10_000, 3)
    assert not is_known(both, "spark", 1, 20_000, 3)


def test_the_table_has_ratios_and_what_could_not_be_done(tmp_path: Path) -> None:
    text = table(RUNS, TITLES, {"spark": {}, "flink": {6: "nothing of the kind"}})
    lines = text.splitlines()
    assert lines[2] == "| q1 | 10 | 100.00 | 2,000 | 2 | 400.00 | 0 | 4.00 |"
    assert "- ours by theirs, events per second and core: geometric mean 4.00, ahead on 1 of 1" in lines
    assert "- theirs, q6: nothing of the kind" in lines
    assert "- ours, q2, 10,000 events: out of memory" in lines
    plot(RUNS, TITLES, tmp_path / "plot.svg")
    assert "theirs" in (tmp_path / "plot.svg").read_text()


def test_each_query_is_run_or_it_is_told_why_not() -> None:
    assert {*NATIVE, *CANNOT} == set(QUERIES)
    assert not set(NATIVE) & set(CANNOT)
    for engine in ENGINES_OF.values():
        assert set(engine.queries) <= set(QUERIES)
        assert not set(engine.queries) & set(engine.cannot)
