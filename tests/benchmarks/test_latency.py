"""Figures of latencies, and their presentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.latency.report import Figure, draw, table

TITLES = {"local": "In process", "peer": "A peer", "unknown": "Not measured"}
FIGURES = [
    Figure.of("local", 10_000, "windows", list(range(1, 101))),
    Figure.of("peer", 10_000, "windows", []),
    Figure.of("peer", 100_000, "windows", [20]),
]


def test_a_figure_has_quantiles_or_says_that_nothing_came() -> None:
    assert (FIGURES[0].p50, FIGURES[0].p99, FIGURES[0].panes) == (50.5, pytest.approx(99.01), 100)
    assert FIGURES[1].failed == "no pane came in time: it does not keep up"


def test_the_table_has_a_row_for_each_engine_that_was_measured() -> None:
    assert table(FIGURES, TITLES).splitlines() == [
        "| p50 / p99, ms | windows, 10,000 a second | windows, 100,000 a second |",
        "|---|---|---|",
        "| In process | 50 / 99 | not measured |",
        "| A peer | no pane came in time: it does not keep up | 20 / 20 |",
    ]


def test_the_plot_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one.svg", "other.svg"):
        draw(FIGURES, TITLES, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()
    assert "10,000 elements a second" in (tmp_path / "one.svg").read_text()
