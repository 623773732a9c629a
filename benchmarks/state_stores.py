"""The two stores of state on Spark, files of the checkpoint and Spark's own state store, beside each other.

    python -m benchmarks.state_stores --resume                 # what is not measured of this commit
    python -m benchmarks.state_stores --only rows,s3

Two runs take turns, batch by batch, so that both have the same machine. CPU time and bytes are those of all processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs
import click
from rich.console import Console

from beamlike.spark.session.java import find_java
from benchmarks import state_stores_report as report
from benchmarks.family import Member, family
from benchmarks.kept import Figures
from benchmarks.machine import machine
from benchmarks.section import resume
from benchmarks.state_stores_job import Case

STORES: Final = ("files", "spark")
_LOG_LINES: Final = 40  # of a run that failed, to show
_POLL: Final = 0.5  # seconds

CASES: Final[tuple[Case, ...]] = (
    *(
        Case("rows", "running", keys, rows, shards)
        for rows in (100_000, 1_000_000)
        for keys in ("random", "growing")
        for shards in (1, 2)
    ),
    *(Case("rows", "windows", "random", 1_000_000, shards) for shards in (1, 2)),
    *(Case("s3", "running", "random", 100_000, shards, batches=30) for shards in (1, 2)),
    *(
        Case(part, "running", "random", 100_000, shards, batches=30, cluster=True)
        for part, shards in (("cluster", 2), ("cluster", 3), ("cluster s3", 3))
    ),
    *(Case("rows", "running", keys, 10_000_000, 2, batches=30) for keys in ("random", "growing")),
    Case("long", "running", "random", 10_000, 1, batches=2_000, arrivals=100, every=50),
)


def key(case: Case) -> tuple[Any, ...]:
    """Returns the values of a case by which its figures are found."""
    return tuple(getattr(case, name) for name in report.OF_CASE)


def measure(case: Case, logs: Path) -> list[Figures]:
    """Runs a case with both stores in turns. Raises `ClickException` if a run fails, or if the outputs differ."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held:
        work = Path(folder)
        case.write(work / "data")
        places, env, log = _places(case, work, held)
        pipes = [work / f"{store}.turns" for store in STORES]
        for pipe in pipes:
            os.mkfifo(pipe)
        runs = []
        for number, store in enumerate(STORES):
            (work / store).mkdir()
            facts = json.dumps(attrs.asdict(case))
            command = [sys.executable, "-m", "benchmarks.state_stores_job", store, facts, str(work / "data")]
            command += [str(work / store), places[store], str(pipes[number]), str(pipes[1 - number])]
            command += ["--leads"] * (number == 0) + (["--log", str(log)] if log else [])
            said = logs / f"{'-'.join(map(str, key(case)))}-{store}.log"
            with said.open("w") as file:
                runs.append((subprocess.Popen(command, stdout=file, stderr=file, env=env), said))
        _wait(runs)
        found = {store: json.loads((work / store / "facts.json").read_text()) for store in STORES}
    if found["files"]["answer"] != found["spark"]["answer"]:
        raise click.ClickException(
            f"{case}: the outputs differ: {[each['answer'] for each in found.values()]}"
        )
    return [{**attrs.asdict(case), "store": store, **facts} for store, facts in found.items()]


def _places(case: Case, work: Path, held: ExitStack) -> tuple[dict[str, str], dict[str, str], Path | None]:
    """Returns the checkpoint of each store, the variables of the runs, and the log of the object store if there is
    one.
    """
    if not case.part.endswith("s3"):
        return {store: str(work / store / "checkpoint") for store in STORES}, dict(os.environ), None
    from tests.connectors.s3 import object_store

    log = work / "requests.log"
    server = held.enter_context(object_store(held.enter_context(log.open("w"))))
    env = dict(os.environ) | {name.upper(): value for name, value in server.options.items()}
    return {store: f"s3://{server.bucket()}/checkpoint" for store in STORES}, env, log


def _wait(runs: Sequence[tuple[subprocess.Popen[bytes], Path]]) -> None:
    """Waits for both runs. If one fails, the other one is killed, because it would wait for its turn for ever."""
    left = [*runs]
    try:
        while left:
            run, said = left.pop(0)
            try:
                code = run.wait(_POLL)
            except subprocess.TimeoutExpired:
                left.append((run, said))
                continue
            if code:
                tail = "\n".join(said.read_text(errors="replace").splitlines()[-_LOG_LINES:])
                raise click.ClickException(f"code {code}; the end of {said}:\n{tail}")
    finally:
        for run, _ in left:
            for member in reversed(_below(run.pid)):
                if member.pid != os.getpid():
                    subprocess.run(["kill", "-9", str(member.pid)], check=False, stderr=subprocess.DEVNULL)
            run.wait()


def _below(pid: int) -> list[Member]:
    """Returns a process and its descendants."""
    found = [member for member in family() if member.pid == pid]
    for one in found:
        found += [member for member in family() if member.parent == one.pid]
    return found


def _some(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    parts = [*dict.fromkeys(case.part for case in CASES)]
    for name in value.split(","):
        if name not in parts:
            raise click.BadParameter(f"{name!r}, expected some of {','.join(parts)}", context, option)
    return tuple(value.split(","))


@click.command(context_settings={"show_default": True})
@click.option(
    "--only", "parts", default="rows,s3,cluster,cluster s3,long", callback=_some, help="Some of the parts."
)
@click.option("--rows", "most", default=10_000_000, help="The greatest number of live rows.")
@click.option(
    "--work", default=Path("build/bench"), type=click.Path(file_okay=False, path_type=Path), help="For logs."
)
@resume
def main(parts: tuple[str, ...], most: int, work: Path, resume: bool) -> None:
    """Measure both stores; other figures stay in the results."""
    console, about = Console(), machine(find_java())
    work.mkdir(parents=True, exist_ok=True)
    wanted = {key(case): case for part in parts for case in CASES if case.part == part and case.rows <= most}
    both = [(*each, store) for each in wanted for store in STORES]
    left = report.SECTION.left(both, about["commit"]) if resume else both
    for each, case in wanted.items():
        if not any(one[:-1] == each for one in left):
            continue
        figures = measure(case, work)
        report.SECTION.keep(figures, about)
        shown = ", ".join(f"{figure['store']} {figure['cpu']:.0f}" for figure in figures)
        console.print(f"{' '.join(map(str, each))}: {shown} ms of CPU", highlight=False)
    report.SECTION.show()
    click.echo("\n".join(report.SECTION.text()))


if __name__ == "__main__":
    main()
