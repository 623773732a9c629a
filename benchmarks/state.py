"""The cost of a batch of arrivals with much state: on a stage alone, on the Spark runner, and in native Spark.

Operators whose state is read by key (`state_operators`) run on a stage, and native Spark runs those that it has
(`state_native`).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from beamlike.spark.session.java import find_java
from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.machine import machine
from benchmarks.measure import measure
from benchmarks.section import Section, resume
from benchmarks.state_native import NATIVE
from benchmarks.state_operators import OPERATORS
from benchmarks.workloads import WORKLOADS
from examples.drawing import figures, save

ENGINES = ("stage", "spark", "native")
JOBS = (*WORKLOADS, *OPERATORS)
SHARDS = 2
ARRIVALS = 10_000  # in a batch
_WIDTH = 140  # of a table, also where the output is no terminal
_LOG_LINES = 30  # of a run that failed, to show


@attrs.frozen
class State:
    """The cost of batches with much state. `rows` is the requested number of rows, `live` their mean number.

    Units are seconds and bytes; `calls`, `read` and `written` are those of a batch on the store, if they are known. A
    stage has the share of one shard: half of the rows and of the arrivals.
    """

    engine: str
    workload: str
    rows: int
    batches: int
    live: int
    median: float
    mean: float
    longest: float
    cpu: float
    cpu_mean: float
    panes: float
    state: int
    memory: int
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


def run(engine: str, workload: str, rows: int, batches: int, work: Path) -> State:
    """Runs one workload in a process of its own. Raises `click.ClickException` with the end of its log if it fails."""
    shards = SHARDS if engine == "stage" else 1
    options = {"rows": rows // shards, "arrivals": ARRIVALS // shards, "batches": batches}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    module = ["benchmarks.state_stage"] if engine == "stage" else ["benchmarks.state_spark", engine]
    if workload in OPERATORS:
        module = ["benchmarks.state_operators" if engine == "stage" else "benchmarks.state_native"]
    log = work / f"{engine}-{workload.replace(', ', '-')}-{rows}.log"
    env = dict(os.environ) | {"POLARS_MAX_THREADS": "1"}  # as in Spark's workers
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out, open(log, "w") as file:
        command = [sys.executable, "-m", *module, workload, out.name, *arguments]
        usage = measure(command, env=env, log=file)
        if usage.code:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
            raise click.ClickException(
                f"code {usage.code} from {' '.join(command)}; the end of {log}:\n{tail}"
            )
        return State.of(engine, workload, rows, json.load(out), usage.memory)


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
    yield from (
        f"{1e3 * time:,.0f}" for time in (state.median, state.mean, state.longest, state.cpu, state.cpu_mean)
    )
    yield f"{state.median / least.median:.2f}"
    yield f"{state.panes:,.0f}"
    yield f"{state.state / 1e6:,.1f}"
    if state.calls is not None and state.read is not None and state.written is not None:
        yield f"{state.calls:,.0f}"
        yield f"{state.read / 1e6:,.2f}"
        yield f"{state.written / 1e6:,.2f}"


_SIDES = tuple(f"{engine} {what}" for engine in ENGINES for what in ("ms", "CPU ms"))
_NAMES = ("windows", "live rows", *_SIDES, "spark by native", "spark MB", "native MB")


def side_by_side(states: Sequence[State]) -> Iterator[tuple[str, ...]]:
    """Yields a row per kind of windows and size, with the medians of each engine."""
    known = {(each.workload, each.rows, each.engine): each for each in states}
    for workload in JOBS:
        for rows in sorted({each.rows for each in states if each.workload == workload}):
            mine = [known.get((workload, rows, engine)) for engine in ENGINES]
            times = ([each.median, each.cpu] if each else [None, None] for each in mine)
            cells = ("" if time is None else f"{1e3 * time:,.0f}" for both in times for time in both)
            _, spark, native = mine
            share = f"{spark.median / native.median:.2f}" if spark and native else ""
            sizes = (f"{each.state / 1e6:,.1f}" if each else "" for each in (spark, native))
            yield (workload, f"{rows:,}", *cells, share, *sizes)


def growth(states: Sequence[State]) -> Iterator[str]:
    """Yields, for each kind of windows, the ratio of batch times with the most and the least rows."""
    for workload in JOBS:
        times = []
        for engine in ENGINES:
            sizes = {each.rows: each for each in states if (each.engine, each.workload) == (engine, workload)}
            if len(sizes) > 1:
                least, most = sizes[min(sizes)], sizes[max(sizes)]
                cpu = most.cpu / least.cpu
                times.append(f"{engine} {most.median / least.median:.2f} times (CPU {cpu:.2f})")
        if times:
            yield f"{workload}, from the least to the most rows: {'; '.join(times)}"


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Returns the table of the page, and the growth of costs."""
    states = [_state(figure) for figure in figures]
    yield from readme.table(_NAMES, side_by_side(states))
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
    known = {(each.workload, each.engine, each.rows): each.median for each in map(_state, figures)}
    sizes = sorted({rows for workload, engine, rows in known if (workload, engine) in _FRONT.values()})

    def cell(workload: str, engine: str, rows: int) -> str:
        median = known.get((workload, engine, rows))
        return "" if median is None else f"{median:.2f} s"

    rows = ((f"{size:,}", *(cell(*of, size) for of in _FRONT.values())) for size in sizes)
    return readme.table(("open windows", *_FRONT), rows)


