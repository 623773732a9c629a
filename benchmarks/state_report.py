"""The report on the cost of batches with much state: tables, growth from the least to the most rows, and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.box import SIMPLE
from rich.table import Column, Table

from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.section import Section
from benchmarks.state_operators import OPERATORS
from benchmarks.workloads import WORKLOADS
from examples.drawing import figures, save

ENGINES = ("stage", "spark", "native", "flink")
JOBS = (*WORKLOADS, *OPERATORS)
SHARDS = 2
"""The shards of a stage. One of them is run."""


@attrs.frozen
class State:
    """The cost of batches with much state. `rows` is the requested number of rows, `live` their mean number.

    Units are seconds and bytes; `calls`, `read` and `written` are those of a batch on the store, if they are known. A
    stage has the share of one shard: half of the rows and of the arrivals. An engine without batches has only the mean
    costs of so many arrivals.
    """

    engine: str
    workload: str
    rows: int
    batches: int
    live: int
    median: float
    mean: float
    cpu: float
    cpu_mean: float
    memory: int
    longest: float | None = None
    panes: float | None = None
    state: int | None = None
    calls: float | None = None
    read: float | None = None
    written: float | None = None

    @classmethod
    def of(
        cls, engine: str, workload: str, rows: int, batches: Sequence[dict[str, Any]], memory: int
    ) -> State:
        """Summarizes the costs of single batches. `memory` is the greatest of the run, in bytes."""

        def each(name: str) -> list[float]:
            return [batch[name] for batch in batches]

        store = {
            name: statistics.fmean(each(name)) for name in ("calls", "read", "written") if name in batches[0]
        }
        return cls(
            engine,
            workload,
            rows,
            len(batches),
            live=round(statistics.fmean(each("live"))),
            median=statistics.median(each("wall")),
            mean=statistics.fmean(each("wall")),
            longest=max(each("wall")),
            cpu=statistics.median(each("cpu")),
            cpu_mean=statistics.fmean(each("cpu")),
            panes=statistics.fmean(each("panes")),
            state=round(statistics.fmean(each("state"))),
            memory=memory,
            **store,
        )


def tables(states: Sequence[State]) -> Iterator[Table]:
    """Yields a table for each engine, a row per kind of windows and size; `growth` is relative to the least size."""
    for engine in dict.fromkeys(each.engine for each in states):
        of_stage = engine == "stage"
        shown = Table(Column("windows", no_wrap=True), title=engine, box=SIMPLE, title_justify="left")
        names = ["live", "median ms", "mean", "max", "CPU ms", "mean", "growth", "panes", "state MB"]
        for name in [*names, "calls", "read MB", "written MB"] if of_stage else names:
            shown.add_column(name, justify="right")
        least: dict[str, State] = {}
        for each in states:
            if each.engine == engine:
                shown.add_row(*_row(each, least.setdefault(each.workload, each)))
        yield shown


def _row(state: State, least: State) -> Iterator[str]:
    yield state.workload
    yield f"{state.live:,}"
    for seconds in (state.median, state.mean, state.longest, state.cpu, state.cpu_mean):
        yield _number(seconds, 1e3)
    yield f"{state.median / least.median:.2f}"
    yield _number(state.panes)
    yield _number(state.state, 1e-6, 1)
    if state.engine == "stage":
        yield _number(state.calls)
        yield _number(state.read, 1e-6, 2)
        yield _number(state.written, 1e-6, 2)


def _number(value: float | None, factor: float = 1, digits: int = 0) -> str:
    """Formats a number; the empty string if it is not known."""
    return "" if value is None else f"{factor * value:,.{digits}f}"


_COLUMNS = {
    "stage": ("stage ms", "stage CPU ms"),
    "spark": ("spark ms", "spark CPU ms"),
    "native": ("native ms", "native CPU ms"),
    "flink": ("flink CPU ms",),
}


def side_by_side(states: Sequence[State], jobs: Iterable[str], title: str) -> Iterator[str]:
    """Returns a table with a row for each of the jobs and sizes: medians of each engine, and the CPU of both shards."""
    known = {(each.workload, each.rows, each.engine): each for each in states if each.workload in jobs}
    engines = [engine for engine in ENGINES if any(of == engine for _, _, of in known)]
    names = [name for engine in engines for name in _COLUMNS[engine]]
    rows = []
    for job in jobs:
        for size in sorted({size for workload, size, _ in known if workload == job}):
            cells = (cell for engine in engines for cell in _cells(engine, known.get((job, size, engine))))
            rows.append((job, f"{size:,}", *cells))
    return readme.table((title, "live rows", *names), rows)


def _cells(engine: str, state: State | None) -> Iterator[str]:
    """Yields the milliseconds of a batch."""
    if engine != "flink":
        yield _number(state and state.median, 1e3)
    shards = SHARDS if engine == "stage" else 1
    yield _number(state and state.cpu, 1e3 * shards)


def growth(states: Sequence[State]) -> Iterator[str]:
    """Yields, for each job, the ratio of the CPU times of a batch with the most and the least rows."""
    for workload in JOBS:
        times = []
        for engine in ENGINES:
            sizes = {each.rows: each for each in states if (each.engine, each.workload) == (engine, workload)}
            if len(sizes) > 1:
                least, most = sizes[min(sizes)], sizes[max(sizes)]
                sizes_of = f"{least.rows:,} to {most.rows:,}"
                times.append(f"{engine} {most.cpu / least.cpu:.2f} times ({sizes_of})")
        if times:
            yield f"{workload}: {', '.join(times)}"


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Yields the tables of the page, for windows and operators, and the growth of costs."""
    states = states_of(figures)
    for jobs, title in ((WORKLOADS, "windows"), (OPERATORS, "operator")):
        if any(each.workload in jobs for each in states):
            yield from side_by_side(states, jobs, title)
            yield ""
    yield "CPU time of a batch with the most rows by that with the least:"
    yield ""
    yield from (f"- {line}" for line in growth(states))


