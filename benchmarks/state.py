"""The cost of a batch of arrivals with much state: on a stage alone, on the Spark runner, and in other engines.

Operators whose state is read by key (`state_operators`) run on a stage, and native Spark (`state_native`) and Flink SQL
(`state_flink`) run those that they have.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs
import click
from rich.console import Console

from beamlike.spark.session.java import find_java
from benchmarks import state_flink
from benchmarks.engines import Failed
from benchmarks.machine import machine
from benchmarks.measure import Usage, measure
from benchmarks.section import resume
from benchmarks.state_native import NATIVE
from benchmarks.state_operators import OPERATORS
from benchmarks.state_report import (
    ENGINES,
    FRONT,
    JOBS,
    SECTION,
    SHARDS,
    State,
    growth,
    plot,
    states_of,
    tables,
)
from benchmarks.workloads import WORKLOADS, Load

ARRIVALS = 10_000  # in a batch
_SIZES = (100_000, 1_000_000, 10_000_000)
_WIDTH = 140  # of a table, also where the output is no terminal
_LOG_LINES = 30  # of a run that failed, to show


def run(engine: str, workload: str, rows: int, batches: int, work: Path, environments: Path) -> State:
    """Runs one workload in a process of its own. Raises `click.ClickException` with the end of its log if it fails."""
    log = work / f"{engine}-{workload.replace(', ', '-')}-{rows}.log"
    if engine == "flink":
        return _run_flink(workload, rows, log, environments)
    shards = SHARDS if engine == "stage" else 1
    options = {"rows": rows // shards, "arrivals": ARRIVALS // shards, "batches": batches}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    module = ["benchmarks.state_stage"] if engine == "stage" else ["benchmarks.state_spark", engine]
    if workload in OPERATORS:
        module = ["benchmarks.state_operators" if engine == "stage" else "benchmarks.state_native"]
    env = dict(os.environ) | {"POLARS_MAX_THREADS": "1"}  # as in Spark's workers
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        usage = _measured([sys.executable, "-m", *module, workload, out.name, *arguments], env, log)
        return State.of(engine, workload, rows, json.load(out), usage.memory)


def _run_flink(operator: str, rows: int, log: Path, environments: Path) -> State:
    with tempfile.TemporaryDirectory() as work:
        state_flink.write(operator, Load(rows, ARRIVALS), Path(work))
        try:
            command, env = state_flink.command(operator, Path(work), environments)
        except Failed as failed:
            raise click.ClickException(f"Flink {failed}") from None
        usage = _measured(command, env, log)
        wall, cpu = state_flink.seconds(Path(work))
    batches = state_flink.BATCHES
    return State("flink", operator, rows, batches, rows, wall, wall, cpu, cpu, usage.memory)


def _measured(command: Sequence[str], env: dict[str, str], log: Path) -> Usage:
    with open(log, "w") as file:
        usage = measure(command, env=env, log=file)
    if usage.code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
        raise click.ClickException(f"code {usage.code} from {' '.join(command)}; the end of {log}:\n{tail}")
    return usage


def _some(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    for name in value.split(","):
        if name not in ENGINES:
            raise click.BadParameter(f"{name!r}, expected some of {','.join(ENGINES)}", context, option)
    return tuple(name for name in ENGINES if name in value.split(","))


def _sizes(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...]:
    if value is None:
        return ()
    sizes = value.replace("_", "").split(",")
    if not all(size.isdigit() and int(size) >= SHARDS for size in sizes):
        raise click.BadParameter(f"{value!r}, expected numbers such as 100000,1000000", context, option)
    return tuple(sorted({int(size) for size in sizes}))


@click.command(context_settings={"show_default": True})
@click.option(
    "--rows",
    "sizes",
    callback=_sizes,
    help="Live rows. By default 100 thousand and 1 million, on a stage also 10 million, joins in Flink only the first.",
)
@click.option("--only", "engines", default=",".join(ENGINES), callback=_some, help="Engines to run.")
@click.option(
    "--windows",
    "workloads",
    multiple=True,
    type=click.Choice(JOBS),
    help="Kinds of windows, or operators. By default all; with Spark, windows that do not end.",
)
@click.option("--batches", default=10, type=click.IntRange(1), help="Batches that are measured.")
@click.option(
    "--work", default=Path("build/bench"), type=click.Path(file_okay=False, path_type=Path), help="For logs."
)
@click.option(
    "--environments",
    default=Path("build/bench-envs"),
    type=click.Path(file_okay=False, path_type=Path),
    help="For Flink.",
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
    environments: Path,
    results: Path,
    resume: bool,
) -> None:
    """Measure batches of ten thousand arrivals with much state; other figures stay in the results."""
    console = Console()
    console.width = max(console.width, _WIDTH)
    work.mkdir(parents=True, exist_ok=True)
    about = machine(find_java() if set(engines) - {"stage"} else None)
    section, states, failed = attrs.evolve(SECTION, path=results), list[State](), list[str]()
    wanted = [
        (engine, workload, rows)
        for engine in engines
        for workload in workloads or _ordinary(engine)
        for rows in sizes or _usual_sizes(engine, workload)
        if _runs(engine, workload)
    ]
    for engine, workload, rows in section.left(wanted, about["commit"]) if resume else wanted:
        title = f"{engine}, {workload}: {rows:,} rows"
        try:
            with console.status(title):
                states.append(run(engine, workload, rows, batches, work, environments))
        except click.ClickException as error:
            console.print(f"{title}: {error.message}", highlight=False, markup=False)
            failed.append(title)
            continue
        section.keep([attrs.asdict(states[-1])], about)
    for shown in tables(states):
        console.print(shown)
    everything = states_of(section.figures)
    for line in growth(everything):
        console.print(line, highlight=False)
    plot(everything, results.with_suffix(".svg"))
    if section == SECTION:
        SECTION.show()
        FRONT.show()
    if failed:
        raise click.ClickException(f"failed: {'; '.join(failed)}; the other figures are stored")


def _ordinary(engine: str) -> list[str]:
    """Returns the workloads of default runs; windows that end only on a stage, because they take Spark minutes."""
    return [name for name in JOBS if engine == "stage" or name in OPERATORS or not WORKLOADS[name].ending]


def _usual_sizes(engine: str, workload: str) -> Sequence[int]:
    """Returns the sizes of default runs, without those that take an engine many minutes."""
    if engine == "flink" and "join" in workload:
        return _SIZES[:1]
    return _SIZES if engine == "stage" else _SIZES[:2]


def _runs(engine: str, workload: str) -> bool:
    """True if the engine can run a workload. Native Spark has no triggers, and the windows are not run in Flink."""
    if workload in OPERATORS:
        others = {"native": NATIVE, "flink": state_flink.OPERATORS}
        return engine == "stage" or workload in others.get(engine, ())
    return engine in ("stage", "spark") or (engine == "native" and not WORKLOADS[workload].early)


if __name__ == "__main__":
    main()
