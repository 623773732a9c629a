"""Short benchmarks for comparing commits: each job beside plain code that computes the same, as ratios.

`python -m benchmarks.quick` measures, compares the ratios with those of the last commits, adds them to `history.jsonl`
and draws `history.svg`. A ratio is the CPU time of a job by that of its baseline. Both run in turns in one process, so
that the ratio depends little on the machine and on what else runs there.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

import beamlike as bl
from beamlike.spark.session.java import find_java
from benchmarks import history
from benchmarks.machine import machine
from benchmarks.measure import measure
from examples import generate, oracle, silence
from examples.session_lengths import pipeline as session_lengths

LEAST = 0.3
"""Seconds of CPU: a shorter measurement is mostly noise."""

Job = Callable[[], Any]


@attrs.frozen
class Pair:
    """A job and its baseline, both on input that is made once. `check` compares their results."""

    job: Job
    baseline: Job
    check: Callable[[Any, Any], bool] = lambda ours, plain: ours == plain


@attrs.frozen
class Figure:
    """CPU seconds of a job and its baseline, the medians of the rounds, and the median of their ratios."""

    name: str
    seconds: float
    baseline: float
    ratio: float


def counts(users: int, rows: int, batches: int, **options: Any) -> Callable[[Path], Pair]:
    """Returns a job that counts the plays of each user in days; all users have a window in state."""

    def make(folder: Path) -> Pair:
        data, rng = folder / "plays", np.random.default_rng(1)
        data.mkdir()
        for number in range(batches + 1):
            which = np.arange(users) if number == 0 else rng.integers(0, users, rows)
            at = np.sort(rng.integers(0, 43_200, len(which)))
            pl.DataFrame({"user": which, "at": at}).write_parquet(data / f"{number:04d}.parquet")

        def ours() -> dict[int, int]:
            return _by_user(_counted(data, options, bl.LocalRunner()))

        def plain() -> dict[int, int]:
            state = pl.DataFrame(schema={"user": pl.Int64, "n": pl.UInt32})
            for file in sorted(data.iterdir()):
                new = pl.read_parquet(file).group_by("user").agg(n=pl.len())
                state = pl.concat([state, new]).group_by("user").agg(pl.col("n").sum())
            return _by_user(state)

        return Pair(ours, plain)

    return make


def checkpoint(users: int, rows: int, batches: int) -> Callable[[Path], Pair]:
    """Returns the job of `counts` with a checkpoint; the baseline is the run without one."""

    def make(folder: Path) -> Pair:
        pair = counts(users, rows, batches)(folder)

        def kept() -> dict[int, int]:
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
            runner = bl.LocalRunner(checkpoint=folder / "checkpoint", drain=True)
            return _by_user(_counted(folder / "plays", {}, runner))

        return Pair(kept, pair.job)

    return make


def _counted(data: Path, options: Mapping[str, Any], runner: bl.LocalRunner) -> pl.DataFrame:
    p, out = bl.Pipeline("plays"), list[pl.DataFrame]()
    source = bl.Parquet(data, {"user": int, "at": int}, order="path", max_files_per_trigger=1)
    watermark = bl.BoundedOutOfOrderness("1d")
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    days = plays.window_into(bl.FixedWindows("1d"), **options).group_by("user")
    days.aggregate(n=bl.count()).write("out", bl.Callback(lambda frame, batch: out.append(frame)))
    p.run(runner)
    return pl.concat(out).group_by("user").agg(pl.col("n").max())


def _by_user(frame: pl.DataFrame) -> dict[int, int]:
    return dict(frame.select("user", pl.col("n").cast(pl.Int64)).rows())


def flagship(events: int, batches: int = 5) -> Callable[[Path], Pair]:
    """Returns a job that computes the lengths of sessions of two sources, and their means by two minutes."""

    def make(folder: Path) -> Pair:
        data, out = folder / "plays", folder / "out"
        generate.write(data, generate.Plays(events, files=batches))

        def ours() -> pl.DataFrame:
            shutil.rmtree(out, ignore_errors=True)
            session_lengths(data, out, bl.END_OF_WINDOW).run()
            return oracle.written(out)

        return Pair(ours, lambda: oracle.averages(oracle.read(data), "end_of_window"), _alike)

    return make


def _alike(ours: pl.DataFrame, plain: pl.DataFrame) -> bool:
    return oracle.differences(ours, plain) == []


def timers(sensors: int) -> Callable[[Path], Pair]:
    """Returns a job with a timer of each sensor, set again with each reading: a row-wise `Process` beside polars."""

    def make(folder: Path) -> Pair:
        heard = silence.readings(silence.Sensors(sensors, hours=1))
        return Pair(
            lambda: silence.run(heard, bl.LocalRunner()),
            lambda: silence.expected(heard),
            lambda ours, plain: ours.equals(plain),
        )

    return make


def interval_join(rows: int, batches: int) -> Callable[[Path], Pair]:
    """Returns a job that joins clicks to impressions of the same user within ten seconds."""

    def make(folder: Path) -> Pair:
        rng, frames = np.random.default_rng(2), {}
        for name in ("impressions", "clicks"):
            at = np.sort(rng.integers(0, rows // 20, rows))
            frames[name] = pl.DataFrame({"user": rng.integers(0, 1_000, rows), "at": at})
        _write(folder, frames, batches)

        def ours() -> int:
            impressions, clicks = _read(folder, frames)
            return _written(impressions.join(clicks, on="user", within=("0s", "10s")), pl.len())

        def plain() -> int:
            left, right = frames["impressions"].lazy(), frames["clicks"].lazy()
            both = left.join(right.rename({"at": "then"}), on="user")
            near = both.filter((pl.col("then") - pl.col("at")).is_between(0, 10))
            return int(near.select(pl.len()).collect(engine="streaming").item())

        return Pair(ours, plain)

    return make


def as_of_join(rows: int, users: int, batches: int) -> Callable[[Path], Pair]:
    """Returns a job that joins clicks to the newest price for the user. A batch has rows of most of the users."""

    def make(folder: Path) -> Pair:
        rng, frames = np.random.default_rng(3), {}
        for name, second in (("clicks", 1), ("prices", 0)):  # no two at the same time
            at = np.sort(rng.integers(0, rows // 2, rows)) * 2 + second
            frames[name] = pl.DataFrame({"user": rng.integers(0, users, rows), "at": at})
        frames["prices"] = frames["prices"].with_columns(price=pl.int_range(rows))
        _write(folder, frames, batches)

        def ours() -> int:
            clicks, prices = _read(folder, frames)
            return _written(clicks.join_asof(prices, on="user"), pl.col("price").sum())

        def plain() -> int:
            joined = frames["clicks"].join_asof(frames["prices"], on="at", by="user", check_sortedness=False)
            return int(joined["price"].sum())

        return Pair(ours, plain)

    return make


def _write(folder: Path, frames: Mapping[str, pl.DataFrame], batches: int) -> None:
    """Writes each frame as files for so many batches."""
    for name, frame in frames.items():
        (folder / name).mkdir()
        for number, part in enumerate(frame.iter_slices(-(-len(frame) // batches))):
            part.write_parquet(folder / name / f"{number:04d}.parquet")


def _read(folder: Path, frames: Mapping[str, pl.DataFrame]) -> list[bl.Collection]:
    """Reads what `_write` has written, a file of each in a batch."""
    p = bl.Pipeline("joined")
    return [
        p.read(
            name,
            bl.Parquet(
                folder / name, dict.fromkeys(frame.columns, int), order="path", max_files_per_trigger=1
            ),
            timestamp="at",
            timestamp_unit="s",
            watermark=bl.MonotonousTimestamps(),
        )
        for name, frame in frames.items()
    ]


def _written(joined: bl.Collection, value: pl.Expr) -> int:
    """Runs a pipeline, and returns the sum of a value of each frame that it writes."""
    found = list[int]()
    joined.write("out", bl.Callback(lambda frame, batch: found.append(frame.select(value).item())))
    joined.pipeline.run()
    return sum(found)


def imported(folder: Path) -> Pair:
    """Returns a process that imports the package, beside one that imports polars; both compiled, as pip leaves them."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONPATH": str(Path(__file__).parents[1])}

    def new_process(module: str) -> int:
        return subprocess.run([sys.executable, "-c", f"import {module}"], env=env, check=True).returncode

    return Pair(lambda: new_process("beamlike"), lambda: new_process("polars"))


