"""Runs in a Spark Connect session, on a server without this project's code: rows are as in process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import polars as pl
import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.records.model import BatchRecord
from beamlike.spark.session import connect
from tests.support.connect_job import few, generate, many, written
from tests.support.connect_server import Server
from tests.support.places import ROOT
from tests.support.spark_versions import FILES_FIRST

pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status")
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server.start(tmp_path_factory.mktemp("server"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def session(server: Server) -> Iterator[Any]:
    opened = server.session()
    yield opened
    opened.stop()


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plays")
    generate(folder)
    return folder


@pytest.fixture(scope="module")
def expected(plays: Path) -> dict[str, list[str]]:
    many(plays, plays / "expected").run()
    return written(plays / "expected")


def test_rows_are_as_in_process_also_if_a_run_with_an_interval_is_stopped_and_continued(
    session: Any,
    plays: Path,
    tmp_path: Path,
    expected: dict[str, list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    memory, called, batches, started = bl.Memory(), list[str](), list[int](), threading.Event()
    callback = bl.Callback(lambda rows, batch: called.extend(map(str, rows.to_dicts())))
    pipeline = many(plays, tmp_path / "out", memory, callback, bl.Console(rows=100))

    def runner(**options: Any) -> bl.SparkRunner:
        return bl.SparkRunner(tmp_path / "checkpoint", session=session, **options)

    def stop(record: BatchRecord) -> None:
        batches.append(record.batch)
        started.wait()
        run.stop()

    run = runner(trigger="1s", on_batch=stop).start(pipeline.plan())
    started.set()
    for _ in range(2):  # the second time, its session with the server has ended
        run.wait()
    run.stop()
    assert [record.batch for record in run.batches] == [0]
    drained = pipeline.run(runner(drain=True, on_batch=lambda record: batches.append(record.batch)))
    assert batches == [*range(len(drained.batches) + 1)]
    assert written(tmp_path / "out") == expected
    assert sorted(map(str, memory.frame().to_dicts())) == sorted(called) == expected["counts"]
    assert {
        line.partition(",")[0] for line in capsys.readouterr().out.splitlines() if ", batch " in line
    } == {"told 2"}
    assert not (tmp_path / "checkpoint" / "beamlike" / "turns").exists()


def test_a_process_whose_server_is_killed_ends(tmp_path: Path) -> None:
    """PySpark would ask the server for minutes at the end of the process."""
    generate(tmp_path)
    server = Server.start(tmp_path / "server")
    job = [sys.executable, "-m", "tests.support.connect_job", str(tmp_path), "wait"]
    variables = {**os.environ, "SPARK_REMOTE": f"sc://127.0.0.1:{server.port}"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(job, cwd=ROOT, env=variables, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        server.kill()
        try:
            _, told = process.communicate("\n", timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 1
    assert "the server of Spark Connect no longer answers" in told


@pytest.mark.filterwarnings("ignore:.RETRIES_EXCEEDED")
def test_a_killed_client_and_a_killed_server_cost_no_row(
    server: Server,
    session: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generate(tmp_path)
    pipeline, checkpoint = few(tmp_path), tmp_path / "checkpoint"
    job = [sys.executable, "-m", "tests.support.connect_job", str(tmp_path), "die"]
    variables = {**os.environ, "SPARK_REMOTE": f"sc://127.0.0.1:{server.port}"}
    killed = subprocess.run(
        job, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=600, check=False
    )
    assert killed.returncode == 9, killed.stderr

    monkeypatch.setattr(connect, "_SECONDS", 4)  # for which a server is asked again
    other = Server.start(tmp_path / "server")
    far = other.session()

    def kill(record: BatchRecord) -> None:
        if record.batch == 2:
            other.kill()

    with pytest.raises(bl.RunError, match="the server of Spark Connect no longer answers"):
        pipeline.run(bl.SparkRunner(checkpoint, session=far, on_batch=kill))
    far.client.close()  # or it would ask for the server at the end of this process
    pipeline.run(bl.SparkRunner(checkpoint, session=session, drain=True))
    found = written(tmp_path, ("sums",))
    shutil.rmtree(tmp_path / "sums")
    pipeline.run()
    assert found == written(tmp_path, ("sums",))


@pytest.mark.parametrize("state", FILES_FIRST)
def test_savepoints_fit_both_kinds_of_session(
    session: Any, spark: SparkSession, plays: Path, tmp_path: Path, expected: dict[str, list[str]], state: Any
) -> None:
    pipeline = many(plays, tmp_path / "out")
    pipeline.run(bl.SparkRunner(tmp_path / "connect", session=session, state=state))
    bl.savepoint.save(tmp_path / "connect", tmp_path / "first", session=session)
    bl.savepoint.restore(tmp_path / "first", tmp_path / "classic", pipeline, shards=1, session=spark)
    pipeline.run(bl.SparkRunner(tmp_path / "classic", session=spark))
    bl.savepoint.save(tmp_path / "classic", tmp_path / "second", session=spark)
    bl.savepoint.restore(
        tmp_path / "second", tmp_path / "last", pipeline, shards=2, session=session, state=state
    )
    pipeline.run(bl.SparkRunner(tmp_path / "last", session=session, drain=True))
    assert written(tmp_path / "out") == expected


def test_errors_are_those_of_a_classic_session(session: Any, tmp_path: Path) -> None:
    def run(read: bl.Collection, sink: Any) -> None:
        read.write("out", sink)
        read.pipeline.run(bl.SparkRunner(session=session))

    def refuse(row: dict[str, Any]) -> NoReturn:
        raise KeyError("no such play")

    def fail(rows: pl.DataFrame, batch: int) -> NoReturn:
        raise OSError("no such target")

    def plays() -> bl.Collection:
        return bl.Pipeline("plays", max_dead_letters=0).read("plays", bl.Rows([{"v": 1}]))

    with pytest.raises(bl.TooManyDeadLetters, match="no such play"):
        run(plays().map(refuse, {"v": int}), bl.Memory())
    with pytest.raises(bl.SinkError, match="no such target"):
        run(plays(), bl.Callback(fail))
