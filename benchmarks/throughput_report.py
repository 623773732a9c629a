"""The report of measured throughput: tables, ratios, a plot, and their places in README files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from benchmarks import readme
from benchmarks.engines import ENGINES, versions
from benchmarks.kept import Figures
from benchmarks.section import Section
from examples.drawing import figures, save


@attrs.frozen
class Run:
    """A run of one engine on one size: seconds and bytes of the whole process with its start, and its answer.

    `batch` is the mean time of its micro-batches without the first two, if it has any. If it did not run, `failed` has
    the reason and all else is zero.
    """

    engine: str
    events: int
    wall: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    answer: str = ""
    right: bool = False
    batch: float | None = None
    failed: str = ""

    @property
    def rate(self) -> float:
        """Events per second, start-up included."""
        return self.events / self.wall


def marginal(runs: Iterable[Run], name: str) -> tuple[float | None, float] | None:
    """Returns events per second (None if noise hides it) and CPU us per event of an engine without its start."""
    mine = sorted((run for run in runs if run.engine == name and not run.failed), key=lambda run: run.events)
    if len(mine) < 2:
        return None
    least, most = mine[0], mine[-1]
    events, wall = most.events - least.events, most.wall - least.wall
    return (events / wall if wall > 0 else None), (most.cpu - least.cpu) / events * 1e6


def in_batches(run: Run) -> float:
    """Returns events per second of the mean micro-batch; None for a run without batches."""
    assert run.batch
    return run.events / ENGINES[run.engine].files / run.batch


_NAMES = ("engine", "version:", "events", "wall s", "CPU s", "events/s", "CPU µs/event")
_MORE = ("more: events/s", "more: CPU µs/event", "events/s in batches", "peak MB", "answer:")
COLUMNS = (*_NAMES, *_MORE)


def largest(runs: Iterable[Run]) -> dict[str, Run]:
    """Returns the run of each engine on its largest input, in the order in which engines are shown."""
    best = {run.engine: run for run in sorted(runs, key=lambda run: run.events)}
    return {name: best[name] for name in ENGINES if name in best}


def rows(runs: Sequence[Run], of: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Returns a row per engine, of its largest input; `of` are the engines' versions."""
    shown = []
    for name, run in largest(runs).items():
        title = ENGINES[name].title
        if run.failed:
            shown.append((title, of[name], *[""] * (len(COLUMNS) - 3), run.failed))
            continue
        own = f"{run.events:,}", f"{run.wall:.1f}", f"{run.cpu:.1f}", f"{run.rate:,.0f}"
        cost = f"{run.cpu / run.events * 1e6:.2f}"
        more = marginal(runs, name)
        shares = (
            ("", "") if more is None else ("" if more[0] is None else f"{more[0]:,.0f}", f"{more[1]:.2f}")
        )
        batch = "" if not run.batch else f"{in_batches(run):,.0f}"
        memory = f"{run.memory / 1e6:,.0f}"
        shown.append((title, of[name], *own, cost, *shares, batch, memory, run.answer))
    return shown


def once_it_runs(runs: Sequence[Run], run: Run) -> float | None:
    """Returns events per second without the start: in batches if there are any, else from the marginal cost."""
    if run.batch:
        return in_batches(run)
    more = marginal(runs, run.engine)
    return None if more is None else more[0]


_FRONT_NAMES = ("", "plays", "whole run, with its start", "CPU", "once it runs", "answer:")


def front_rows(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """Returns a short row per engine."""
    shown = []
    for name, run in largest(runs).items():
        title = ENGINES[name].title
        if run.failed:
            shown.append((title, "", "", "", "", run.failed))
            continue
        speed = once_it_runs(runs, run)
        taken = f"{run.wall:.0f} s", f"{run.cpu:.0f} s", "" if speed is None else _rate(speed)
        answer = "right" if run.right else run.answer.partition(",")[0]
        shown.append((title, f"{run.events / 1e6:g} million", *taken, answer))
    return shown


def _rate(speed: float) -> str:
    return f"{speed / 1e6:.2g} million/s" if speed >= 1e5 else f"{speed / 1e3:.2g} thousand/s"


_BESIDE = (
    ("local", "bytewax"),
    ("local", "bytewax-by-hand"),
    ("local", "beam"),
    ("spark", "native"),
    ("spark-large", "native-large"),
    ("spark", "flink-sql"),
    ("spark-large", "flink-sql"),
)


def ratios(runs: Sequence[Run]) -> list[str]:
    """Yields the ratios of our runners to others, in events per second, with the start and without it."""
    best = {name: run for name, run in largest(runs).items() if not run.failed}
    lines = []
    for ours, other in _BESIDE:
        if ours in best and other in best:
            whole = f"whole runs {best[ours].rate / best[other].rate:.1f}"
            speeds = [once_it_runs(runs, best[name]) for name in (ours, other)]
            running = f", once they run {speeds[0] / speeds[1]:.1f}" if speeds[0] and speeds[1] else ""
            lines.append(f"{ENGINES[ours].title} by {ENGINES[other].title}: {whole}{running}")
    return lines


def plot(runs: Sequence[Run], path: Path) -> None:
    """Plots events per second of each engine on its largest input, and without its start."""
    best = {name: run for name, run in largest(runs).items() if not run.failed}
    names = list(best)[::-1]
    running = [(once_it_runs(runs, best[name]), place) for place, name in enumerate(names)]
    figure, axes = figures(1, 1, (8, 0.5 * len(names) + 1.2))
    axes = axes[0, 0]
    places = range(len(names))
    rates = [best[name].rate for name in names]
    axes.plot(rates, places, "o", label="whole run, with its start")
    points = [(speed, place) for speed, place in running if speed is not None]
    if points:
        axes.plot(*zip(*points, strict=True), "D", label="once it runs")
    for place, rate in zip(places, rates, strict=True):
        axes.annotate(
            f"{rate:,.0f}", (rate, place), (0, 6), textcoords="offset points", ha="center", fontsize="small"
        )
    axes.set(xscale="log", xlabel="events per second")
    axes.set_yticks(places, [ENGINES[name].title for name in names])
    axes.margins(x=0.15, y=0.15)
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3, axis="x")
    save(figure, path)


def runs_of(kept: Iterable[Figures]) -> list[Run]:
    """Returns the stored runs of engines that are still measured."""
    names = [field.name for field in attrs.fields(Run)]
    return [Run(**{name: figure[name] for name in names}) for figure in kept if figure["engine"] in ENGINES]


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Yields the table of the page, and the ratios."""
    runs = runs_of(figures)
    yield from readme.table(COLUMNS, rows(runs, versions()))
    yield ""
    yield from (f"- {line}" for line in ratios(runs))


def front(figures: Sequence[Figures]) -> Iterator[str]:
    """Returns the table of the first page, in short."""
    return readme.table(_FRONT_NAMES, front_rows(runs_of(figures)))


SECTION = Section("throughput", ("engine", "events"), lines)
SECTION_OF_FRONT = Section("how fast", SECTION.key, front, SECTION.path, readme.FRONT)
