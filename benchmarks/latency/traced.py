"""Runs a job in process, and stores when each phase of each of its batches began and ended.

python -m benchmarks.latency.traced SERVERS INPUT OUTPUT CHECKPOINT windows|flagship
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from beamlike.io.kafka import sender
from beamlike.io.kafka.sink import KafkaSink
from beamlike.local.engine import Engine
from beamlike.local.executor import LocalExecutor
from beamlike.runtime.batch.batch_sinks import BatchSinks
from beamlike.runtime.loop.feed import SourceInputFeed
from beamlike.runtime.loop.journal import Journal
from beamlike.runtime.loop.live_run import LiveRun
from beamlike.runtime.loop.opened import Opened
from benchmarks.latency.job import pipeline, run_in_process

PHASES: Final[dict[str, tuple[Any, str]]] = {
    "poll": (SourceInputFeed, "next"),
    "log": (LiveRun, "_begun"),
    "read": (SourceInputFeed, "read"),
    "sources": (Engine, "begin"),
    "stages": (Engine, "_steps"),
    "wait for the log": (Journal, "settle"),
    "sinks": (BatchSinks, "write"),
    "encode": (KafkaSink, "_produce"),
    "transaction": (sender, "insist"),
    "process": (LocalExecutor, "run"),
    "records and commit": (Opened, "finish"),
    "rest": (LiveRun, "_rest"),
}
"""The functions that are timed. Some are called by others: `sinks` has `encode` and both parts of a `transaction`."""


Span = tuple[str, float, float, float]
"""The name of a phase, its begin and end (s since the epoch), and the CPU seconds of its thread."""


def timed(spans: list[Span]) -> None:
    """Replaces the functions of the phases by some that add their times to `spans`."""
    for name, (owner, function) in PHASES.items():
        setattr(owner, function, _timed(name, getattr(owner, function), spans))


def _timed(name: str, function: Callable[..., Any], spans: list[Span]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        began, used = time.time(), time.thread_time()
        try:
            return function(*arguments, **options)
        finally:
            spans.append((name, began, time.time(), time.thread_time() - used))

    return call


@click.command()
@click.argument("servers")
@click.argument("source")
@click.argument("target")
@click.argument("checkpoint")
@click.argument("job")
def main(servers: str, source: str, target: str, checkpoint: str, job: str) -> None:
    """Runs until it is stopped, and stores the times in the file `spans.json` beside the checkpoint."""
    spans: list[Span] = []
    timed(spans)
    run_in_process(pipeline(servers, source, target, job), checkpoint)
    Path(checkpoint).with_name("spans.json").write_text(json.dumps(spans))


if __name__ == "__main__":
    main()
