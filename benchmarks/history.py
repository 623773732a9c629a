"""The ratios of `benchmarks.quick`, commit by commit: which became slower, and a plot."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from math import log2
from pathlib import Path
from typing import Any, Final

import attrs

from examples.drawing import figures, save

HISTORY: Final = Path(__file__).with_name("history.jsonl")
NOISE: Final = 1.1
"""A ratio that changes by a smaller factor is not marked: runs of one commit differ by as much."""
LAST: Final = 5
"""The number of commits that a run is compared with."""


@attrs.frozen
class Entry:
    """The ratios of a commit by job, the time of the run, and the machine."""

    commit: str
    time: str
    ratios: Mapping[str, float]
    machine: Mapping[str, Any]


@attrs.frozen
class Change:
    """A job whose ratio left the range of the last commits: `factor` is the ratio by their median."""

    job: str
    ratio: float
    median: float
    commits: int

    @property
    def factor(self) -> float:
        return self.ratio / self.median

    def __str__(self) -> str:
        word = "slower" if self.factor > 1 else "faster"
        last = "the last commit" if self.commits == 1 else f"the median of the last {self.commits} commits"
        return (
            f"{self.job}: {word}, {self.ratio:.2f} after {self.median:.2f}, {last} ({self.factor:.2f} times)"
        )


def read(path: Path = HISTORY) -> list[Entry]:
    """Returns the entries in the order of their runs; empty if there is no file."""
    return [Entry(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def add(entry: Entry, path: Path = HISTORY) -> list[Entry]:
    """Stores an entry in place of an earlier one of the same commit, and returns all.

    Jobs that the new run left out keep the ratios of that entry.
    """
    same = {
        name: ratio
        for each in read(path)
        if each.commit == entry.commit
        for name, ratio in each.ratios.items()
    }
    others = [each for each in read(path) if each.commit != entry.commit]
    entries = [*others, attrs.evolve(entry, ratios={**same, **entry.ratios})]
    path.write_text("".join(json.dumps(attrs.asdict(each)) + "\n" for each in entries))
    return entries


def changes(before: Sequence[Entry], now: Entry) -> Iterator[Change]:
    """Yields the jobs that are slower or faster than all of the last commits, by more than noise than their median."""
    others = [each for each in before if each.commit != now.commit]
    for job, ratio in now.ratios.items():
        last = [each.ratios[job] for each in others if job in each.ratios][-LAST:]
        if not last:
            continue
        change = Change(job, ratio, statistics.median(last), len(last))
        slower = change.factor > NOISE and ratio > max(last)
        if slower or (change.factor < 1 / NOISE and ratio < min(last)):
            yield change


def draw(entries: Sequence[Entry], path: Path) -> None:
    """Draws a panel for each job: its ratio by commit, on a logarithmic axis that spans a factor of two at least."""
    jobs = list(dict.fromkeys(job for entry in entries for job in entry.ratios))
    across = 3
    figure, axes = figures(
        -(-len(jobs) // across), across, (10, 1.6 * -(-len(jobs) // across) + 0.4), sharex=True
    )
    for panel, job in zip(axes.flat, jobs, strict=False):
        points = [(place, entry.ratios[job]) for place, entry in enumerate(entries) if job in entry.ratios]
        panel.plot(*zip(*points, strict=True), "o-", color="C0", markersize=3, linewidth=1)
        middle = statistics.median(ratio for _, ratio in points)
        reach = max(0.5, *(abs(log2(ratio / middle)) * 1.2 for _, ratio in points))
        panel.set_yscale("log", base=2)
        panel.set_ylim(middle / 2**reach, middle * 2**reach)
        ticks = [middle / 2 ** (reach / 2), middle, middle * 2 ** (reach / 2)]
        panel.set_yticks(ticks, [f"{tick:.2g}" for tick in ticks])
        panel.minorticks_off()
        panel.set_title(job, fontsize="small")
        panel.grid(alpha=0.3)
        panel.set_xticks(
            range(len(entries)), [entry.commit[:7] for entry in entries], rotation=60, fontsize="x-small"
        )
    for panel in list(axes.flat)[len(jobs) :]:
        panel.remove()
    save(figure, path)
