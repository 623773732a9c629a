"""The short benchmarks: each job has the same results as its baseline, and ratios of two commits are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import history, quick
from benchmarks.history import Entry, add, changes

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
    "as-of join": quick.as_of_join(200, 20, 2),
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


def test_a_commit_is_measured_compared_and_added_to_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "JOBS", SMALL)
    monkeypatch.setattr(quick, "LEAST", 0.0)
    path = tmp_path / "history.jsonl"
    for commit in ("one", "other", "other+"):
        monkeypatch.setattr(quick, "machine", lambda _, commit=commit: {"commit": commit, "time": "now"})
        arguments = ["--only", "many keys,join", "--rounds", "1", "--history", str(path)]
        measured = CliRunner().invoke(quick.main, arguments)
        assert measured.exit_code == 0, measured.output
    assert "Not stored" in measured.output
    assert [(entry.commit, [*entry.ratios]) for entry in history.read(path)] == [
        ("one", ["many keys", "join"]),
        ("other", ["many keys", "join"]),
    ]
    assert "many keys" in path.with_suffix(".svg").read_text()
    assert CliRunner().invoke(quick.main, ["--only", "nothing"]).exit_code == 2


def of(commit: str, **ratios: float) -> Entry:
    return Entry(commit, "now", ratios, {})


def test_a_ratio_beyond_those_of_the_last_commits_and_noise_is_a_change() -> None:
    before = [of("a", same=9.0, wide=1.0, slow=1.0, fast=1.0)]
    before += [of(str(n), same=1.0, wide=1.0 + n / 10, slow=1.0 + n / 100, fast=1.0) for n in range(5)]
    now = of("now", same=1.05, wide=1.35, slow=1.2, fast=0.8, new=7.0)
    found = {change.job: str(change) for change in changes([*before, of("now", slow=9.0)], now)}
    assert found == {
        "slow": "slow: slower, 1.20 after 1.02, the median of the last 5 commits (1.18 times)",
        "fast": "fast: faster, 0.80 after 1.00, the median of the last 5 commits (0.80 times)",
    }


def test_a_commit_that_is_measured_again_keeps_jobs_that_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    for entry in (of("a", one=1.0, two=2.0), of("b", one=1.0), of("a", one=3.0)):
        add(entry, path)
    assert [(entry.commit, entry.ratios) for entry in history.read(path)] == [
        ("b", {"one": 1.0}),
        ("a", {"one": 3.0, "two": 2.0}),
    ]


def test_all_ratios_are_within_their_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[Any]()
    monkeypatch.setattr(history, "save", lambda figure, path: drawn.append(figure))
    entries = [of("a", far=85.0, near=1.0), of("b", far=42.0, near=1.01), of("c", far=40.0), of("d", far=5.0)]
    history.draw(entries, tmp_path / "history.svg")
    panels = {panel.get_title(): panel for panel in drawn[0].axes}
    assert panels.keys() == {"far", "near"}
    for panel in panels.values():
        least, greatest = panel.get_ylim()
        ratios = panel.lines[0].get_ydata()
        assert least < min(ratios) <= max(ratios) < greatest
        assert greatest / least >= 1.99
