"""Runs the flagship job on each engine and size, checks every answer, and shows the cost of an event."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs
import click
import polars as pl
from rich.console import Console
from rich.table import Table

from beamlike.spark.session.java import find_java
from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.machine import machine
from benchmarks.measure import Usage, measure
from benchmarks.section import Section, resume
from examples import generate, oracle

ENGINES = ("local", "spark", "native")
_LOG_LINES = 30  # of a run that failed, to show


@attrs.frozen
class Answer:
    """The comparison of an engine's result with the oracle's.

    A window is missing, wrong or right; `lost` sessions belong to the missing windows, `joined` is the number of
    sessions that the other windows lack.
    """

    windows: int
    missing: int
    wrong: int
    lost: int
    joined: int

    @property
    def right(self) -> bool:
        """True if every window exists and equals the oracle's."""
        return self.missing == self.wrong == 0

    def __str__(self) -> str:
        if self.right:
            return f"all {self.windows} windows right"
        parts = []
        if self.missing:
            parts.append(
                f"{self.missing} of {self.windows} windows missing, with {self.lost:,} sessions in them"
            )
        if self.wrong:
            which = f"{self.wrong} others" if parts else f"{self.wrong} of {self.windows} windows"
            parts.append(f"{which} wrong, with {self.joined:,} sessions too few")
        return "; ".join(parts)


@attrs.frozen
class Run:
    """A run of one engine on one size of input."""

    engine: str
    events: int
    usage: Usage
    answer: Answer

    @property
    def rate(self) -> float:
        """Events per second, start-up included."""
        return self.events / self.usage.wall

    @property
    def cost(self) -> float:
        """CPU seconds per million events, start-up included."""
        return self.usage.cpu / self.events * 1e6


@attrs.frozen
class Marginal:
    """The cost of more events once an engine runs: the difference of two runs divided by that of their events."""

    engine: str
    rate: float | None  # events per second; None where noise hides the difference
    cost: float  # CPU seconds per million events


def marginal(runs: Sequence[Run]) -> list[Marginal]:
    """Returns a result for each engine that ran on at least two sizes: from its smallest to its greatest."""
    found = []
    for engine in dict.fromkeys(run.engine for run in runs):
        mine = sorted((run for run in runs if run.engine == engine), key=lambda run: run.events)
        events = mine[-1].events - mine[0].events
        if events:
            wall = mine[-1].usage.wall - mine[0].usage.wall
            cpu = mine[-1].usage.cpu - mine[0].usage.cpu
            found.append(Marginal(engine, events / wall if wall > 0 else None, cpu / events * 1e6))
    return found


def ratio(marginals: Iterable[Marginal]) -> float | None:
    """Returns the marginal CPU of an event on our Spark runner relative to native Spark; None if one is unknown."""
    costs = {each.engine: each.cost for each in marginals}
    if "spark" not in costs or costs.get("native", 0.0) <= 0:
        return None
    return costs["spark"] / costs["native"]


def check(result: pl.DataFrame, expected: pl.DataFrame) -> Answer:
    """Compares an engine's windows with the oracle's."""
    present = pl.col("window_start").is_in(result["window_start"].implode())
    missing, emitted = expected.filter(~present), expected.filter(present)
    return Answer(
        windows=expected.height,
        missing=missing.height,
        wrong=len(oracle.differences(result, expected)) - missing.height,
        lost=int(missing["sessions"].sum()),
        joined=int(emitted["sessions"].sum()) - int(result["sessions"].sum()),
    )


def run(engine: str, plays: generate.Plays, work: Path, cores: int, env: dict[str, str]) -> Run:
    """Runs one engine on these plays in a process of its own and checks its output.

    Raises `click.ClickException` with the end of its log if it fails.
    """
    data = work / f"plays-{plays.events}"
    out = work / f"{engine}-{plays.events}"
    shutil.rmtree(out, ignore_errors=True)
    module = ["benchmarks.native"] if engine == "native" else ["benchmarks.run_job", engine]
    command = [sys.executable, "-m", *module, str(data), str(out), "--cores", str(cores)]
    log = work / f"{engine}-{plays.events}.log"
    with open(log, "w") as file:
        usage = measure(command, env=env, log=file)
    if usage.code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
        raise click.ClickException(f"code {usage.code} from {' '.join(command)}; the end of {log}:\n{tail}")
    expected = oracle.averages(oracle.read(data), "end_of_window")
    return Run(engine, plays.events, usage, check(oracle.written(out), expected))


def least(runs: Sequence[Run]) -> Run:
    """Returns the repetition with the least CPU time: the least disturbed one."""
    return min(runs, key=lambda run: run.usage.cpu)


def runs_table(runs: Iterable[Run]) -> Table:
    table = Table("engine")
    for name in ("events", "wall s", "CPU s", "events/s", "CPU µs/event", "peak MB"):
        table.add_column(name, justify="right")
    table.add_column("answer")
    for run in runs:
        use = run.usage
        seconds = f"{use.wall:.1f}", f"{use.cpu:.1f}"
        costs = f"{run.rate:,.0f}", f"{run.cost:.2f}", f"{use.memory / 1e6:,.0f}"
        table.add_row(
            run.engine, f"{run.events / 1e6:g} M", *seconds, *costs, "right" if run.answer.right else "wrong"
        )
    return table


