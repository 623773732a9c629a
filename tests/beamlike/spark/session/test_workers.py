"""The setup of Spark's Python workers, tested in this process."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.serializers import CPickleSerializer

import beamlike as bl
from beamlike.runtime.batch.envelope import Topology
from beamlike.spark.query.level import Level
from beamlike.spark.query.operators import LevelOperator, on_demand
from beamlike.spark.session.session import EARLY
from beamlike.spark.session.workers import settle, settled
from examples.session_lengths import pipeline
from tests.support.spark_versions import needs_state_store


@pytest.fixture
def fresh_worker() -> Iterator[None]:
    gc.unfreeze()
    settle.cache_clear()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("fresh_worker")
def test_what_a_worker_has_loaded_is_searched_for_garbage_once_only() -> None:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    batch = pa.record_batch({"n": [1]})
    shipped = cloudpickle.loads(cloudpickle.dumps(settled(run)))
    assert list(shipped(iter([batch]))) == [batch]
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    assert len(gc.get_objects()) < frozen
    kept = [[] for _ in range(1_000)]  # type: ignore[var-annotated]
    list(shipped(iter([batch])))
    assert gc.get_freeze_count() <= frozen, "objects of later tasks are collected as usual"
    del kept


@needs_state_store
def test_to_say_what_state_there_is_none_of_our_libraries_is_loaded(tmp_path: Path) -> None:
    plan = pipeline(tmp_path, tmp_path, bl.END_OF_WINDOW).plan()
    level = Level.of(plan, plan.levels[0], Topology.of(plan, (0, 1)), started=0)
    pickled = CPickleSerializer().dumps(on_demand(LevelOperator((level,), None, ticks=False)))
    asked = """
import pickle, sys
processor = pickle.loads(sys.stdin.buffer.read())
class Handle:
    def getMapState(self, name, key, value):
        print(name, key.fieldNames(), value.fieldNames())
processor.init(Handle())
processor.close()
print({"beamlike", "stages", "polars", "pandas"} & set(sys.modules))
"""
    process = subprocess.run([sys.executable, "-c", asked], input=pickled, capture_output=True, check=True)
    assert process.stdout.decode().splitlines() == ["state ['key'] ['value']", "set()"]


# pyspark on a busy machine, without a limit.
SLOW = """
import sys
sys.stdin.readline()
__path__ = [{path!r}]
exec(compile(open({path!r} + "/__init__.py").read(), __file__, "exec"))
"""


@needs_state_store
@pytest.mark.parametrize(
    "module",
    [
        "pyspark.sql.streaming.transform_with_state_driver_worker",
        "pyspark.sql.connect.streaming.worker.foreach_batch_worker",
    ],
)
def test_a_worker_that_spark_waits_ten_seconds_for_connects_before_it_imports_anything(
    tmp_path: Path, module: str
) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").write_text(SLOW.format(path=str(Path(pyspark.__file__).parent)))
    (tmp_path / "sitecustomize.py").write_text("print('the own one of this Python', flush=True)")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        worker = subprocess.Popen(
            [sys.executable, "-m", module],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(EARLY), str(tmp_path), os.environ.get("PYTHONPATH", "")]),
                "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
                "PYTHON_WORKER_FACTORY_SECRET": "secret",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        with server.accept()[0] as connection, connection.makefile("rwb") as stream:
            assert stream.read(4 + len("secret")) == (6).to_bytes(4, "big") + b"secret"
            stream.write((2).to_bytes(4, "big") + b"ok")
            stream.flush()
            assert worker.stdin is not None
            worker.stdin.write(b"go on\n")
            worker.stdin.flush()
            assert int.from_bytes(stream.read(4), "big") == worker.pid
        told, _ = worker.communicate(timeout=30)
    assert told.startswith(b"the own one of this Python\n")


def test_a_worker_takes_pyspark_as_it_was_installed(tmp_path: Path) -> None:
    home = Path(pyspark.__file__).parent
    (tmp_path / "linked").symlink_to(home.parent)  # Spark may know the environment by a link
    zips = [str(path) for path in sorted((tmp_path / "linked/pyspark/python/lib").glob("*.zip"))]
    own = tmp_path / "other.zip"
    assert len(zips) == 2
    path = os.pathsep.join([*zips, str(own), str(EARLY)])
    asked = "import sys, py4j, pyspark; print(pyspark.__file__); print(*sys.path, sep='\\n')"
    told = subprocess.run(
        [sys.executable, "-c", asked],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    found, *paths = told.stdout.splitlines()
    assert found == pyspark.__file__
    assert paths[-2:] == zips
    assert paths.index(str(own)) < paths.index(str(home.parent)), "others stay where they are"
