"""Rows that go straight from sources to files: the tasks that read them write them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

import beamlike as bl

pytestmark = pytest.mark.spark


def folder(path: Path, first: int) -> Path:
    path.mkdir()
    for number in range(3):
        rows = [
            {"id": first + 10 * number + each, "at": f"2026-01-01T12:00:{each:02d}Z"} for each in range(10)
        ]
        pl.DataFrame(rows).write_ndjson(path / f"{number}.jsonl")
    return path


def copies(tmp_path: Path, every: bl.Memory) -> bl.Pipeline:
    """Declares two sources to a sink of files and to one that the driver fills, and one of them to other files."""
    p = bl.Pipeline("copies")
    first, second = (
        p.read(
            name,
            bl.JSONLines(folder(tmp_path / name, base)),
            timestamp="at",
            watermark=bl.MonotonousTimestamps(),
        )
        for name, base in (("first", 0), ("second", 100))
    )
    both = bl.flatten(first, second)
    both.write("files", bl.JSONLines(tmp_path / "files"))
    both.write("every", every)
    second.map(odd, {"id": int}).write("odd", bl.Parquet(tmp_path / "odd"))
    return p


def odd(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] % 2 == 0:
        raise ValueError("even")
    return {"id": row["id"]}


@pytest.mark.slow
def test_each_row_is_written_once_and_none_is_shipped(spark: SparkSession, tmp_path: Path) -> None:
    every = bl.Memory()
    run = copies(tmp_path, every).run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=2))
    wanted = sorted(row["id"] for row in every.rows())
    assert wanted == [*range(30), *range(100, 130)]
    parts = sorted((tmp_path / "files").glob("*.jsonl"))
    assert sorted(pl.concat(map(pl.read_ndjson, parts))["id"]) == wanted
    # The shards have parts 0 and 1, if anything is shipped to them.
    assert all(int(re.search(r"-(\d+)\.jsonl", part.name).group(1)) >= 2 for part in parts)  # type: ignore[union-attr]
    assert sorted(pl.read_parquet(tmp_path / "odd")["id"]) == list(range(101, 130, 2))
    assert sum(batch.sinks["files"] for batch in run.batches) == 60
    letters = pl.concat(map(pl.read_ndjson, Path(run.dead_letters).glob("*.jsonl")))
    assert sorted(json.loads(row)["id"] for row in letters["row"]) == list(range(100, 130, 2))
