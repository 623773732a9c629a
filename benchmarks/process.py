"""The cost of keyed state and timers: on a stage alone, and for silent sensors compared with other frameworks."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import attrs
import click
import polars as pl
from rich.console import Console
from rich.table import Table

from beamlike.spark.session.java import find_java
from benchmarks import readme
from benchmarks.engines import ENGINES, Engine, Failed, command, install, variables
from benchmarks.kept import Figures
from benchmarks.logs import reason
from benchmarks.machine import machine
from benchmarks.measure import measure
from benchmarks.native import BATCHES
from benchmarks.process_stage import Figure
from benchmarks.section import Section, resume
from benchmarks.throughput_report import Run, marginal
from examples.drawing import figures, save
from examples.silence import SILENCE, START, Sensors, readings

FILES = 20  # each a micro-batch
HOURS = 2

_JOB = "benchmarks.process_job"
_FLINK, _BYTEWAX = ENGINES["flink-datastream"], ENGINES["bytewax-by-hand"]
JOBS: Mapping[str, Engine] = {
    "local": Engine("beamlike, in process", (_JOB, "local"), (1_000, 20_000)),
    "batches": Engine("beamlike, in process, process_batches", (_JOB, "batches"), (1_000, 20_000)),
    "spark": Engine("beamlike, on Spark", (_JOB, "spark"), (5_000, 20_000)),
    "native": Engine("PySpark, transformWithStateInPandas", (_JOB, "native"), (1_000, 5_000)),
    "flink": attrs.evolve(
        _FLINK, title="PyFlink, KeyedProcessFunction", command=("flink_silence.py",), sizes=(100, 1_000)
    ),
    "bytewax": attrs.evolve(
        _BYTEWAX, title="Bytewax, stateful_batch", command=("bytewax_silence.py",), sizes=(1_000, 20_000)
    ),
}
"""Sizes are numbers of sensors."""


def inputs(sensors: int, work: Path) -> Path:
    """Writes the readings of `sensors` sensors to files, and to one with times as milliseconds, unless they exist."""
    data = work / f"readings-{sensors}"
    if (data / "done").exists():
        return data
    (data / "readings").mkdir(parents=True, exist_ok=True)
    heard = readings(Sensors(sensors, HOURS)).with_columns(pl.col("at").dt.truncate("1ms"))
    second = int(START.timestamp())
    for number, part in enumerate(heard.iter_slices(-(-len(heard) // FILES))):
        path = data / "readings" / f"part-{number:04d}.parquet"
        part.write_parquet(path, compression="snappy")
        os.utime(path, (second + number,) * 2)
    millis = heard.select("sensor", millis=pl.col("at").dt.timestamp("ms"))
    millis.write_parquet(data / "readings.parquet", compression="snappy")
    (data / "done").touch()
    return data


def expected(data: Path) -> pl.DataFrame:
    """Returns each silence, computed by polars: sensor and since. At the end of input all sensors are silent."""
    gap = pl.col("at").shift(-1).over("sensor") - pl.col("at")
    heard = pl.read_parquet(data / "readings" / "*.parquet").sort("sensor", "at")
    return heard.filter((gap >= SILENCE).fill_null(True)).select("sensor", since="at")


def answer(out: Path, right: pl.DataFrame) -> tuple[str, bool]:
    """Compares an engine's output with the expected one; returns a text, and True if it is right."""
    since = pl.col("since").dt.replace_time_zone("UTC").dt.cast_time_unit("us")
    frames = [pl.read_parquet(path).select("sensor", since) for path in sorted(out.rglob("*.parquet"))]
    found = pl.concat([right.clear(), *frames])
    missing = len(right.join(found, on=["sensor", "since"], how="anti"))
    wrong = len(found) - (len(right) - missing)
    if not missing and not wrong:
        return f"all {len(right):,} silences right", True
    return f"{missing:,} of {len(right):,} silences missing, {wrong:,} wrong", False


