"""Stored checkpoints of each encoding of state that this version can read are resumed."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from stages.state.store import ENCODING
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


@pytest.mark.spark
@pytest.mark.parametrize("kind", [pytest.param("encoding", marks=needs_state_store), "files-encoding"])
def test_a_checkpoint_of_this_encoding_is_gone_on_with(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    checkpoint = unpacked(ENCODING, tmp_path, kind)
    assert go_on(spark, tmp_path, checkpoint) == kept.expected(tmp_path / "plays", kept.HALF)
