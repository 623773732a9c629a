"""Stopping: the current batch is finished, no other begins, and the next run resumes there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.records.history import History
from beamlike.records.model import BatchRecord
from beamlike.spark.stopping import answer
from beamlike.system.signals import signals
from tests.support.places import ROOT

BATCHES = 4


def pipeline(sink: bl.Memory) -> bl.Pipeline:
    """Declares `BATCHES` rows, each a batch."""
    p = bl.Pipeline("scores")
    rows = bl.Rows([{"user": "a", "at": 10 * number} for number in range(BATCHES)], rows_per_batch=1)
    plays = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    plays.write("out", sink)
    return p


def logged(checkpoint: Path, log: str) -> list[str]:
    """Returns the batches in one of Spark's logs."""
    return sorted(file.name for file in (checkpoint / log).iterdir() if file.name.isdigit())


def manifest(checkpoint: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((checkpoint / "beamlike" / "manifest.json").read_text())
    return facts


def goes_on(spark: SparkSession, checkpoint: Path, first: int) -> None:
    """Checks that the next run on the checkpoint begins with this batch and reads the rest."""
    sink = bl.Memory()
    run = pipeline(sink).run(bl.SparkRunner(str(checkpoint), session=spark, shards=1, drain=True))
    assert run.batches[0].batch == first
    assert len(sink.rows()) == BATCHES - first
    assert manifest(checkpoint)["drained"]


@pytest.mark.spark
@pytest.mark.parametrize(
    "options", [{"drain": True}, {"trigger": "10 milliseconds"}, pytest.param({}, marks=pytest.mark.slow)]
)
def test_a_signal_stops_a_run_between_two_batches(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(record: BatchRecord) -> None:
        if record.batch == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    runner = bl.SparkRunner(str(tmp_path), session=spark, shards=1, on_batch=interrupt, **options)
    sink = bl.Memory()
    run = pipeline(sink).run(runner)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert [record.batch for record in run.batches] == [0, 1]
    assert logged(tmp_path, "commits") == ["0", "1"]
    assert len(sink.rows()) == 2
    assert manifest(tmp_path)["whole"]
    assert not manifest(tmp_path)["drained"]
    assert "scores: stopping after the current batch" in capfd.readouterr().err
    goes_on(spark, tmp_path, 2)


@pytest.mark.spark
def test_a_second_signal_gives_the_batch_up(spark: SparkSession, tmp_path: Path) -> None:
    def interrupt_twice(record: BatchRecord) -> None:
        if record.batch == 1:
            # Signals the waiting thread: if two signals arrive at once, another thread may receive one.
            waits = threading.main_thread().ident
            assert waits is not None
            signal.pthread_kill(waits, signal.SIGTERM)
            signal.pthread_kill(waits, signal.SIGINT)
            # Simulates a long batch; the end of its query interrupts it.
            jvm: Any = spark._jvm
            jvm.java.lang.Thread.sleep(600_000)

    runner = bl.SparkRunner(str(tmp_path), session=spark, shards=1, on_batch=interrupt_twice)
    pipeline(bl.Memory()).run(runner)
    assert logged(tmp_path, "commits") == ["0"]
    assert logged(tmp_path, "offsets") == ["0", "1"]
    assert not manifest(tmp_path)["whole"]
    goes_on(spark, tmp_path, 1)


@pytest.mark.spark
def test_a_checkpoint_has_one_run_and_a_batch_may_ask_for_its_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    began, refused = threading.Event(), threading.Event()

    def stop_in_batch(record: BatchRecord) -> None:
        began.set()
        assert refused.wait(timeout=120)
        run.stop()

    options: dict[str, Any] = {"session": spark, "shards": 1, "trigger": "1 second"}
    run = bl.SparkRunner(str(tmp_path), on_batch=stop_in_batch, **options).start(pipeline(bl.Memory()).plan())
    try:
        assert began.wait(timeout=120)
        told = f"in use by the run of 'scores' in process {os.getpid()} on "
        with pytest.raises(bl.CheckpointError, match=told):
            bl.SparkRunner(str(tmp_path), **options).start(pipeline(bl.Memory()).plan())
    finally:
        refused.set()
        run.wait()
    assert [record.batch for record in run.batches] == [0]
    assert manifest(tmp_path)["whole"]
    goes_on(spark, tmp_path, 1)


@pytest.mark.spark
def test_to_stop_a_run_that_is_over_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    run = pipeline(bl.Memory()).run(bl.SparkRunner(str(tmp_path), session=spark, shards=1, drain=True))
    before = manifest(tmp_path)
    run.stop()
    run.stop(now=True)
    assert manifest(tmp_path) == before
    assert History.open(tmp_path).closed == "ended"
    with pytest.raises(bl.CheckpointError, match="was drained"):  # its lock is free
        bl.SparkRunner(str(tmp_path), session=spark, shards=1).start(pipeline(bl.Memory()).plan())


JOB = """
import os, signal
import beamlike as bl

def scores() -> bl.Pipeline:
    p = bl.Pipeline("scores")
    plays = p.read("plays", bl.Rows([{"user": "a", "at": at} for at in range(3)], rows_per_batch=1),
                   timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    plays.write("out", bl.Callback(lambda frame, batch: os.kill(os.getpid(), signal.SIGTERM) if len(frame) else None))
    return p
"""


@pytest.mark.slow
@pytest.mark.spark
def test_from_the_command_line_sigterm_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    command = [
        sys.executable,
        "-m",
        "beamlike",
        "run",
        "job:scores",
        "--runner",
        "spark",
        "--shards",
        "1",
    ]
    root = str(ROOT)
    done = subprocess.run(
        [*command, "--checkpoint", "checkpoint", "--master", "local[1]", "--trigger", "1 second"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stopping after the current batch; a second signal abandons it" in done.stderr
    assert "Traceback" not in done.stderr
    assert logged(tmp_path / "checkpoint", "commits") == ["0"]


def test_the_first_signal_asks_and_the_second_interrupts() -> None:
    asked: list[str] = []
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with signals(lambda: asked.append("stop")):
        signal.raise_signal(signal.SIGINT)
        assert asked == ["stop"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert asked == ["stop"]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_in_another_thread_signals_are_left_alone() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def look() -> None:
        with signals(lambda: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


def test_java_is_asked_again_where_a_signal_broke_its_answer() -> None:
    empty, bare = (
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o1"),
    )
    answers = iter([empty, bare, True])

    def ask() -> bool:
        found = next(answers)
        if isinstance(found, Py4JError):
            raise found
        return found

    assert answer(ask)


def test_java_that_never_answers_is_an_error() -> None:
    def ask() -> bool:
        raise Py4JNetworkError("Answer from Java side is empty")

    with pytest.raises(Py4JNetworkError, match="is empty"):
        answer(ask)