def run(name: str, sensors: int, work: Path, environments: Path, env: Mapping[str, str]) -> Run:
    """Runs an engine on the readings of `sensors` sensors and checks its answer."""
    engine, data, out = JOBS[name], inputs(sensors, work), work / f"silence-{name}-{sensors}"
    right = expected(data)
    events = pl.scan_parquet(data / "readings.parquet").select(pl.len()).collect().item()
    shutil.rmtree(out, ignore_errors=True)
    log = work / f"silence-{name}-{sensors}.log"
    try:
        python = install(engine, environments)
        with open(log, "w") as file:
            shown = variables(engine, python, environments, env)
            usage = measure(command(engine, python, data, out), env=shown, log=file)
        if usage.code:
            raise Failed(f"code {usage.code}, {log}: {reason(log.read_text(errors='replace'))}")
    except Failed as failed:
        return Run(name, events, failed=str(failed))
    told, fits = answer(out, right)
    batches = json.loads((out / BATCHES).read_text())[2:] if (out / BATCHES).exists() else []
    batch = statistics.fmean(batches) if batches else None
    return Run(name, events, usage.wall, usage.cpu, usage.memory, told, fits, batch)


def on_a_stage(small: bool) -> list[Figure]:
    """Returns the figures of `process_stage.py`, with polars on one thread, as in Spark's workers."""
    env = dict(os.environ) | {"POLARS_MAX_THREADS": "1"}
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        module = [sys.executable, "-m", "benchmarks.process_stage", out.name]
        usage = measure([*module, *(["--small"] if small else [])], env=env)
        if usage.code:
            raise click.ClickException(f"benchmarks.process_stage ended with code {usage.code}")
        return [Figure(**figure) for figure in json.load(out)]


STAGE = ("on a stage alone", "rows", "CPU s", "rows/s")
JOB = ("engine", "readings", "wall s", "CPU s", "more: readings/s", "batch ms", "peak MB", "answer:")


def stage_rows(measured: Sequence[Figure]) -> Iterator[tuple[str, ...]]:
    """Yields a row for each figure."""
    for each in measured:
        yield each.name, f"{each.rows:,}", f"{each.seconds:.2f}", f"{each.rate:,.0f}" if each.rows else ""


