"""Tables that Spark's tasks write and its driver commits, read back by the formats' own readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

import beamlike as bl
from tests.connectors.reader import read_by_spark
from tests.connectors.s3 import Store
from tests.support.followed import Followed

pytestmark = pytest.mark.connectors

PLAYS = [{"user": f"u{n % 7}", "at": 13 * n} for n in range(40)]


def pipeline(folder: Path) -> bl.Pipeline:
    """Declares plays unchanged, and the sessions of users, in tables of both formats."""
    catalog = {
        "name": "lake",
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": str(folder),
    }
    p = bl.Pipeline("plays")
    source = bl.Rows(PLAYS, {"user": str, "at": int}, rows_per_batch=10)
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    early = bl.AfterWatermark(early=bl.AfterCount(1))
    windowed = plays.window_into(bl.Sessions("3m"), trigger=early, accumulation=bl.RETRACTING)
    sessions = windowed.group_by("user").aggregate(n=bl.count())
    plays.write("delta plays", bl.Delta(str(folder / "plays")))
    plays.write("iceberg plays", bl.Iceberg("games.plays", catalog))
    sessions.write("delta sessions", bl.Delta(str(folder / "sessions"), mode="upsert"))
    sessions.write("iceberg sessions", bl.Iceberg("games.sessions", catalog, mode="upsert"))
    return p


class Dies:
    """Fails batch 2 once, after all tables have it."""

    def __init__(self) -> None:
        self.fails = True

    def __call__(self, record: Any) -> None:
        if self.fails and record.batch == 2:
            self.fails = False
            raise RuntimeError("the driver is gone")


@pytest.mark.spark
def test_each_batch_is_there_once_and_later_panes_replace_rows(spark: Any, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    with pytest.raises(Exception, match="the driver is gone"):
        pipeline(tmp_path).run(bl.SparkRunner(checkpoint, session=spark, shards=2, on_batch=Dies()))
    pipeline(tmp_path).run(bl.SparkRunner(checkpoint, session=spark, shards=2, drain=True))
    plays = "SELECT user, at FROM {} ORDER BY at"
    sessions = "SELECT user, unix_seconds(window_end) AS end, n FROM {} ORDER BY end, user"
    tables = {
        plays: (f"delta.`{tmp_path}/plays`", "lake.games.plays"),
        sessions: (f"delta.`{tmp_path}/sessions`", "lake.games.sessions"),
    }
    queries = [query.format(table) for query, names in tables.items() for table in names]
    found = read_by_spark(queries, tmp_path)
    assert found[0] == found[1] == PLAYS
    ends = [{"user": f"u{n % 7}", "end": 13 * n + 180, "n": len(range(n % 7, 40, 7))} for n in range(33, 40)]
    assert found[2] == found[3] == ends


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_tables_may_lie_in_an_object_store(store: Store, tmp_path: Path, mode: Any) -> None:
    bucket = store.bucket()
    catalog = {
        "name": "lake",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{bucket}/i",
        **store.of_iceberg,
    }
    delta = bl.Delta(f"s3://{bucket}/d", mode=mode, storage_options=store.options)
    p = bl.Pipeline("plays")
    source = bl.Rows(PLAYS, {"user": str, "at": int}, rows_per_batch=10)
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    counts = plays.window_into(bl.FixedWindows("10m")).group_by("user").aggregate(n=bl.count())
    counts.write("delta", delta).write("iceberg", bl.Iceberg("games.plays", catalog, mode=mode))
    p.run()
    from_delta = pl.read_delta(f"s3://{bucket}/d", storage_options=store.options)
    table = load_catalog(**catalog).load_table("games.plays")
    for rows in (from_delta, pl.DataFrame(pl.from_arrow(table.scan().to_arrow()))):
        assert sorted(rows["n"]) == [5, 5, 6, 6, 6, 6, 6]


def append(store: Store, path: str, *numbers: int) -> None:
    rows = pl.DataFrame({"n": numbers}).to_arrow()
    write_deltalake(path, rows, mode="append", storage_options=store.options)


def test_a_table_in_an_object_store_is_followed(store: Store, tmp_path: Path) -> None:
    path = f"s3://{store.bucket()}/plays"
    append(store, path, 1, 2)
    append(store, path, 3)
    followed = Followed(lambda: bl.Delta(path, storage_options=store.options), tmp_path)
    assert followed.run() == [[1, 2, 3]]
    append(store, path, 4)
    append(store, path, 5)
    followed.run(dies_in=1)
    assert followed.run() == [[1, 2, 3], [4], [5]]


@pytest.mark.spark
def test_on_spark_tasks_read_a_table_in_an_object_store(store: Store, spark: Any, tmp_path: Path) -> None:
    path, out = f"s3://{store.bucket()}/plays", tmp_path / "out"

    def run() -> list[int]:
        p = bl.Pipeline("plays")
        p.read("plays", bl.Delta(path, storage_options=store.options)).write("out", bl.Parquet(str(out)))
        p.run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=1))
        return sorted(pl.read_parquet(out)["n"])

    append(store, path, 1, 2)
    assert run() == [1, 2]
    append(store, path, 3)
    append(store, path, 4)
    assert run() == [1, 2, 3, 4]