_FRONT = {
    "sessions here": ("sessions", "spark"),
    "`session_window` of native Spark": ("sessions", "native"),
    "windows of a day here": ("fixed", "spark"),
    "`window` of native Spark": ("fixed", "native"),
}


def front(figures: Sequence[Figures]) -> Iterator[str]:
    """Returns the table of the first page, in short: median seconds of a batch on Spark."""
    known = {(each.workload, each.engine, each.rows): each.median for each in states_of(figures)}
    sizes = sorted({rows for workload, engine, rows in known if (workload, engine) in _FRONT.values()})

    def cell(workload: str, engine: str, rows: int) -> str:
        median = known.get((workload, engine, rows))
        return "" if median is None else f"{median:.2f} s"

    rows = ((f"{size:,}", *(cell(*of, size) for of in _FRONT.values())) for size in sizes)
    return readme.table(("open windows", *_FRONT), rows)


def states_of(figures: Sequence[Figures]) -> list[State]:
    """Returns the stored figures."""
    names = [field.name for field in attrs.fields(State)]
    return [State(**{name: figure[name] for name in names}) for figure in figures]


SECTION = Section("state", ("engine", "workload", "rows"), lines)
FRONT = Section("open windows", SECTION.key, front, SECTION.path, readme.FRONT)


def plot(states: Sequence[State], path: Path) -> None:
    """Plots the CPU time of a batch against the live rows: a panel per workload, a line per engine."""
    workloads = [name for name in JOBS if any(each.workload == name for each in states)]
    across = min(3, len(workloads))
    down = -(-len(workloads) // across)
    figure, axes = figures(down, across, (3.6 * across, 3.0 * down), sharex=True, sharey=True)
    for panel in axes.flat[len(workloads) :]:
        panel.remove()
    for panel, name in zip(axes.flat, workloads, strict=False):
        for color, engine in enumerate(ENGINES):
            mine = sorted(
                (each for each in states if (each.engine, each.workload) == (engine, name)),
                key=lambda each: each.rows,
            )
            if mine:
                seconds = [each.cpu * (SHARDS if engine == "stage" else 1) for each in mine]
                panel.plot([each.rows for each in mine], seconds, f"C{color}o-", label=engine)
        panel.set(title=name, xscale="log", yscale="log")
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    figure.supxlabel("live rows")
    figure.supylabel("CPU seconds for ten thousand arrivals")
    save(figure, path)