EARLY = bl.AfterWatermark(early=bl.AfterCount(2), late=bl.AfterCount(1))

JOBS: Mapping[str, Callable[[Path], Pair]] = {
    "import": imported,
    "flagship": flagship(1_000_000),
    "small batches": flagship(60_000, batches=100),
    "many keys": counts(300_000, 20_000, 20),
    "triggers": counts(
        100_000, 50_000, 20, trigger=EARLY, accumulation="accumulating", allowed_lateness="1h"
    ),
    "timers": timers(1_500),
    "join": interval_join(100_000, 10),
    "as-of join": as_of_join(500_000, 10_000, 10),
    "checkpoint": checkpoint(100_000, 5_000, 30),
}
"""Each makes its input in a folder."""


@attrs.frozen
class OnSpark:
    """The flagship on Spark, in a process of its own, with numbers of plays, batches and shards."""

    events: int
    batches: int
    shards: int


ON_SPARK: Mapping[str, OnSpark] = {
    "flagship on Spark": OnSpark(200_000, 5, 2),
    "start on Spark": OnSpark(2_000, 2, 1),
    "small batches on Spark": OnSpark(30_000, 30, 1),
}
"""The cost of a whole job, of a start without rows, and of small batches."""


def take(name: str, make: Callable[[Path], Pair], rounds: int) -> Figure:
    """Measures a pair in turns, after one round that does not count. Raises `ClickException` where results differ."""
    with tempfile.TemporaryDirectory() as folder, _in(folder):
        pair = make(Path(folder))
        if not pair.check(pair.job(), pair.baseline()):
            raise click.ClickException(f"{name}: the job and its baseline have different results")
        pairs = [(_seconds(pair.job), _seconds(pair.baseline)) for _ in range(rounds)]
    return _figure(name, pairs)


