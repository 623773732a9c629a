"""The flagship job in other frameworks and in ours: each in an environment of its own, the same input and answer."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
from collections.abc import Mapping
from pathlib import Path

import attrs
import click
import polars as pl
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from beamlike.spark.session.java import find_java
from benchmarks import throughput_report as report
from benchmarks.engines import ENGINES, Failed, command, install, variables, versions
from benchmarks.flagship import check
from benchmarks.logs import reason
from benchmarks.machine import machine
from benchmarks.measure import measure
from benchmarks.native import BATCHES
from benchmarks.section import Section, resume
from benchmarks.throughput_report import Run
from examples import generate, oracle

_WIDTH = 140


def inputs(events: int, files: int, merged: bool, work: Path) -> Path:
    """Writes the plays of both sources to files; times are whole milliseconds, the resolution of Flink's windows.

    `merged` also writes a file for each source with its times as numbers of milliseconds.
    """
    data = work / f"plays-{events}-{files}"
    done = data / "milliseconds"
    if not done.exists():
        generate.write(data, generate.Plays(events, files))
        for path in data.rglob("*.parquet"):
            modified = path.stat().st_mtime
            pl.read_parquet(path).with_columns(pl.col("event_time").dt.truncate("1ms")).write_parquet(
                path, compression="snappy"
            )
            os.utime(path, (modified, modified))
        done.touch()
    for source, plays in oracle.read(data).items() if merged else ():
        path = data / f"{source}.parquet"
        if not path.exists():
            millis = pl.col("event_time").dt.timestamp("ms").alias("millis")
            plays.select(millis, "user", "score").collect().write_parquet(path, compression="snappy")
    return data


def run(name: str, events: int, work: Path, environments: Path, env: Mapping[str, str]) -> Run:
    """Runs an engine on `events` events and checks its answer."""
    engine = ENGINES[name]
    try:
        python = install(engine, environments)
        data, out = inputs(events, engine.files, engine.merged, work), work / f"{name}-{events}"
        shutil.rmtree(out, ignore_errors=True)
        log = work / f"{name}-{events}.log"
        with open(log, "w") as file:
            usage = measure(
                command(engine, python, data, out),
                env=variables(engine, python, environments, env),
                log=file,
            )
        if usage.code:
            raise Failed(f"code {usage.code}, {log}: {reason(log.read_text(errors='replace'))}")
    except Failed as failed:
        return Run(name, events, failed=str(failed))
    answer = check(oracle.written(out), oracle.averages(oracle.read(data), "end_of_window"))
    batch = _mean_batch(out / BATCHES)
    return Run(name, events, usage.wall, usage.cpu, usage.memory, str(answer), answer.right, batch)


def _mean_batch(path: Path) -> float | None:
    return statistics.fmean(json.loads(path.read_text())[2:]) if path.exists() else None


def _some(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    for name in value.split(","):
        if name not in ENGINES:
            raise click.BadParameter(f"{name!r}, expected some of {','.join(ENGINES)}", context, option)
    return tuple(name for name in ENGINES if name in value.split(","))


_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(context_settings={"show_default": True})
@click.option("--only", "engines", default=",".join(ENGINES), callback=_some, help="Engines to run.")
@click.option("--events", type=click.IntRange(1), help="One size for all, not those that suit each.")
@click.option("--work", default=Path("build/bench"), type=_FOLDER, help="For the input, results and logs.")
@click.option("--environments", default=Path("build/bench-envs"), type=_FOLDER, help="For other frameworks.")
@click.option("--install", "install_only", is_flag=True, help="Only make the environments.")
@click.option(
    "--results",
    default=report.SECTION.path,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The figures, as JSON.",
)
@resume
def main(
    engines: tuple[str, ...],
    events: int | None,
    work: Path,
    environments: Path,
    install_only: bool,
    results: Path,
    resume: bool,
) -> None:
    """Run the flagship job in each framework. Figures that are not measured anew stay."""
    console = Console()
    console.width = max(console.width, _WIDTH)
    java = find_java()
    env = dict(os.environ) | ({} if java is None else {"JAVA_HOME": str(java.home)})
    work.mkdir(parents=True, exist_ok=True)
    for name in engines:
        with (
            console.status(f"installing for {name}"),
            contextlib.suppress(*(() if install_only else (Failed,))),
        ):
            install(ENGINES[name], environments)
    if install_only:
        return
    about, section = machine(java), attrs.evolve(report.SECTION, path=results)
    wanted = [(name, size) for name in engines for size in ((events,) if events else ENGINES[name].sizes)]
    for name, size in section.left(wanted, about["commit"]) if resume else wanted:
        with console.status(f"{name}: {size:,} events"):
            done = run(name, size, work, environments, env)
        console.print(f"{name}, {size:,} events: {done.failed or done.answer}", highlight=False)
        section.keep([attrs.asdict(done)], about)
    show(console, section)


def show(console: Console, section: Section) -> None:
    """Show all that is known, plot it beside the results, and put it into README files if the results are ours."""
    runs = report.runs_of(section.figures)
    shown = Table(*(name.rstrip(":") for name in report.COLUMNS), box=SIMPLE)
    for row in report.rows(runs, versions()):
        shown.add_row(*row)
    console.print(shown)
    for line in report.ratios(runs):
        console.print(line, highlight=False)
    report.plot(runs, section.path.with_suffix(".svg"))
    if section == report.SECTION:
        section.show()
        report.SECTION_OF_FRONT.show()


if __name__ == "__main__":
    main()