def _state(figure: Figures) -> State:
    return State(**{field.name: figure[field.name] for field in attrs.fields(State)})


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
                seconds = [each.cpu for each in mine]
                panel.plot([each.rows for each in mine], seconds, f"C{color}o-", label=engine)
        panel.set(title=name, xscale="log", yscale="log")
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    figure.supxlabel("live (key, window) rows")
    figure.supylabel("CPU seconds for a batch, median")
    save(figure, path)


def _some(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    for name in value.split(","):
        if name not in ENGINES:
            raise click.BadParameter(f"{name!r}, expected some of {','.join(ENGINES)}", context, option)
    return tuple(name for name in ENGINES if name in value.split(","))


def _sizes(context: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    sizes = value.replace("_", "").split(",")
    if not all(size.isdigit() and int(size) >= SHARDS for size in sizes):
        raise click.BadParameter(f"{value!r}, expected numbers such as 100000,1000000", context, option)
    return tuple(sorted({int(size) for size in sizes}))


@click.command(context_settings={"show_default": True})
@click.option("--rows", "sizes", default="100000,1000000,10000000", callback=_sizes, help="Live rows.")
@click.option("--only", "engines", default=",".join(ENGINES), callback=_some, help="Engines to run.")
@click.option(
    "--windows",
    "workloads",
    multiple=True,
    type=click.Choice(JOBS),
    help="Kinds of windows, or operators. By default all; with Spark, windows that do not end.",
)
@click.option("--batches", default=20, type=click.IntRange(1), help="Batches that are measured.")
@click.option(
    "--work", default=Path("build/bench"), type=click.Path(file_okay=False, path_type=Path), help="For logs."
)
@click.option(
    "--results",
    default=SECTION.path,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The figures, as JSON.",
)
@resume
def main(
    sizes: tuple[int, ...],
    engines: tuple[str, ...],
    workloads: tuple[str, ...],
    batches: int,
    work: Path,
    results: Path,
    resume: bool,
) -> None:
    """Measure batches of ten thousand arrivals with much state; other figures stay in the results."""
    console = Console()
    console.width = max(console.width, _WIDTH)
    work.mkdir(parents=True, exist_ok=True)
    about = machine(find_java() if set(engines) - {"stage"} else None)
    section, states = attrs.evolve(SECTION, path=results), list[State]()
    wanted = [
        (engine, workload, rows)
        for engine in engines
        for workload in workloads or _ordinary(engine)
        for rows in sizes
        if _runs(engine, workload)
    ]
    for engine, workload, rows in section.left(wanted, about["commit"]) if resume else wanted:
        with console.status(f"{engine}, {workload}: {rows:,} rows"):
            states.append(run(engine, workload, rows, batches, work))
        section.keep([attrs.asdict(states[-1])], about)
    for shown in tables(states):
        console.print(shown)
    everything = [_state(figure) for figure in section.figures]
    for line in growth(everything):
        console.print(line, highlight=False)
    plot(everything, results.with_suffix(".svg"))
    if section == SECTION:
        SECTION.show()
        FRONT.show()


def _ordinary(engine: str) -> list[str]:
    """Returns the workloads of default runs; windows that end only on a stage, because they take Spark minutes."""
    return [name for name in JOBS if engine == "stage" or (name in WORKLOADS and not WORKLOADS[name].ending)]


def _runs(engine: str, workload: str) -> bool:
    """True if the engine can run a workload: native Spark has no triggers, and operators run on a stage, and in native
    Spark if it has them.
    """
    if workload in OPERATORS:
        return engine == "stage" or (engine == "native" and workload in NATIVE)
    return engine != "native" or not WORKLOADS[workload].early


if __name__ == "__main__":
    main()
