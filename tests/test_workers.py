"""What is done for Spark's Python workers, here in this process."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.serializers import CPickleSerializer

import beamlike as bl
from beamlike.spark.envelope import Topology
from beamlike.spark.level import Level
from beamlike.spark.operators import LevelOperator, on_demand
from beamlike.spark.workers import settle, settled
from examples.session_lengths import pipeline


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


def test_to_say_what_state_there_is_none_of_our_libraries_is_loaded(tmp_path: Path) -> None:
    plan = pipeline(tmp_path, tmp_path, bl.END_OF_WINDOW).plan()
    level = Level.of(plan, plan.levels[0], Topology.of(plan, (0, 1)), started=0)
    pickled = CPickleSerializer().dumps(on_demand(LevelOperator(level, None, ticks=False)))
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