def take_on_spark(name: str, job: OnSpark, rounds: int) -> Figure:
    """Measures a job on Spark beside native Spark, each run in a process of its own."""
    java = find_java()
    env = dict(os.environ) | ({} if java is None else {"JAVA_HOME": str(java.home)})
    with tempfile.TemporaryDirectory() as folder:
        data, pairs = Path(folder, "plays"), []
        generate.write(data, generate.Plays(job.events, files=job.batches))
        commands = (["benchmarks.run_job", "--shards", str(job.shards), "spark"], ["benchmarks.native"])
        for number in range(rounds):
            seconds = []
            for module in commands:
                log = Path(folder, "log")
                with open(log, "w") as file:
                    out = str(Path(folder, f"{module[0]}-{number}"))
                    usage = measure([sys.executable, "-m", *module, str(data), out], env=env, log=file)
                if usage.code:
                    raise click.ClickException(f"{module[0]} failed:\n{log.read_text()[-3_000:]}")
                seconds.append(usage.cpu)
            pairs.append((seconds[0], seconds[1]))
    return _figure(name, pairs)


def _seconds(job: Job) -> float:
    """Returns the CPU seconds of one call: the mean of as many calls as take `LEAST` seconds."""
    begin, calls = _cpu(), 0
    while not calls or _cpu() - begin < LEAST:
        job()
        calls += 1
    return (_cpu() - begin) / calls


def _cpu() -> float:
    """Returns the CPU seconds of this process, and of its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _figure(name: str, pairs: Sequence[tuple[float, float]]) -> Figure:
    ours, plain = (statistics.median(times) for times in zip(*pairs, strict=True))
    return Figure(name, ours, plain, statistics.median(one / other for one, other in pairs))


class _in:
    """Changes the current folder, for files that jobs write beside their output."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        self.before = os.getcwd()
        os.chdir(self.folder)

    def __exit__(self, *error: object) -> None:
        os.chdir(self.before)


_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(context_settings={"show_default": True})
@click.option("--only", default=",".join([*JOBS, *ON_SPARK]), help="The jobs to measure, by name.")
@click.option(
    "--rounds", default=7, type=click.IntRange(1), help="Turns of each job and its baseline; 2 on Spark."
)
@click.option("--history", "path", default=history.HISTORY, type=_FILE, help="The ratios of each commit.")
def main(only: str, rounds: int, path: Path) -> None:
    """Measure each job beside its baseline, and compare the ratios of their CPU times with the last commits."""
    console, about = Console(), machine(find_java())
    wanted = [name.strip() for name in only.split(",")]
    if unknown := [name for name in wanted if name not in (*JOBS, *ON_SPARK)]:
        raise click.BadParameter(f"{unknown[0]!r}, expected some of {', '.join([*JOBS, *ON_SPARK])}")
    figures, shown = [], Table("job", "CPU s", "of its baseline", "ratio")
    for name in wanted:
        with console.status(name):
            figure = (
                take_on_spark(name, ON_SPARK[name], min(2, rounds))
                if name in ON_SPARK
                else take(name, JOBS[name], rounds)
            )
        figures.append(figure)
        shown.add_row(name, f"{figure.seconds:.2f}", f"{figure.baseline:.2f}", f"{figure.ratio:.2f}")
    console.print(shown)
    ratios = {figure.name: round(figure.ratio, 3) for figure in figures}
    now = history.Entry(f"{about['commit']}", about["time"], ratios, about)
    console.print(_compared(history.read(path), now), highlight=False)
    if now.commit.endswith("+"):
        console.print("Not stored: the code differs from its commit.")
        return
    history.draw(history.add(now, path), path.with_suffix(".svg"))


def _compared(before: Sequence[history.Entry], now: history.Entry) -> str:
    if not [each for each in before if each.commit != now.commit]:
        return "There is no other commit to compare with."
    changes = sorted(history.changes(before, now), key=lambda change: -change.factor)
    return (
        "\n".join(map(str, changes))
        or "Nothing became slower or faster than the last commits by more than noise."
    )


if __name__ == "__main__":
    main()
