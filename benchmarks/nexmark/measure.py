"""The cost of each query of Nexmark on each engine: events per second and core, CPU per event, memory.

    python -m benchmarks.nexmark.measure --events 10_000_000

measures figures of these sizes. The process of an engine stays for all rounds of a query, so that it is warm. With
`--resume` a stopped measurement continues: what is measured of this commit, in as many rounds, is left out.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import click
import polars as pl
from rich.console import Console

from beamlike.spark.session.java import find_java
from benchmarks import readme
from benchmarks.engines import ENGINES, Failed, install, variables
from benchmarks.kept import Figures
from benchmarks.logs import reason
from benchmarks.machine import machine
from benchmarks.measure import Usage
from benchmarks.nexmark import report
from benchmarks.nexmark.answers import answer
from benchmarks.nexmark.check import difference, written
from benchmarks.nexmark.events import KINDS
from benchmarks.nexmark.generate import Arrivals, write
from benchmarks.nexmark.native import CANNOT, NATIVE
from benchmarks.nexmark.pipeline import TO_FILES
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.report import Run, sizes
from benchmarks.section import HERE, Section, resume
from benchmarks.turns import Job

CORES: Final = 2
_BATCHES: Final = 4  # on all events, of engines with batches; a run on fewer events is one batch
_FOUR: Final = (1, 2, 5, 11)
_BOUND: Final = "1s"  # of every engine, although the events come in order


@attrs.frozen
class Engine:
    """An engine: its command for a query and the folder of the answer. It has `benchmarks.peers.turns`.

    Slow engines run on a `share` of the events, one of so many. `peer` is the name of the framework in
    `benchmarks.engines`, if it is one. `queries` are supported, and `cannot` has the reasons for the others. With
    `told` the rows are written, and can be checked; other engines drop them: `benchmarks.nexmark.verify` checks those.
    """

    title: str
    command: Callable[[int, Path], Sequence[str]]
    queries: Sequence[int] = tuple(QUERIES)
    cannot: Mapping[int, str] = attrs.field(factory=dict)
    peer: str | None = None
    told: bool = False
    share: int = 1


def _ours(runner: str) -> Callable[[int, Path], Sequence[str]]:
    module = [sys.executable, "-m", "benchmarks.nexmark", "--runner", runner]
    choices = ["--files-per-batch", "1", "--out-of-orderness", _BOUND, "--cores", str(CORES)]
    return lambda query, out: [
        *module,
        *choices,
        *("--query", f"{query}", "--turns"),
        *(["--out", f"{out}"] if query == TO_FILES else []),
    ]


def _native(query: int, out: Path) -> Sequence[str]:
    module = [sys.executable, "-m", "benchmarks.nexmark.native", "--cores", str(CORES)]
    return [*module, "--query", f"{query}", "--out", f"{out}"]


def _peer(script: str) -> Callable[[int, Path], Sequence[str]]:
    """Returns the command of a script for the Python of a framework's environment."""
    path = Path(__file__).parents[1] / "peers" / script
    return lambda query, out: [f"{path}", f"{out}", str(CORES), "--query", f"{query}"]


ENGINES_OF: Final[Mapping[str, Engine]] = {
    "local": Engine("beamlike, in process", _ours("local")),
    "spark": Engine("beamlike, on Spark", _ours("spark")),
    "native": Engine("PySpark streaming", _native, tuple(NATIVE), CANNOT),
    "flink": Engine(
        "Flink SQL",
        _peer("flink_nexmark.py"),
        tuple(query for query in QUERIES if query != 6),
        {6: "an OVER window is by time, and takes no rows that change"},
        peer="flink-sql",
    ),
    "beam": Engine("Apache Beam, Python", _peer("beam_nexmark.py"), _FOUR, peer="beam", told=True, share=50),
    "bytewax": Engine("Bytewax", _peer("bytewax_nexmark.py"), _FOUR, peer="bytewax", told=True, share=10),
}


