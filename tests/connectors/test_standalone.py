"""Runs on a standalone Spark cluster, whose master, workers and drivers are separate processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.observe import History
from examples import generate, oracle, silence
from examples.session_lengths import pipeline
from tests.connectors.jars import jars
from tests.connectors.s3 import Store
from tests.connectors.standalone import Standalone, end, machine, standalone
from tests.support.places import ROOT

pytestmark = [pytest.mark.connectors, pytest.mark.spark]

PROGRAMS = Path(__file__).with_name("submitted")
SENSORS = silence.readings(silence.Sensors(40, hours=2))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Standalone]:
    """A master and two workers."""
    with standalone() as made:
        yield made


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that docs/deploy/packages.sh builds from this source tree."""
    made = ROOT / "build" / "connectors" / f"packages-{sys.version_info.major}.{sys.version_info.minor}"
    source = tmp_path_factory.mktemp("source")
    for name in ("beamlike", "stages", "windowing"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [str(ROOT / "docs" / "deploy" / "packages.sh"), str(made), str(source)]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the packages cannot be had: {done.stderr[-500:]}")
    return made


def test_the_flagship_runs_on_code_and_packages_that_were_sent_with_a_checkpoint_in_an_object_store(
    cluster: Standalone, store: Store, packages: Path, tmp_path: Path
) -> None:
    data = generate.write(tmp_path / "plays", generate.Plays(20_000, 3, 7))
    (data / "numbers.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(4)))
    code = f"{packages / 'beamlike.zip'},{ROOT / 'examples' / 'session_lengths.py'}"
    options = ["--jars", ",".join(map(os.fspath, jars("spark-s3"))), "--py-files", code]
    options += ["--archives", f"{packages / 'environment.tar.gz'}#environment"]
    python = "./environment/bin/python"  # of each executor, and below the folder in which the driver begins
    settings = {f"spark.executorEnv.{name.upper()}": value for name, value in store.options.items()}
    settings |= {**store.of_hadoop, "spark.pyspark.python": python}
    checkpoint = f"s3a://{store.bucket()}/checkpoint"
    program = PROGRAMS / "flagship.py"
    arguments = (program, data, tmp_path / "out", checkpoint)
    sent = {"settings": settings, "options": options, "python": python, "folder": packages}
    with store.in_environment(), cluster.submit(*arguments, **sent) as run:
        run.succeed()
    pipeline(data, tmp_path / "in process", bl.EARLIEST).run()
    found = oracle.written(tmp_path / "out" / "averages")
    assert not oracle.differences(found, oracle.written(tmp_path / "in process"))
    assert len(found) > 20
    history = History.open(tmp_path / "out" / "records.jsonl")
    assert sum(batch.sinks.get("averages", 0) for batch in history.batches) == len(found)
    places = pl.read_ndjson(tmp_path / "out" / "places")
    assert len(places) == 4
    for row in places.to_dicts():
        assert row["python"].startswith(f"{cluster.folder}/worker-")
        assert row["python"].endswith("/environment/bin/python")
        assert row["polars"].startswith(row["python"].removesuffix("bin/python"))
        assert ".zip/beamlike/" in row["beamlike"]


def write_readings(folder: Path, first: int, end: int, files: int = 6) -> None:
    """Writes some of the files of readings, a batch each."""
    folder.mkdir(exist_ok=True)
    size = -(-len(SENSORS) // files)
    for number in range(first, end):
        partial = folder / f".{number}"
        SENSORS[number * size : (number + 1) * size].write_parquet(partial)
        partial.rename(folder / f"{number:03d}.parquet")


def alerts(folder: Path) -> pl.DataFrame:
    """Returns the alerts, in order."""
    told = pl.read_parquet(folder / "*.parquet").select("sensor", "what", "since", "event_time")
    return told.sort("sensor", "event_time", "what", descending=[False, False, True])


def test_a_worker_that_is_killed_changes_nothing(cluster: Standalone, tmp_path: Path) -> None:
    write_readings(tmp_path / "readings", 0, 6)
    folders = [tmp_path / name for name in ("readings", "out", "checkpoint")]
    runner = json.dumps({"drain": True})
    killed = False
    for _ in range(3):
        with cluster.submit(
            PROGRAMS / "sensors.py", *folders, runner, python=sys.executable, path=ROOT
        ) as run:
            for line in run.says():
                if line == "2" and not killed:
                    assert cluster.state()["coresused"] == 2
                    cluster.kill_worker()
                    cluster.add_worker()
                    killed = True
            if run.ended() == 0:
                break
            # Spark does not try a batch again that lost an executor when some of its last tasks were done.
            assert "indeterminate output" in run.log.read_text()
    assert killed
    assert alerts(tmp_path / "out").equals(silence.expected(SENSORS))


@pytest.mark.long
def test_executors_come_and_go_with_what_there_is_to_do(cluster: Standalone, tmp_path: Path) -> None:
    write_readings(tmp_path / "readings", 0, 2)
    folders = [str(tmp_path / name) for name in ("readings", "out", "checkpoint")]
    allocation = {
        "enabled": "true",
        "shuffleTracking.enabled": "true",
        "shuffleTracking.timeout": "5s",
        "minExecutors": "0",
    }
    config = {f"spark.dynamicAllocation.{name}": value for name, value in allocation.items()}
    config |= {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.driver.memory": "512m"}

    @contextmanager
    def begin(idle: str, **runner: Any) -> Iterator[subprocess.Popen[bytes]]:
        idle_timeout = {"spark.dynamicAllocation.executorIdleTimeout": idle}
        with_config = json.dumps({"master": cluster.url, "config": config | idle_timeout, **runner})
        command = [sys.executable, str(PROGRAMS / "sensors.py"), *folders, with_config]
        environment = {**machine(), "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as driver:
            try:
                yield driver
            finally:
                end(driver)

    with begin("5s", trigger="1 second") as run:
        assert run.stdout is not None
        for first in (0, 2):
            write_readings(tmp_path / "readings", first, first + 2)
            next(line for line in run.stdout if line.strip() == b"%d" % (first + 1))
            cluster.until(lambda state: state["coresused"] == 0)
        run.send_signal(signal.SIGTERM)
        assert run.wait(600) == 0
    write_readings(tmp_path / "readings", 4, 6)
    with begin("60s", drain=True) as run:
        assert run.wait(600) == 0
    assert alerts(tmp_path / "out").equals(silence.expected(SENSORS))


def test_python_programs_cannot_be_submitted_to_a_standalone_cluster_in_cluster_mode(
    cluster: Standalone,
) -> None:
    with cluster.submit(PROGRAMS / "sensors.py", mode="cluster", python=sys.executable) as run:
        assert run.ended() == 1
    said = run.log.read_text()
    assert "Cluster deploy mode is currently not supported for python applications on standalone" in said


def test_the_entry_point_of_the_image_starts_an_executor() -> None:
    if shutil.which("tini") is None:
        pytest.skip("tini is not installed")
    entry = ROOT / "docs" / "deploy" / "entrypoint.sh"
    with standalone(workers=0) as empty:
        command = [sys.executable, str(PROGRAMS / "executor.py"), empty.url, str(entry)]
        done = subprocess.run(
            command, env=machine(), capture_output=True, text=True, timeout=300, check=False
        )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "found: with 'a' $space\n" in done.stdout


def test_the_entry_point_of_the_image_starts_a_command() -> None:
    if shutil.which("tini") is None:
        pytest.skip("tini is not installed")
    entry = ROOT / "docs" / "deploy" / "entrypoint.sh"
    command = [
        str(entry),
        sys.executable,
        "-c",
        "import sys; print(sys.argv[1:]); sys.exit(3)",
        "a b",
        "executor",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "['a b', 'executor']\n")
