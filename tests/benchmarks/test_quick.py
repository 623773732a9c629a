"""The short benchmarks: each job has the same results as its baseline, and ratios of two commits are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import quick

SMALL: dict[str, Callable[[Path], quick.Pair]] = {
    "import": quick.imported,
    "flagship": quick.flagship(2_000),
    "small batches": quick.flagship(2_000, batches=20),
    "many keys": quick.counts(20, 50, 3),
    "triggers": quick.counts(
        20, 50, 3, trigger=quick.EARLY, accumulation="accumulating", allowed_lateness="1h"
    ),
    "timers": quick.timers(5),
    "join": quick.interval_join(200, 2),
    "checkpoint": quick.checkpoint(20, 50, 3),
}


@pytest.mark.parametrize("name", quick.JOBS)
def test_a_job_computes_what_its_baseline_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pair = SMALL[name](tmp_path)
    for _ in range(2):  # a round may leave nothing for the next one
        assert pair.check(pair.job(), pair.baseline())


def test_the_ratios_of_two_commits_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "JOBS", SMALL)
    monkeypatch.setattr(quick, "LEAST", 0.0)
    path = str(tmp_path / "one.json")
    measured = CliRunner().invoke(quick.main, ["--only", "many keys,join", "--rounds", "1", "--json", path])
    assert measured.exit_code == 0, measured.output
    shown = CliRunner().invoke(quick.main, ["--compare", path, path]).output
    assert shown.count("1.00") == 2
    assert CliRunner().invoke(quick.main, ["--only", "nothing"]).exit_code == 2


def test_a_ratio_that_grew_by_more_than_noise_is_marked() -> None:
    before = {name: quick.Figure(name, 1.0, 1.0, 1.0) for name in ("same", "slow", "fast", "gone")}
    ratios = {"same": 1.05, "slow": 1.2, "fast": 0.8}
    table = quick.compared(before, {name: quick.Figure(name, 1.0, 1.0, one) for name, one in ratios.items()})
    assert [[*column.cells] for column in table.columns][::4] == [
        ["same", "slow", "fast"],
        ["", "slower", "faster"],
    ]
