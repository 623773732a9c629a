"""The flagship job in other frameworks beside ours: each in an environment of its own, the same input and answer."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import attrs
import click
import polars as pl
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from beamlike.spark.java import find_java
from benchmarks import readme
from benchmarks.drawing import figures, save
from benchmarks.flagship import check, machine
from benchmarks.kept import Figures, keep
from benchmarks.measure import measure
from benchmarks.native import BATCHES
from examples import generate, oracle

RESULTS = Path(__file__).with_name("throughput.json")
CORES = 2
FILES = 20  # per source, one of each in a micro-batch: enough for Java to have warmed up in most of them
_PEERS = Path(__file__).with_name("peers")
_ERROR = re.compile(r"(Caused by: )?[\w.]*(Error|Exception)\b|ERROR:", re.IGNORECASE)
_WIDTH = 140


@attrs.frozen
class Engine:
    """How the job is run on an engine: a module of ours, or a script of a peer in an environment with `packages`.

    `sizes` are numbers of events that it is done with in a minute or two; what one event more takes is known
    from two of them. `files` are so many per source. `csv`: it reads no Parquet and gets the same rows as CSV, a
    file per source.
    """

    title: str
    command: tuple[str, ...]
    sizes: tuple[int, ...]
    packages: tuple[str, ...] = ()
    files: int = FILES
    csv: bool = False


_LARGE = (2_000_000, 20_000_000)
_FLINK = ("apache-flink==2.3.0",)
ENGINES: Mapping[str, Engine] = {
    "local": Engine("beamlike, local", ("benchmarks.run_job", "local"), _LARGE),
    "spark": Engine("beamlike, Spark streaming", ("benchmarks.run_job", "spark"), _LARGE),
    "spark-large": Engine(
        "beamlike, Spark streaming, batches of 4 M", ("benchmarks.run_job", "spark"), _LARGE, files=5
    ),
    "native": Engine("PySpark streaming", ("benchmarks.native",), _LARGE),
    "native-batch": Engine("PySpark batch", ("benchmarks.native", "--batch"), _LARGE),
    "flink-sql": Engine("Flink SQL", ("flink_sql.py",), _LARGE, _FLINK, csv=True),
    "flink-datastream": Engine(
        "PyFlink DataStream, thread mode", ("flink_datastream.py",), (20_000, 100_000), _FLINK, csv=True
    ),
    "bytewax": Engine(
        "Bytewax", ("bytewax_job.py",), (100_000, 1_000_000), ("bytewax==0.21.1", "pyarrow==26.0.1")
    ),
    "beam": Engine(
        "Apache Beam, Python, local runner",
        ("beam_job.py",),
        (10_000, 100_000),
        ("apache-beam==2.77.0", "pyarrow==25.0.1"),
    ),
}


@attrs.frozen
class Run:
    """One engine on one size: seconds and bytes of the whole process with its start, and how its answer compares.

    `batch` is the median time of its micro-batches, but for the first two, where it has such. If it did not run,
    `failed` says why and all else is zero.
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


class Failed(Exception):
    """An engine did not install or did not run."""


