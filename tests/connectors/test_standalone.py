"""Runs on a standalone cluster of Spark, whose master, workers and drivers are processes of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from examples import silence
from tests.connectors.standalone import Standalone, standalone
from tests.support.places import ROOT

pytestmark = [pytest.mark.connectors, pytest.mark.spark]

PROGRAMS = Path(__file__).with_name("submitted")
SENSORS = silence.readings(silence.Sensors(40, hours=2))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Standalone]:
    """A master and two workers."""
    with standalone() as made:
        yield made


def write_readings(folder: Path, first: int, end: int, files: int = 6) -> None:
    """Some of as many files of the readings, a batch each."""
    folder.mkdir(exist_ok=True)
    size = -(-len(SENSORS) // files)
    for number in range(first, end):
        partial = folder / f".{number}"
        SENSORS[number * size : (number + 1) * size].write_parquet(partial)
        partial.rename(folder / f"{number:03d}.parquet")


def alerts(folder: Path) -> pl.DataFrame:
    """What was told, in order."""
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


def test_python_programs_cannot_be_submitted_to_a_standalone_cluster_in_cluster_mode(
    cluster: Standalone,
) -> None:
    with cluster.submit(PROGRAMS / "sensors.py", mode="cluster", python=sys.executable) as run:
        assert run.ended() == 1
    said = run.log.read_text()
    assert "Cluster deploy mode is currently not supported for python applications on standalone" in said
