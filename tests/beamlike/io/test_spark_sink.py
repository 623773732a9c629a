"""Formats that only Spark writes: each batch has the options by which Delta recognizes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import beamlike as bl
from beamlike.errors import PlanError
from beamlike.expressions.describe import describe


class Recorder(DataSource):
    """Writes the options and rows that it receives to a file per write."""

    @classmethod
    def name(cls) -> str:
        return "recorder"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return Recording(dict(self.options), schema.simpleString(), overwrite)


@attrs.define
class Recording(DataSourceWriter):
    options: dict[str, str]
    schema: str
    overwrite: bool

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        rows = [[row["user"], row["n"]] for row in iterator]
        facts = {"options": self.options, "schema": self.schema, "rows": rows, "overwrite": self.overwrite}
        folder = Path(self.options["path"].removeprefix("file:"))
        (folder / f"{self.options['txnversion']}.json").write_text(json.dumps(facts))
        return WriterCommitMessage()


def pipeline(*sinks: bl.SparkSink) -> bl.Pipeline:
    p = bl.Pipeline("p")
    source = bl.Rows(
        [{"user": user, "at": at} for user, at in [("a", 1), ("b", 2), ("a", 70)]], rows_per_batch=2
    )
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    counts = plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count())
    counts = counts.with_columns(letters=bl.col("user").str.len_chars())  # UInt32, which Spark has not
    for number, sink in enumerate(sinks):
        counts.write(f"out {number}", sink)
    return p


@pytest.mark.slow
@pytest.mark.spark
def test_every_batch_is_appended_with_the_options_by_which_delta_knows_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(Recorder)
    recorded = bl.SparkSink("recorder", f"{tmp_path}/recorded", {"mergeSchema": "true"})
    parquet = bl.SparkSink("parquet", tmp_path / "parquet")
    runner = bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=2, drain=True)
    # The folder is not there: the batch fails, and the next run does it again.
    with pytest.raises(
        bl.RunError, match=r"sink 'out 0': batch \d could not be written to SparkSink\(.*FileNotFound"
    ):
        pipeline(recorded, parquet).run(runner)
    (tmp_path / "recorded").mkdir()
    run = pipeline(recorded, parquet).run(runner)
    files = sorted((tmp_path / "recorded").iterdir())
    facts = [json.loads(file.read_text()) for file in files]
    name = json.loads(Path(run.checkpoint.at("manifest.json")).read_text())["run"]
    assert sorted(tuple(row) for fact in facts for row in fact["rows"]) == [("a", 1), ("a", 1), ("b", 1)]
    for file, fact in zip(files, facts, strict=True):
        assert fact["options"]["txnappid"] == f"{name}/out 0"
        assert fact["options"]["txnversion"] == file.stem
        assert fact["options"]["mergeschema"] == "true"
        assert fact["overwrite"] is False
        assert (
            "window_end:timestamp,user:string,n:bigint,letters:bigint,event_time:timestamp" in fact["schema"]
        )
    assert sorted(
        tuple(row) for row in spark.read.parquet(f"{tmp_path}/parquet").select("user", "n").collect()
    ) == [
        ("a", 1),
        ("a", 1),
        ("b", 1),
    ]


def test_the_local_runner_refuses_it_before_anything_is_written(tmp_path: Path) -> None:
    p = pipeline(bl.SparkSink("delta", tmp_path / "delta"))
    with pytest.raises(
        PlanError, match=r"step 'out 0': only Spark can write this sink: run with runner=bl.SparkRunner"
    ):
        p.run()
    assert not (tmp_path / "delta").exists()


def test_values_of_options_are_not_shown_and_those_of_batches_not_given() -> None:
    sink = bl.SparkSink("jdbc", options={"url": "jdbc:x", "password": "hunter2"})
    assert describe(sink) == 'SparkSink("jdbc", options=[url, password])'
    assert "hunter2" not in repr(sink)
    with pytest.raises(ValueError, match="the option 'txnVersion' is set for every batch, so leave it out"):
        bl.SparkSink("delta", "x", {"txnVersion": "1"})
    with pytest.raises(ValueError, match="format must be a name such as 'delta', not ''"):
        bl.SparkSink("")
    with pytest.raises(PlanError, match="and so does 'out 2'; give it a folder of its own"):
        pipeline(sink, sink, bl.SparkSink("delta", "x"), bl.SparkSink("delta", "./x")).plan()
