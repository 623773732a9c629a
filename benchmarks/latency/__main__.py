"""Measures the latency of each engine at each rate, and keeps the figures.

python -m benchmarks.latency --rates 10000,100000 --only local,spark
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import attrs
import click
from confluent_kafka import Consumer
from rich.console import Console

from beamlike.spark.session.java import find_java
from benchmarks.engines import PEERS, Failed, install, variables
from benchmarks.latency import report
from benchmarks.latency.report import ENGINES_OF, SECTION, Engine, Figure
from benchmarks.latency.warm import warm
from benchmarks.logs import reason
from benchmarks.machine import machine
from benchmarks.section import resume
from tests.connectors.kafka import Cluster, broker

_WARM: Final = 15  # seconds after the first pane
_START: Final = 100  # seconds, within which the first pane must arrive


def _end(value: bytes) -> int:
    """Returns the end of a pane's window in milliseconds."""
    found = json.loads(value)["window_end"]
    return found if isinstance(found, int) else int(datetime.fromisoformat(found).timestamp() * 1000)


def _panes(consumer: Any, until: Callable[[int], bool]) -> list[tuple[int, int]]:
    """Returns the end of the window of each pane, and its time of arrival, both in milliseconds."""
    panes: list[tuple[int, int]] = []
    while not until(len(panes)):
        polled, now = _polled(consumer), time.time_ns() // 1_000_000
        panes += [(_end(message.value()), now) for message in polled if message.error() is None]
    return panes


def _polled(consumer: Any) -> list[Any]:
    """Returns the messages that are available. A request for many at once would wait until there are as many."""
    first = consumer.poll(0.05)
    return [] if first is None else [first, *consumer.consume(1_000, timeout=0)]


def _ready(consumer: Any, topic: str) -> None:
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)


def _stop(process: subprocess.Popen[Any]) -> None:
    """Ends the process and the processes that it has started."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
            process.wait(15)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:  # it has ended by itself
            process.wait()
        return


def measured(cluster: Cluster, name: str, job: str, rate: int, seconds: int, work: Path) -> Figure:
    """Measures the latencies of an engine at a rate. Raises `Failed` with the reason in its log."""
    panes = observed(cluster, ENGINES_OF[name], job, rate, seconds, work)
    return Figure.of(name, rate, job, [came - arrived for arrived, came in panes])


def observed(
    cluster: Cluster,
    engine: Engine,
    name: str,
    rate: int,
    seconds: int,
    work: Path,
    done: Callable[[Path], object] = lambda folder: None,
) -> list[tuple[int, int]]:
    """Returns for each pane of a job the arrival of the element that ended its window, and the arrival of the pane.

    `done` is called with the folder of the job when the job has been stopped.
    """
    python, env = Path(sys.executable), dict(os.environ)
    if engine.peer is not None:
        python = install(PEERS[engine.peer], work)
        env = variables(PEERS[engine.peer], python, work, env)
    source, target = (
        cluster.topic(name=f"{way}-{rate}-{time.time_ns()}", **{"message.timestamp.type": "LogAppendTime"})
        for way in ("in", "out")
    )
    settings = {"bootstrap.servers": cluster.servers, "group.id": target, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10})
    with ExitStack() as held:
        held.callback(consumer.close)
        folder = held.enter_context(
            tempfile.TemporaryDirectory(prefix="latency-", ignore_cleanup_errors=True)
        )
        log = held.enter_context(Path(folder, "log").open("w+"))
        arrivals = held.enter_context(Path(folder, "arrivals").open("w+"))

        def start(
            command: Sequence[str], out: Any, errors: Any, env: Mapping[str, str]
        ) -> subprocess.Popen[Any]:
            process = subprocess.Popen(
                command, stdout=out, stderr=errors, env=env, cwd=Path.cwd(), start_new_session=True
            )
            held.callback(_stop, process)
            return process

        topics = [cluster.servers, source, target]
        keys = 100 if name == "windows" else rate // 10  # each has some ten elements a second
        _ready(consumer, target)
        job = start([f"{python}", *engine.command, *topics, f"{folder}/checkpoint", name], log, log, env)
        load = [
            sys.executable,
            "-m",
            "benchmarks.latency.load",
            cluster.servers,
            source,
            f"{rate}",
            f"{keys}",
        ]
        start(load, arrivals, log, dict(os.environ))
        due = time.monotonic() + _START

        def first(panes: int) -> bool:
            if job.poll() is not None:
                raise Failed(f"ended: {reason(Path(log.name).read_text())}")
            if not panes and time.monotonic() > due:
                raise Failed(f"no pane within {_START} seconds of its start")
            return panes > 0

        _panes(consumer, first)
        warm = time.monotonic() + _WARM
        _panes(consumer, lambda _: time.monotonic() > warm)
        begin, over = time.time() * 1000, time.monotonic() + seconds
        panes = _panes(consumer, lambda _: time.monotonic() > over)
        if job.poll() is not None:
            raise Failed(f"ended: {reason(Path(log.name).read_text())}")
        arrived = {
            int(second): int(at)
            for second, at in map(str.split, Path(arrivals.name).read_text().splitlines())
        }
        _stop(job)
        done(Path(folder))
    return [(arrived[end], at) for end, at in panes if arrived.get(end, 0) >= begin]


@click.command()
@click.option("--jobs", default=",".join(report.JOBS), help="Some of the jobs.")
@click.option("--rates", default="10000,100000", help="Elements a second.")
@click.option("--seconds", default=25, help="How long it is measured, once it is warm.")
@click.option("--only", default=",".join(ENGINES_OF), help="Some of the engines.")
@click.option(
    "--work", default="build/bench-envs", type=click.Path(path_type=Path), help="For what is installed."
)
@resume
def main(jobs: str, rates: str, seconds: int, only: str, work: Path, resume: bool) -> None:
    """Measures, keeps and shows the figures."""
    # Started processes must end with this process, however that ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    console, about = Console(), machine(find_java())
    wanted = [
        (name, job, int(rate))
        for job in jobs.split(",")
        for rate in rates.split(",")
        for name in only.split(",")
        if job in ENGINES_OF[name].jobs
    ]
    left = SECTION.left(wanted, about["commit"]) if resume else wanted
    with ExitStack() as held:
        cluster = held.enter_context(broker()) if left else None
        if cluster is not None:
            warm(cluster)
        for name, job, rate in left:
            load = os.getloadavg()[0]
            try:
                assert cluster is not None
                figure = measured(cluster, name, job, rate, seconds, work)
            except Failed as error:
                figure = Figure(name, rate, job, failed=f"{error}")
            figure = attrs.evolve(figure, load=load)
            console.print(f"{figure}")
            SECTION.keep([attrs.asdict(figure)], about)
    report.draw(
        [Figure.kept(one) for one in SECTION.figures], report.TITLES, SECTION.path.with_suffix(".svg")
    )
    SECTION.show()
    print("\n".join(SECTION.text()))


if __name__ == "__main__":
    main()