def marginal_table(marginals: Iterable[Marginal]) -> Table:
    table = Table("engine")
    for name in ("events/s", "CPU µs/event"):
        table.add_column(name, justify="right")
    for each in marginals:
        table.add_row(each.engine, "-" if each.rate is None else f"{each.rate:,.0f}", f"{each.cost:.2f}")
    return table


def show(console: Console, runs: Sequence[Run], marginals: Sequence[Marginal]) -> None:
    """Prints the measurements and the comparison of the answers with the oracle's."""
    console.print("Whole runs, start-up included:")
    console.print(runs_table(runs))
    for run in runs:
        console.print(f"{run.engine}, {run.events:,} events: {run.answer}", highlight=False)
    if marginals:
        console.print("One event more, start-up taken out by difference:")
        console.print(marginal_table(marginals))
    if (share := ratio(marginals)) is not None:
        console.print(f"Marginal CPU of the Spark runner by that of native Spark: {share:.2f}")


def _stored(figure: Figures) -> Run:
    usage, answer = Usage(**figure["usage"]), Answer(**figure["answer"])
    return Run(figure["engine"], figure["events"], usage, answer)


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Yields the table of the page: whole runs, and the cost of more events."""
    runs = [_stored(figure) for figure in figures]
    more = {each.engine: each for each in marginal(runs)}
    names = (
        "engine",
        "events",
        "wall s",
        "CPU s",
        "CPU µs/event",
        "more: CPU µs/event",
        "peak MB",
        "answer:",
    )
    rows = []
    for run in runs:
        use, largest = run.usage, run.events == max(each.events for each in runs if each.engine == run.engine)
        share = f"{more[run.engine].cost:.2f}" if largest and run.engine in more else ""
        seconds = f"{use.wall:.1f}", f"{use.cpu:.1f}", f"{run.cost:.2f}", share
        rows.append((run.engine, f"{run.events:,}", *seconds, f"{use.memory / 1e6:,.0f}", str(run.answer)))
    yield from readme.table(names, rows)
    if (share := ratio([*more.values()])) is not None:
        yield f"\nMore CPU of the Spark runner by that of native Spark: {share:.2f}"


SECTION = Section("flagship", ("engine", "events"), lines)


def _sizes(context: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    sizes = value.replace("_", "").split(",")
    if not all(size.isdigit() and int(size) for size in sizes):
        raise click.BadParameter(
            f"{value!r}, expected numbers of events such as 1000000,10000000", context, option
        )
    return tuple(sorted({int(size) for size in sizes}))


def _engines(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    for name in value.split(","):
        if name not in ENGINES:
            raise click.BadParameter(f"{name!r}, expected some of {','.join(ENGINES)}", context, option)
    return tuple(name for name in ENGINES if name in value.split(","))


_POSITIVE = click.IntRange(1)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(context_settings={"show_default": True})
@click.option("--events", "sizes", default="1000000,10000000", callback=_sizes, help="Sizes of the input.")
@click.option("--only", "engines", default=",".join(ENGINES), callback=_engines, help="Engines to run.")
@click.option("--files", default=10, type=_POSITIVE, help="Files per source, each a micro-batch of Spark.")
@click.option("--cores", default=2, type=_POSITIVE, help="Task slots, partitions and shards of Spark.")
@click.option(
    "--repeats", default=1, type=_POSITIVE, help="Runs of each, of which that with least CPU counts."
)
@click.option("--work", default=Path("build/bench"), type=_FOLDER, help="For the input, results and logs.")
@resume
@click.option("--results", default=SECTION.path, type=_FILE, help="Where the figures go, as JSON.")
def main(
    sizes: tuple[int, ...],
    engines: tuple[str, ...],
    files: int,
    cores: int,
    repeats: int,
    work: Path,
    resume: bool,
    results: Path,
) -> None:
    """Run the flagship job on every engine, side by side, check each answer, and show the figures."""
    console = Console()
    java = find_java() if set(engines) - {"local"} else None
    env = dict(os.environ) | ({} if java is None else {"JAVA_HOME": str(java.home)})
    work.mkdir(parents=True, exist_ok=True)
    about, section = machine(java), attrs.evolve(SECTION, path=results)
    wanted = [(engine, events) for events in sizes for engine in engines]
    for engine, events in section.left(wanted, about["commit"]) if resume else wanted:
        plays = generate.Plays(events, files, ties=True)
        generate.write(work / f"plays-{events}", plays)
        with console.status(f"{engine}: {events:,} events"):
            best = least([run(engine, plays, work, cores, env) for _ in range(repeats)])
        section.keep([attrs.asdict(best)], about)
    runs = [_stored(figure) for figure in section.figures]
    show(console, runs, marginal(runs))
    if section == SECTION:
        section.show()
    if not all(each.answer.right for each in runs if each.engine != "native"):
        raise click.ClickException("a runner's answer differs from the oracle's")


if __name__ == "__main__":
    main()
