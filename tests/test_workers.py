"""What is done for Spark's Python workers, here in this process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from beamlike.spark.workers import settle, settled


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
