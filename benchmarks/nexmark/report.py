"""The report of Nexmark: a table of all queries and engines, ratios, and a plot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import exp, log
from pathlib import Path

import attrs

from benchmarks import readme
from benchmarks.kept import Figures
from examples.drawing import figures, save

_OURS = "spark"


@attrs.frozen
class Run:
    """A query on so many events: the wall and CPU seconds of its best round, and the most bytes of all processes.

    If it did not run, `failed` says why, and all else is zero; `wrong` says what is wrong with its answer.
    """

    engine: str
    query: int
    events: int
    wall: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    wrong: str = ""
    failed: str = ""
    rounds: int = 1


def runs_of(kept: Iterable[Figures]) -> list[Run]:
    """Returns the stored runs."""
    names = [field.name for field in attrs.fields(Run)]
    return [Run(**{name: figure[name] for name in names if name in figure}) for figure in kept]


def sizes(events: int) -> tuple[int, int]:
    """Returns the two measured numbers of events: their difference excludes the cost of the start."""
    return max(1, events // 10), events


def largest(runs: Sequence[Run], engine: str, query: int) -> Run | None:
    """Returns the run on the most events that has not failed."""
    mine = [run for run in runs if (run.engine, run.query) == (engine, query) and not run.failed]
    return max(mine, key=lambda run: run.events, default=None)


def cpu_per_event(runs: Sequence[Run], engine: str, query: int) -> float | None:
    """Returns microseconds of CPU per additional event, once the engine runs; None if unknown."""
    most = largest(runs, engine, query)
    if most is None:
        return None
    wanted = (engine, query, sizes(most.events)[0])
    least = next(
        (run for run in runs if (run.engine, run.query, run.events) == wanted and not run.failed), None
    )
    if least is None or least is most or most.cpu <= least.cpu:
        return None
    return (most.cpu - least.cpu) / (most.events - least.events) * 1e6


def geometric_mean(values: Sequence[float]) -> float:
    """Returns the geometric mean of ratios."""
    return exp(sum(map(log, values)) / len(values))


def table(runs: Sequence[Run], titles: Mapping[str, str], cannot: Mapping[str, Mapping[int, str]]) -> str:
    """Returns a table of thousand events per second and core, CPU per event and memory; ratios, and failures."""
    engines = [name for name in titles if any(run.engine == name for run in runs)]
    others = [name for name in engines if name not in ("local", _OURS)]
    head = ["query"]
    for name in engines:
        head += [f"{titles[name]}: k/s and core", "CPU µs/event", "peak MB"]
    head += [f"on Spark by {titles[name]}" for name in others]
    lines = [f"| {' | '.join(head)} |", f"|{'---:|' * len(head)}"]
    found: dict[str, list[float]] = {name: [] for name in others}
    for query in sorted({run.query for run in runs}):
        cells, per_event = [f"q{query}"], {n: cpu_per_event(runs, n, query) for n in engines}
        for name in engines:
            cells += _cells(largest(runs, name, query), per_event[name])
        for name in others:
            ours, theirs = per_event.get(_OURS), per_event[name]
            ratio = theirs / ours if ours and theirs else None
            cells.append("" if ratio is None else f"{ratio:.2f}")
            found[name] += [] if ratio is None else [ratio]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for name in others:
        if found[name]:
            mean, ahead = geometric_mean(found[name]), sum(ratio > 1 for ratio in found[name])
            told = f"geometric mean {mean:.2f}, ahead on {ahead} of {len(found[name])}"
            lines.append(f"- {titles[_OURS]} by {titles[name]}, events per second and core: {told}")
    lines += [f"- {titles[name]}, q{query}: {why}" for name in engines for query, why in cannot[name].items()]
    failed = [run for run in runs if run.failed or run.wrong]
    lines += [
        f"- {titles[run.engine]}, q{run.query}, {run.events:,} events: {run.failed or run.wrong}"
        for run in failed
    ]
    return "\n".join(lines) + "\n"


_SHORT = {"local": "in process", "spark": "on Spark", "flink": "Flink SQL 2.3", "native": "native Spark"}


def in_short(runs: Sequence[Run]) -> Iterator[str]:
    """Yields CPU us of one more event, and memory at the largest input; and ratios to the runner on Spark."""
    queries = sorted({run.query for run in runs})
    costs = {(name, query): cpu_per_event(runs, name, query) for name in _SHORT for query in queries}
    ratios = {
        (name, query): theirs / ours
        for (name, query), theirs in costs.items()
        if (ours := costs[_OURS, query]) and theirs
    }
    rows = []
    for query in queries:
        cells = ["" if (cost := costs[name, query]) is None else f"{cost:.2f}" for name in _SHORT]
        cells += [
            f"{ratios[name, query]:.1f}" if (name, query) in ratios else "" for name in ("flink", "native")
        ]
        sizes = [largest(runs, name, query) for name in (_OURS, "flink")]
        cells += ["" if run is None else f"{run.memory / 1e9:.1f}" for run in sizes]
        rows.append((f"{query}", *cells))
    beside = ("Flink SQL by Spark", "native by Spark", "GB on Spark", "GB in Flink")
    yield from readme.table(("query", *_SHORT.values(), *beside), rows)
    yield ""
    for name in ("flink", "native"):
        if found := {query: ratio for (engine, query), ratio in ratios.items() if engine == name}:
            least = min(found, key=lambda query: found[query])
            mean = f"{geometric_mean([*found.values()]):.1f} times the CPU of the runner on Spark"
            extremes = f"least on query {least} ({found[least]:.1f})"
            yield f"- {_SHORT[name]} takes {mean} over {len(found)} queries, as a geometric mean; {extremes}."


def _cells(run: Run | None, per_event: float | None) -> tuple[str, str, str]:
    memory = "" if run is None else f"{run.memory / 1e6:,.0f}"
    if per_event is None:
        return "", "", memory
    return f"{1e3 / per_event:,.0f}", f"{per_event:.2f}", memory


def plot(runs: Sequence[Run], titles: Mapping[str, str], path: Path) -> None:
    """Plots events per second and core of each query, a mark for each engine."""
    queries = sorted({run.query for run in runs})
    figure, axes = figures(1, 1, (9, 4.5))
    axes = axes[0, 0]
    for (name, title), mark in zip(titles.items(), "oDsv^<>", strict=False):
        known = [(place, cpu_per_event(runs, name, query)) for place, query in enumerate(queries)]
        points = [(place, 1e6 / cost) for place, cost in known if cost is not None]
        if points:
            axes.plot(*zip(*points, strict=True), mark, label=title)
    axes.set(yscale="log", ylabel="events per second and core", xlabel="query")
    axes.set_xticks(range(len(queries)), [f"{query}" for query in queries])
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    save(figure, path)