def environment(engine: Engine, work: Path) -> Path:
    """The Python for an engine: this one, or that of an environment with its packages, which is made if need be.

    Raises Failed with what pip says.
    """
    if not engine.packages:
        return Path(sys.executable)
    folder = work / "-".join(name.replace("==", "-") for name in engine.packages)
    python, stamp = folder / "bin" / "python", folder / "installed"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for command in ([sys.executable, "-m", "venv", str(folder)], [*pip, *engine.packages]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Failed(f"does not install: {_reason(done.stderr)}")
        stamp.touch()
    return python.absolute()


def inputs(events: int, files: int, csv: bool, work: Path) -> Path:
    """The plays of both sources, in files; times are whole milliseconds, as Flink's windows know no finer ones."""
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
    if not csv:
        return data
    for source, plays in oracle.read(data).items():
        path = data / f"{source}.csv"
        if not path.exists():
            columns = pl.col("event_time").dt.timestamp("ms"), "user", "score"
            plays.select(*columns).collect().write_csv(path, include_header=False)
    return data


def run(name: str, events: int, work: Path, environments: Path, env: Mapping[str, str]) -> Run:
    """Run an engine on so many events and check its answer."""
    engine = ENGINES[name]
    try:
        python = environment(engine, environments)
        data, out = inputs(events, engine.files, engine.csv, work), work / f"{name}-{events}"
        shutil.rmtree(out, ignore_errors=True)
        command = [str(python), *_program(engine, data, out)]
        log = work / f"{name}-{events}.log"
        # The Python inside Flink's JVM is that on the PATH.
        path = {"PATH": os.pathsep.join([str(python.parent), env["PATH"]])}
        with open(log, "w") as file:
            usage = measure(command, env={**env, **path}, log=file)
        if usage.code:
            raise Failed(f"code {usage.code}, {log}: {_reason(log.read_text(errors='replace'))}")
    except Failed as failed:
        return Run(name, events, failed=str(failed))
    answer = check(oracle.written(out), oracle.averages(oracle.read(data), "end_of_window"))
    batch = _median_batch(out / BATCHES)
    return Run(name, events, usage.wall, usage.cpu, usage.memory, str(answer), answer.right, batch)


def _program(engine: Engine, data: Path, out: Path) -> list[str]:
    script, *options = engine.command
    if engine.packages:
        return [str(_PEERS / script), str(data.absolute()), str(out.absolute()), str(CORES)]
    return ["-m", script, *options, str(data), str(out), f"--cores={CORES}"]


def _median_batch(path: Path) -> float | None:
    return statistics.median(json.loads(path.read_text())[2:]) if path.exists() else None


def _reason(text: str) -> str:
    """The last line of a log that names an error, or else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    return (errors or lines or ["nothing"])[-1]


def marginal(runs: Iterable[Run], name: str) -> tuple[float | None, float] | None:
    """What more events take once an engine runs: events per second (None where noise hides it), CPU us per event."""
    mine = sorted((run for run in runs if run.engine == name and not run.failed), key=lambda run: run.events)
    if len(mine) < 2:
        return None
    least, most = mine[0], mine[-1]
    events, wall = most.events - least.events, most.wall - least.wall
    return (events / wall if wall > 0 else None), (most.cpu - least.cpu) / events * 1e6


def in_batches(run: Run) -> float:
    """Events per second of the median micro-batch; not for a run without batches."""
    assert run.batch
    return run.events / ENGINES[run.engine].files / run.batch


_NAMES = ("engine", "version:", "events", "wall s", "CPU s", "events/s", "CPU µs/event")
_MORE = ("more: events/s", "more: CPU µs/event", "events/s in batches", "peak MB", "answer:")


def rows(runs: Sequence[Run], versions: Mapping[str, str]) -> list[tuple[str, ...]]:
    """A row per engine, of its largest input."""
    shown = []
    for name, engine in ENGINES.items():
        mine = sorted((run for run in runs if run.engine == name), key=lambda run: run.events)
        if not mine:
            continue
        run = mine[-1]
        if run.failed:
            shown.append((engine.title, versions[name], *[""] * 9, run.failed))
            continue
        own = f"{run.events:,}", f"{run.wall:.1f}", f"{run.cpu:.1f}", f"{run.rate:,.0f}"
        cost = f"{run.cpu / run.events * 1e6:.2f}"
        more = marginal(runs, name)
        shares = (
            ("", "") if more is None else ("" if more[0] is None else f"{more[0]:,.0f}", f"{more[1]:.2f}")
        )
        batch = "" if not run.batch else f"{in_batches(run):,.0f}"
        memory = f"{run.memory / 1e6:,.0f}"
        shown.append((engine.title, versions[name], *own, cost, *shares, batch, memory, run.answer))
    return shown


_WHOLE = (
    ("local", "bytewax"),
    ("local", "beam"),
    ("spark", "native"),
    ("spark", "flink-sql"),
    ("spark-large", "flink-sql"),
)


def ratios(runs: Sequence[Run]) -> list[str]:
    """Our runners beside others, in events per second."""
    best = {run.engine: run for run in sorted(runs, key=lambda run: run.events) if not run.failed}
    lines = []
    for ours, other in _WHOLE:
        if ours in best and other in best:
            times = best[ours].rate / best[other].rate
            lines.append(f"{ENGINES[ours].title} by {ENGINES[other].title}, whole runs: {times:.1f}")
    spark, native = best.get("spark"), best.get("native")
    if spark and native and spark.batch and native.batch and spark.events == native.events:
        times = native.batch / spark.batch
        events = f"{spark.events // FILES:,}"
        lines.append(
            f"{ENGINES['spark'].title} by {ENGINES['native'].title}, median batch of {events} events: {times:.1f}"
        )
    flink = marginal(runs, "flink-sql")
    for name in ("spark", "spark-large"):
        if name in best and best[name].batch and flink and flink[0]:
            times = in_batches(best[name]) / flink[0]
            other = ENGINES["flink-sql"].title
            lines.append(f"{ENGINES[name].title}, in batches by more events of {other}: {times:.1f}")
    return lines


def plot(runs: Sequence[Run], path: Path) -> None:
    """Events per second of each engine on its largest input, and of more events once it runs."""
    best = {run.engine: run for run in sorted(runs, key=lambda run: run.events) if not run.failed}
    names = [name for name in ENGINES if name in best][::-1]
    more = [marginal(runs, name) for name in names]
    figure, axes = figures(1, 1, (8, 0.5 * len(names) + 1.2))
    axes = axes[0, 0]
    places = range(len(names))
    rates = [best[name].rate for name in names]
    axes.plot(rates, places, "o", label="whole run, with its start")
    points = [(each[0], place) for place, each in enumerate(more) if each is not None and each[0] is not None]
    if points:
        axes.plot(*zip(*points, strict=True), "D", label="more events, once it runs")
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


def _versions() -> dict[str, str]:
    pyspark = f"pyspark {version('pyspark')}"
    ours = {"local": f"polars {version('polars')}", "spark": pyspark, "spark-large": pyspark}
    return {
        name: engine.packages[0].partition("==")[2] if engine.packages else ours.get(name, version("pyspark"))
        for name, engine in ENGINES.items()
    }


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
@click.option("--install", is_flag=True, help="Only make the environments.")
@click.option(
    "--results",
    default=RESULTS,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The figures, as JSON.",
)
def main(
    engines: tuple[str, ...], events: int | None, work: Path, environments: Path, install: bool, results: Path
) -> None:
    """Run the flagship job in each framework; what is not measured anew is kept in the results."""
    console = Console()
    console.width = max(console.width, _WIDTH)
    java = find_java()
    env = dict(os.environ) | ({} if java is None else {"JAVA_HOME": str(java.home)})
    work.mkdir(parents=True, exist_ok=True)
    for name in engines if install else ():
        with console.status(f"installing for {name}"):
            environment(ENGINES[name], environments)
    kept: list[Figures] = []
    for name in () if install else engines:
        for size in (events,) if events else ENGINES[name].sizes:
            with console.status(f"{name}: {size:,} events"):
                done = run(name, size, work, environments, env)
            console.print(f"{name}, {size:,} events: {done.failed or done.answer}", highlight=False)
            kept = keep(results, [attrs.asdict(done)], ("engine", "events"), machine(java))
    if kept:
        report(console, kept, results)


def report(console: Console, kept: Sequence[Figures], results: Path) -> None:
    """Show all that is known, plot it beside the results, and put it into README.md if the results are there."""
    runs = [Run(**{field.name: figure[field.name] for field in attrs.fields(Run)}) for figure in kept]
    found = rows(runs, _versions())
    shown = Table(*(name.rstrip(":") for name in (*_NAMES, *_MORE)), box=SIMPLE)
    for row in found:
        shown.add_row(*row)
    console.print(shown)
    for line in ratios(runs):
        console.print(line, highlight=False)
    plot(runs, results.with_suffix(".svg"))
    if results == RESULTS:
        lines = [*readme.table((*_NAMES, *_MORE), found), "", *(f"- {line}" for line in ratios(runs)), ""]
        readme.put("throughput", [*lines, readme.on(figure["machine"] for figure in kept)])


if __name__ == "__main__":
    main()