TITLES: Final = {name: engine.title for name, engine in ENGINES_OF.items()}


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Yields the table of all engines."""
    cannot = {name: engine.cannot for name, engine in ENGINES_OF.items()}
    yield from report.table(report.runs_of(figures), TITLES, cannot).splitlines()


def in_short(figures: Sequence[Figures]) -> Iterator[str]:
    """Returns the table of the page on Nexmark, with the CPU of others relative to the runner on Spark."""
    return report.in_short(report.runs_of(figures))


SECTION: Final = Section("nexmark", ("engine", "query", "events"), lines, page=HERE / "nexmark.md")
IN_SHORT: Final = Section("nexmark in short", SECTION.key, in_short, SECTION.path, readme.NEXMARK)


def inputs(events: int, batches: int, work: Path) -> Path:
    """Writes the events to a file per batch and kind, and for Flink to one per kind, with times as numbers."""
    data = work / f"events-{events}"
    write(data, Arrivals(events=events, files=batches))
    merged = data / "merged"
    if not (merged / "side.parquet").exists():
        merged.mkdir(exist_ok=True)
        for kind in KINDS:
            rows = pl.concat([pl.scan_parquet(path) for path in sorted((data / kind).glob("*.parquet"))])
            times = pl.selectors.datetime().dt.timestamp("us")
            rows.with_columns(times).sink_parquet(merged / f"{kind}.parquet", compression="snappy")
        pl.read_parquet(data / "side.parquet").write_parquet(merged / "side.parquet", compression="snappy")
    return data


def rounds_of(
    name: str, query: int, events: int, rounds: int, work: Path, environments: Path, env: Mapping[str, str]
) -> list[Run]:
    """Runs a query in so many rounds on both numbers of events, in one process, and checks its last answer.

    A first round on fewer events, which does not count, warms the engine up.
    """
    engine, out, log = ENGINES_OF[name], work / f"{name}-{query}", work / f"{name}-{query}-{events}.log"
    least, most = sizes(events // engine.share)
    folders = {least: inputs(least, 1, work), most: inputs(most, _BATCHES, work)}
    used: dict[int, list[Usage]] = {least: [], most: []}
    try:
        command, variables_ = list(engine.command(query, out)), dict(env)
        if engine.peer is not None:
            python = install(ENGINES[engine.peer], environments)
            command, variables_ = (
                [f"{python}", *command],
                variables(ENGINES[engine.peer], python, environments, env),
            )
        with open(log, "w") as file, Job.of(command, variables_, file) as job:
            for number, size in enumerate([least, *[least, most] * rounds]):
                shutil.rmtree(out, ignore_errors=True)
                usage = job.turn(folders[size])
                if number:
                    used[size].append(usage)
    except Failed as failed:
        why = f"{failed}, {log}: {reason(log.read_text(errors='replace'))}" if log.exists() else f"{failed}"
        return [Run(name, query, size, failed=why) for size in used]
    wrong = difference(query, written(out), answer(query, folders[most])) if engine.told else None
    shutil.rmtree(out, ignore_errors=True)
    return [best_of(name, query, size, turns, wrong or "") for size, turns in used.items()]


def best_of(name: str, query: int, events: int, turns: Sequence[Usage], wrong: str) -> Run:
    """Returns the turn that took the least CPU time."""
    best = min(turns, key=lambda turn: turn.cpu)
    memory = max(turn.memory for turn in turns)
    return Run(name, query, events, best.wall, best.cpu, memory, wrong, rounds=len(turns))


def is_known(known: Sequence[Run], name: str, query: int, events: int, rounds: int) -> bool:
    """True if both numbers of events have been measured in as many rounds."""
    mine = [one for one in known if (one.engine, one.query) == (name, query) and not one.failed]
    return {*sizes(events)} <= {one.events for one in mine if one.rounds >= rounds}


def _some(known: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], tuple[str, ...]]:
    def check(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
        for name in value.split(","):
            if name not in known:
                raise click.BadParameter(f"{name!r}, expected some of {','.join(known)}", context, option)
        return tuple(value.split(","))

    return check


_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(context_settings={"show_default": True})
@click.option(
    "--events", default="10_000_000", callback=lambda *given: int(given[2]), help="How many in all."
)
@click.option("--only", "engines", default=",".join(ENGINES_OF), callback=_some(list(ENGINES_OF)))
@click.option("--queries", default=",".join(map(str, QUERIES)), callback=_some(list(map(str, QUERIES))))
@click.option(
    "--rounds",
    default=3,
    type=click.IntRange(1),
    help="Rounds of each query; the one with the least CPU time counts.",
)
@resume
@click.option("--work", default=Path("build/nexmark"), type=_FOLDER, help="For events, answers and logs.")
@click.option("--environments", default=Path("build/bench-envs"), type=_FOLDER, help="For other frameworks.")
@click.option(
    "--results",
    default=HERE / "nexmark.json",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of the figures, in JSON.",
)
def main(
    events: int,
    engines: tuple[str, ...],
    queries: tuple[str, ...],
    rounds: int,
    resume: bool,
    work: Path,
    environments: Path,
    results: Path,
) -> None:
    """Run each query on each engine on all events, and on a tenth of them, to know what a run costs without events."""
    console, java = Console(), find_java()
    env = dict(os.environ) | ({} if java is None else {"JAVA_HOME": str(java.home)})
    work.mkdir(parents=True, exist_ok=True)
    about = machine(java)
    section = attrs.evolve(SECTION, path=results)
    known = report.runs_of(section.measured_of(about["commit"])) if resume else []
    for query in map(int, queries):
        for name in engines:
            engine = ENGINES_OF[name]
            if query not in engine.queries or is_known(known, name, query, events // engine.share, rounds):
                continue
            with console.status(f"query {query}, {name}"):
                done = rounds_of(name, query, events, rounds, work.absolute(), environments.absolute(), env)
            for one in done:
                told = one.failed or one.wrong or f"{one.cpu:.2f} s of CPU, {one.wall:.2f} s"
                console.print(f"query {query}, {name}, {one.events:,} events: {told}", highlight=False)
            section.keep([attrs.asdict(one) for one in done], about)
    report.plot(report.runs_of(section.figures), TITLES, results.with_suffix(".svg"))
    console.print("\n".join(section.text()), highlight=False)
    if section == SECTION:
        SECTION.show()
        IN_SHORT.show()


if __name__ == "__main__":
    main()
