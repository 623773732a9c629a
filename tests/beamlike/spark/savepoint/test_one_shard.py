"""Runs with one shard: a single operator runs all levels; its state equals that of an operator for each level."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.plan.manifest import new_manifest
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.savepoint import savepoint as savepoints
from tests.beamlike.spark.savepoint.test_savepoint import FILES, HALF, panes, pipeline, run, write
from tests.support.spark_versions import needs_state_store

pytestmark = [pytest.mark.spark, needs_state_store]


def undisturbed(folder: Path) -> list[tuple[Any, ...]]:
    """Returns the panes of a run in process that reads all files without a stop."""
    sink = bl.Memory()
    pipeline(folder, sink).run()
    return panes(sink)


def operators(checkpoint: Path) -> list[str]:
    """Returns the folders of Spark's stateful operators."""
    return sorted(path.name for path in (checkpoint / "state").iterdir() if path.is_dir())


def test_its_state_goes_to_two_shards_and_two_operators(spark: SparkSession, tmp_path: Path) -> None:
    before, after = bl.Memory(), bl.Memory()
    write(tmp_path / "plays", 0, HALF)
    run(pipeline(tmp_path, before), tmp_path / "one", session=spark, shards=1, state="spark")
    assert operators(tmp_path / "one") == ["0"]
    savepoints.save(str(tmp_path / "one"), str(tmp_path / "saved"), session=spark)
    write(tmp_path / "plays", HALF, FILES)
    plan = pipeline(tmp_path, after).plan()
    savepoints.restore(
        str(tmp_path / "saved"), str(tmp_path / "two"), plan, shards=2, session=spark, state="spark"
    )
    assert operators(tmp_path / "two") == ["0", "1"]
    run(pipeline(tmp_path, after), tmp_path / "two", session=spark, drain=True)
    assert panes(before, after) == undisturbed(tmp_path)


def test_a_checkpoint_of_before_goes_on_with_an_operator_for_each_level(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = bl.Memory(), bl.Memory()
    write(tmp_path / "plays", 0, HALF)

    def of_before(self: Checkpoint, described: Mapping[str, Any]) -> dict[str, Any]:
        return {**new_manifest(described), "operators": described["levels"], "rows": False, "store": "spark"}

    with monkeypatch.context() as earlier:
        earlier.setattr(Checkpoint, "new_manifest", of_before)
        run(pipeline(tmp_path, before), tmp_path / "one", session=spark, shards=1)
    checkpoint = Checkpoint(spark, str(tmp_path / "one"))
    manifest = checkpoint.manifest()
    assert manifest is not None
    checkpoint.save({name: fact for name, fact in manifest.items() if name not in ("operators", "rows")})
    write(tmp_path / "plays", HALF, FILES)
    run(pipeline(tmp_path, after), tmp_path / "one", session=spark, drain=True)
    assert operators(tmp_path / "one") == ["0", "1"]
    assert panes(before, after) == undisturbed(tmp_path)
