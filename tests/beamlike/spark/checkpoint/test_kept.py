"""Stored checkpoints of each encoding of state that this version can read are resumed."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.spark.savepoint import savepoint as savepoints
from stages.state.store import BROUGHT_ALONG, ENCODING
from tests.support import kept
from tests.support.spark_versions import needs_state_store


def unpacked(encoding: int, folder: Path, kind: str = "encoding") -> Path:
    """Unpacks the checkpoint of that encoding, and adds the plays that follow it."""
    with tarfile.open(kept.DATA / f"{kind}-{encoding}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    kept.write(folder / "rest", kept.HALF, kept.FILES)
    kept.write(folder / "plays", 0, kept.FILES)
    return folder / "checkpoint"


def go_on(spark: SparkSession, folder: Path, checkpoint: Path) -> list[tuple[Any, ...]]:
    """Runs to the end of the existing plays."""
    sessions, games = bl.Memory(), bl.Memory()
    runner = bl.SparkRunner(str(checkpoint), session=spark, drain=True)
    kept.pipeline(folder / "rest", sessions, games).run(runner)
    return kept.panes(sessions, games)


@pytest.mark.parametrize("encoding", [*BROUGHT_ALONG, ENCODING])
def test_one_of_each_encoding_is_kept(encoding: int, tmp_path: Path) -> None:
    manifest = json.loads((unpacked(encoding, tmp_path) / "beamlike" / "manifest.json").read_text())
    assert (manifest["encoding"], manifest["shards"]) == (encoding, kept.SHARDS)


@pytest.mark.spark
@pytest.mark.parametrize("kind", [pytest.param("encoding", marks=needs_state_store), "files-encoding"])
def test_a_checkpoint_of_this_encoding_is_gone_on_with(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    checkpoint = unpacked(ENCODING, tmp_path, kind)
    assert go_on(spark, tmp_path, checkpoint) == kept.expected(tmp_path / "plays", kept.HALF)


@needs_state_store
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("encoding", BROUGHT_ALONG)
def test_one_of_an_earlier_encoding_is_brought_along_with_a_savepoint(
    encoding: int, spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = unpacked(encoding, tmp_path)
    with pytest.raises(
        bl.CheckpointError, match=f"encoding: it has {encoding}, this run {ENCODING}"
    ) as refused:
        go_on(spark, tmp_path, checkpoint)
    assert f"beamlike savepoint {checkpoint} SAVEPOINT" in str(refused.value)
    saved, new = str(tmp_path / "saved"), tmp_path / "new"
    savepoints.save(str(checkpoint), saved, session=spark)
    plan = kept.pipeline(tmp_path / "rest", bl.Memory(), bl.Memory()).plan()
    savepoints.restore(saved, str(new), plan, shards=3, session=spark)
    assert go_on(spark, tmp_path, new) == kept.expected(tmp_path / "plays", kept.HALF)
