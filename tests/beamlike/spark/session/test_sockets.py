"""Java and Python exchange small messages without waiting for acknowledgements."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from beamlike.spark.session import sockets
from beamlike.spark.session.sockets import socket_settings
from beamlike.spark.session.workers import settled
from beamlike.spark.versions import installed
from tests.support.places import ROOT

IN_FILES = installed() >= (4, 1)
FOUND = "family int, quick boolean"


def found(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the family of each connection of this worker with Java, and whether it acknowledges at once."""
    for _ in batches:
        quick = socket.TCP_QUICKACK  # type: ignore[attr-defined, unused-ignore]
        rows = [
            {"family": int(one.family), "quick": bool(one.getsockopt(socket.IPPROTO_TCP, quick))}
            for one in sockets.from_java()
        ]
        yield pa.RecordBatch.from_pylist(rows, pa.schema({"family": pa.int32(), "quick": pa.bool_()}))


def connections(session: SparkSession) -> list[tuple[int, bool]]:
    return [tuple(row) for row in session.range(1).mapInArrow(settled(found), FOUND).collect()]


@pytest.mark.spark
@pytest.mark.skipif(not IN_FILES, reason="this Spark has TCP only")
def test_a_spark_that_is_started_here_has_sockets_in_a_folder_of_its_own(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.python.unix.domain.socket.enabled") == "true"
    folder = Path(str(conf.get("spark.python.unix.domain.socket.dir")))
    assert folder.parent.stat().st_mode & 0o077 == 0  # no other user may enter it
    assert connections(spark) == []
    assert any(path.is_socket() for path in folder.iterdir())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux acknowledges at once")
def test_on_tcp_a_worker_acknowledges_at_once() -> None:
    program = (
        "from beamlike.spark.session.launch import start; "
        "from tests.beamlike.spark.session.test_sockets import connections; "
        "print(connections(start('local[1]', 'tcp', {'spark.python.unix.domain.socket.enabled': 'false'})))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert told.stdout == f"[({int(socket.AF_INET)}, True)]\n"


def test_there_are_no_sockets_in_files_where_none_can_be_made(tmp_path: Path) -> None:
    assert socket_settings("local[2]", str(tmp_path / "missing")) == {}
    deep = tmp_path / ("x" * 61)
    deep.mkdir()
    assert socket_settings("local[2]", str(deep)) == {}
    assert socket_settings("local[2]", "/tmp")["spark.python.unix.domain.socket.dir"] == "/tmp"


def test_executors_have_them_in_a_folder_that_every_machine_has(tmp_path: Path) -> None:
    here = str(tmp_path / "missing")
    for master in ("spark://head:7077", "yarn", "k8s://https://head"):
        assert socket_settings(master, here)["spark.python.unix.domain.socket.dir"] == "/tmp"
