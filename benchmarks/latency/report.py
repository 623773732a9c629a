"""The report of latencies: a table, and a plot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import attrs
import numpy as np

from benchmarks.kept import Figures
from benchmarks.section import Section
from examples.drawing import figures as drawn
from examples.drawing import save

_PEERS: Final = Path(__file__).parents[1] / "peers"
_FLINK: Final = f"{_PEERS / 'flink_latency.py'}"

JOBS: Final = ("windows", "flagship")
"""Counts by key and second; and the number and mean length of sessions by second, those of two platforms together."""


@attrs.frozen
class Engine:
    """An engine's command, to which the broker, the topics, a folder and the job are appended.

    `peer` is its name among the other frameworks; `jobs` are those that it has.
    """

    title: str
    command: Sequence[str]
    peer: str | None = None
    jobs: Sequence[str] = JOBS


def _module(name: str, *arguments: str) -> list[str]:
    return ["-m", f"benchmarks.latency.{name}", *arguments]


ENGINES_OF: Final[Mapping[str, Engine]] = {
    "local": Engine("beamlike in process, exactly once", _module("job", "local")),
    "flink-exactly": Engine("Flink SQL, exactly once", [_FLINK, "--exactly-once"], peer="flink"),
    "spark": Engine("beamlike on Spark, exactly once", _module("job", "spark")),
    "local-repeating": Engine("beamlike in process", _module("job", "local", "--at-least-once")),
    "flink": Engine("Flink SQL", [_FLINK], peer="flink"),
    "bytewax": Engine("Bytewax", [f"{_PEERS / 'bytewax_latency.py'}"], peer="bytewax", jobs=("windows",)),
    "native": Engine("PySpark streaming", _module("native")),
}
"""The engines by name. Their output arrives at least once, unless the title says otherwise."""
TITLES: Final = {name: engine.title for name, engine in ENGINES_OF.items()}


@attrs.frozen
class Figure:
    """An engine with a job at a rate of elements a second: quantiles of the latency of its panes, in milliseconds.

    `load` is the number of processes of the machine that had work, or waited for the disk, in the minute before; 0 if
    that is not known.
    """

    engine: str
    rate: int
    job: str = "windows"
    p50: float = 0.0
    p99: float = 0.0
    panes: int = 0
    failed: str = ""
    load: float = 0.0

    @classmethod
    def of(cls, engine: str, rate: int, job: str, latencies: Sequence[int]) -> Self:
        """Returns the figure for these latencies of panes; there may be none, if an engine does not keep up."""
        if not latencies:
            return cls(engine, rate, job, failed="no pane came in time: it does not keep up")
        p50, p99 = (float(np.quantile(latencies, share)) for share in (0.5, 0.99))
        return cls(engine, rate, job, p50, p99, len(latencies))

    @classmethod
    def kept(cls, facts: Mapping[str, Any]) -> Self:
        """Returns the stored figure."""
        return cls(**{field.name: facts[field.name] for field in attrs.fields(cls)})

    @property
    def text(self) -> str:
        """The text of a cell of the table."""
        return self.failed or f"{self.p50:.0f} / {self.p99:.0f}"


def table(figures: Sequence[Figure], titles: Mapping[str, str]) -> str:
    """Returns a Markdown table: p50 / p99 in ms, a row for each engine, a column for each job and rate."""
    columns = [
        (job, rate) for job in JOBS for rate in sorted({one.rate for one in figures if one.job == job})
    ]
    cells = {(figure.engine, figure.job, figure.rate): figure.text for figure in figures}
    heads = [f"{job}, {rate:,} a second" for job, rate in columns]
    rows = [
        f"| {title} | {' | '.join(cells.get((name, *column), 'not measured') for column in columns)} |"
        for name, title in titles.items()
        if any((name, *column) in cells for column in columns)
    ]
    return "\n".join([f"| p50 / p99, ms | {' | '.join(heads)} |", f"|---|{'---|' * len(columns)}", *rows])


def beside(figures: Sequence[Figure]) -> str:
    """Returns a sentence on the load of the machine. An engine measured before another is a part of its load."""
    loads = sorted(figure.load for figure in figures if figure.load) or [0.0]
    return f"Load average in the minute before each turn: {loads[0]:.1f} to {loads[-1]:.1f}."


def lines(kept: Sequence[Figures]) -> Iterator[str]:
    """Yields the table of the page, and the load of the machine."""
    figures = [Figure.kept(one) for one in kept]
    yield table(figures, TITLES)
    yield ""
    yield beside(figures)


SECTION: Final = Section("latency", ("engine", "job", "rate"), lines)


def draw(figures: Sequence[Figure], titles: Mapping[str, str], path: Path) -> None:
    """Draws p50 to p99 on a logarithmic axis, a panel for each job, a line for each engine and rate."""
    rates = sorted({figure.rate for figure in figures})
    jobs = [job for job in JOBS if any(figure.job == job and figure.panes for figure in figures)]
    shown = [name for name in titles if any(figure.engine == name and figure.panes for figure in figures)]
    figure, panels = drawn(1, len(jobs), (3.5 + 4.0 * len(jobs), 1.2 + 0.5 * len(shown)), sharey=True)
    for axes, job in zip(panels[0], jobs, strict=True):
        for one in (one for one in figures if one.job == job and one.panes):
            turn = rates.index(one.rate)
            at = len(shown) - 1 - shown.index(one.engine) + 0.12 * (1 - 2 * turn)
            axes.plot([one.p50, one.p99], [at, at], color=f"C{turn}", linewidth=2.5, solid_capstyle="round")
            axes.plot([one.p50], [at], "o", color=f"C{turn}", markersize=6)
        axes.set_yticks(range(len(shown)), [titles[name] for name in reversed(shown)])
        axes.set_xscale("log")
        axes.set_title(job, fontsize="small")
        axes.set_xlabel("milliseconds, p50 (dot) to p99 (end of the line)")
    for number, rate in enumerate(rates):
        panels[0][0].plot([], [], "o-", color=f"C{number}", label=f"{rate:,} elements a second")
    panels[0][0].legend(frameon=False, fontsize="small")
    save(figure, path)
