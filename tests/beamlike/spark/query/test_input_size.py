"""Small input needs one shard only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.query.input_size import SMALL, is_small


def counted(*sources: Any) -> bl.Pipeline:
    """Declares counts of the rows of two or more sources by user."""
    p = bl.Pipeline("counted")
    read = [
        p.read(
            f"plays {number}", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
        )
        for number, source in enumerate(sources)
    ]
    windowed = bl.flatten(*read).window_into(bl.FixedWindows("1m")).group_by("user")
    windowed.aggregate(n=bl.count()).write("out", bl.Memory())
    return p


def files(folder: Path, size: int) -> bl.JSONLines:
    """Creates a sparse file of this size, whose content is not read."""
    folder.mkdir()
    (folder / "plays.jsonl").touch()
    os.truncate(folder / "plays.jsonl", size)
    return bl.JSONLines(folder, {"user": str, "at": int})


ROWS = bl.Rows([{"user": "ann", "at": 1}])


def test_files_on_this_machine_are_measured_in_total(tmp_path: Path) -> None:
    half, rest = files(tmp_path / "a", SMALL // 2), files(tmp_path / "b", SMALL // 2 + 1)
    assert is_small(counted(half, ROWS).plan())
    assert is_small(counted(rest, ROWS).plan())
    assert not is_small(counted(half, rest).plan())


def test_other_input_is_not_known_before_it_is_read(tmp_path: Path) -> None:
    stored = bl.JSONLines("s3://bucket/plays", {"user": str, "at": int})
    read_by_spark = bl.SparkSource(
        lambda spark: spark.readStream.format("rate").load(), {"user": str, "at": int}
    )
    assert not is_small(counted(stored, ROWS).plan())
    assert not is_small(counted(ROWS, read_by_spark).plan())


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "shards"),
    [
        ({"drain": True}, 1),
        ({"drain": True, "shards": 2}, 2),
        ({"drain": True, "config": {"spark.sql.shuffle.partitions": "3"}}, 3),
        ({}, 2),  # more may arrive for a later run
    ],
)
def test_it_has_one_shard_unless_the_user_sets_a_number(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], shards: int
) -> None:
    counted(ROWS, ROWS).run(bl.SparkRunner(str(tmp_path), session=spark, **options))
    manifest = Checkpoint(spark, str(tmp_path)).manifest()
    assert manifest is not None
    assert manifest["shards"] == shards