def job_rows(runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    """Yields a row for each engine and size."""
    for each in runs:
        title = JOBS[each.engine].title
        if each.failed:
            yield title, f"{each.events:,}", *[""] * 5, each.failed
            continue
        largest = each.events == max(other.events for other in runs if other.engine == each.engine)
        more = marginal(runs, each.engine) if largest else None
        rate = f"{more[0]:,.0f}" if more is not None and more[0] is not None else ""
        batch = f"{each.batch * 1e3:,.0f}" if each.batch else ""
        seconds = f"{each.wall:.1f}", f"{each.cpu:.1f}"
        yield title, f"{each.events:,}", *seconds, rate, batch, f"{each.memory / 1e6:,.0f}", each.answer


def ratios(runs: Sequence[Run]) -> Iterator[str]:
    """Yields the ratios of native Spark to our runner on the same input, and the costs of more readings elsewhere."""
    known = {(each.engine, each.events): each for each in runs if not each.failed}
    for (name, events), each in known.items():
        other = known.get(("spark", events))
        if name == "native" and other and each.batch and other.batch:
            shares = (
                f"a batch {each.batch / other.batch:.1f}, CPU of the whole run {each.cpu / other.cpu:.1f}"
            )
            yield f"{events:,} readings, native Spark by beamlike on Spark: {shares}"
    for ours, name in product(("local", "batches"), ("bytewax", "flink")):
        rate, other_rate = (marginal([*known.values()], one) for one in (ours, name))
        if rate and rate[0] and other_rate and other_rate[0]:
            titles = f"{JOBS[ours].title} by {JOBS[name].title}"
            yield f"more readings: {titles} {rate[0] / other_rate[0]:.1f}"


def plot(runs: Sequence[Run], path: Path) -> None:
    """Draws the cost of more readings, one engine next to the other."""
    rates = {JOBS[name].title: more[0] for name in JOBS if (more := marginal(runs, name)) and more[0]}
    figure, ((panel,),) = figures(1, 1, (8, 0.5 * len(rates) + 1.2))
    panel.plot(list(rates.values()), list(rates), "D")
    for title, rate in rates.items():
        label = {"textcoords": "offset points", "ha": "center", "fontsize": "small"}
        panel.annotate(f"{rate:,.0f}", (rate, title), (0, 6), **label)
    panel.set(xscale="log", xlabel="readings per second, once it runs")
    panel.margins(x=0.15, y=0.25)
    panel.grid(alpha=0.3, axis="x")
    save(figure, path)


def _runs(kept: Sequence[Figures]) -> list[Run]:
    names = [field.name for field in attrs.fields(Run)]
    runs = [Run(**{name: figure[name] for name in names}) for figure in kept if figure["engine"] in JOBS]
    return sorted(runs, key=lambda run: (list(JOBS).index(run.engine), run.events))


def _figures(kept: Sequence[Figures]) -> list[Figure]:
    found = [figure for figure in kept if figure["engine"] == "stage"]
    return [Figure(figure["name"], figure["events"], figure["seconds"]) for figure in found]


def lines(kept: Sequence[Figures]) -> Iterator[str]:
    """Yields the two tables of the page, and ratios."""
    runs = _runs(kept)
    yield from readme.table(STAGE, stage_rows(_figures(kept)))
    yield ""
    yield from readme.table(JOB, job_rows(runs))
    yield ""
    yield from (f"- {line}" for line in ratios(runs))


SECTION = Section("process", ("engine", "events", "name"), lines)


def show(console: Console, section: Section) -> None:
    """Print and plot all that is known, and put it into the README if the results are ours."""
    kept = section.figures
    runs, measured = _runs(kept), _figures(kept)
    for names, rows in ((STAGE, [*stage_rows(measured)]), (JOB, [*job_rows(runs)])):
        shown = Table(*(name.rstrip(":") for name in names))
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    for line in ratios(runs):
        console.print(line, highlight=False)
    plot(runs, section.path.with_suffix(".svg"))
    if section == SECTION:
        section.show()


def _some(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    for name in value.split(","):
        if name not in ("stage", *JOBS):
            raise click.BadParameter(f"{name!r}, expected some of stage,{','.join(JOBS)}", context, option)
    return tuple(value.split(","))


_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(context_settings={"show_default": True})
@click.option("--only", "wanted", default=",".join(("stage", *JOBS)), callback=_some, help="Parts to run.")
@click.option("--sensors", type=click.IntRange(1), help="One size for all engines, not those that suit each.")
@click.option("--small", is_flag=True, help="The stage with a hundredth of everything.")
@click.option("--work", default=Path("build/bench"), type=_FOLDER, help="For the input, results and logs.")
@click.option("--environments", default=Path("build/bench-envs"), type=_FOLDER, help="For other frameworks.")
@click.option("--results", default=SECTION.path, type=_FILE, help="The figures, as JSON.")
@resume
def main(
    wanted: tuple[str, ...],
    sensors: int | None,
    small: bool,
    work: Path,
    environments: Path,
    results: Path,
    resume: bool,
) -> None:
    """Measure keyed state and timers; other figures stay in the results."""
    console = Console()
    console.width = max(console.width, 140)
    java = find_java()
    env = dict(os.environ) | ({} if java is None else {"JAVA_HOME": str(java.home)})
    work.mkdir(parents=True, exist_ok=True)
    about, section = machine(java), attrs.evolve(SECTION, path=results)
    known = section.measured_of(about["commit"]) if resume else []
    if "stage" in wanted and not _figures(known):
        with console.status("on a stage alone"):
            measured = [attrs.asdict(each) for each in on_a_stage(small)]
        rows = [{"engine": "stage", "events": each.pop("rows"), **each} for each in measured]
        section.keep([{"name": "", **row} for row in rows], about)
    jobs = [
        (name, size)
        for name in JOBS
        if name in wanted
        for size in ((sensors,) if sensors else JOBS[name].sizes)
    ]
    for name, size in jobs:
        if (name, size) in {(each["engine"], each.get("sensors")) for each in known if not each["failed"]}:
            continue
        with console.status(f"{name}: {size:,} sensors"):
            done = run(name, size, work, environments, env)
        console.print(f"{name}, {size:,} sensors: {done.failed or done.answer}", highlight=False)
        section.keep([{"name": "", "sensors": size, **attrs.asdict(done)}], about)
    show(console, section)


if __name__ == "__main__":
    main()
