"""Versions of Spark: refused ones, and the features of the version that runs here."""

from __future__ import annotations

import json
import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyspark
import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.plan.manifest import MANIFEST, Store, describe, new_manifest
from beamlike.spark import versions
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.query.opened import opened
from beamlike.spark.savepoint.savepoint import restore
from beamlike.spark.session.session import open_session
from beamlike.spark.versions import UnsupportedSpark, reader_package, renaming_file_manager, require_supported
from beamlike.system.seals import sealed
from tests.support.places import ROOT


@pytest.mark.parametrize("version", ["3.5.0", "3.5.9", "4.0.0", "4.1.4", "4.2.0-amzn-1", "4.3.0.dev0"])
def test_a_version_in_the_range_is_supported(version: str) -> None:
    require_supported(version, "the session")


@pytest.mark.parametrize("version", ["3.4.4", "4.4.0", "5.0.0", "unknown"])
def test_any_other_is_refused_with_the_range(version: str) -> None:
    with pytest.raises(
        UnsupportedSpark, match=r"runs on Spark 3\.5 to 4\.3: pip install 'pyspark>=3\.5,<4\.4'"
    ):
        require_supported(version, "the session")


def test_the_range_is_that_of_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    pins = re.findall(r'"pyspark>=(\d+)\.(\d+),<(\d+)\.(\d+)"', text)
    oldest, newest = versions.OLDEST, versions.NEWEST
    assert [tuple(map(int, pin)) for pin in pins] == [(*oldest, newest[0], newest[1] + 1)]


def test_a_session_out_of_range_is_refused_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.4.4")
    with pytest.raises(
        UnsupportedSpark, match=r"the installed PySpark is of Spark 3\.4\.4; beamlike runs on"
    ):
        open_session(None, master=None, shards=None, name="name", config={})


@pytest.mark.spark
def test_so_is_one_of_another_spark_than_the_installed_one(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "version", property(lambda session: "4.4.0"))
    with pytest.raises(UnsupportedSpark, match=r"the session is of Spark 4\.4\.0; beamlike runs on"):
        open_session(spark, master=None, shards=None, name="name", config={})


@pytest.mark.spark
def test_this_spark_has_the_classes_that_its_version_promises(spark: SparkSession) -> None:
    java: Any = spark._jvm
    assert java.java.lang.Class.forName(renaming_file_manager(spark.version))
    assert versions.hadoop_aws().rpartition(":")[0] == "org.apache.hadoop:hadoop-aws"


@pytest.mark.spark
def test_binary_values_are_bytes_and_times_are_in_utc(spark: SparkSession) -> None:
    rows = spark.sql("SELECT binary('a') AS b, timestamp_micros(0) AS at")
    ((found, _),) = versions.collected(rows)
    assert (type(found), found) == (bytes, b"a")
    empty = pl.DataFrame(pl.from_arrow(versions.arrow_schema(rows.schema).empty_table()))
    assert empty.schema == {"b": pl.Binary(), "at": pl.Datetime("us", "UTC")}


@pytest.mark.parametrize(
    ("name", "version", "package"),
    [
        ("kafka", "3.5.9", "sql-kafka-0-10_2.12:3.5.9 (if Maven Central has none of 3.5.9, use 3.5.0)"),
        ("kafka", "4.0.0", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"),
        ("kafka", "4.1.2-amzn", "sql-kafka-0-10_2.13:4.1.2 (if Maven Central has none of 4.1.2, use 4.1.0)"),
        ("kafka", "4.3.0", "sql-kafka-0-10_2.13:4.3.0 (if Maven Central has none of 4.3.0, use 4.2.0)"),
        ("delta", "3.5.9", "io.delta:delta-spark_2.12:3."),
        ("delta", "4.1.2", "io.delta:delta-spark_4.1_2.13:"),
        ("delta", "4.3.0", "bl.Delta reads tables without it"),
    ],
)
def test_the_package_of_a_reader_fits_the_spark_that_runs(name: str, version: str, package: str) -> None:
    assert package in str(reader_package(name, version))


@pytest.mark.spark
@pytest.mark.parametrize("name", ["kafka", "delta"])
def test_a_reader_that_the_session_lacks_is_named_with_its_package(spark: SparkSession, name: str) -> None:
    with pytest.raises(
        bl.PlanError, match=rf"no data source '{name}'; its package is .*spark\.jars\.packages"
    ):
        opened(lambda spark: spark.readStream.format(name).load("x"), spark)


@pytest.fixture
def spark_3_5(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PySpark that says that it is of Spark 3.5."""
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")


LACKS = (
    r"Spark's state store, which Python can use from Spark 4\.0 on, and the installed PySpark is 3\.5\.9: "
)


def totals() -> bl.Pipeline:
    p = bl.Pipeline("totals")
    rows = p.read(
        "rows",
        bl.Rows([{"at": 1}]),
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )
    rows.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write("out", bl.Memory())
    return p


@pytest.mark.usefixtures("spark_3_5")
def test_spark_3_5_refuses_its_own_state_store_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedSpark, match=rf"state='spark' .*{LACKS}leave out state="):
        totals().run(bl.SparkRunner(state="spark", master="nowhere"))
    with pytest.raises(UnsupportedSpark, match=rf"state='spark' .*{LACKS}leave out state="):
        restore(str(tmp_path / "saved"), str(tmp_path / "new"), totals().plan(), state="spark")


@pytest.mark.usefixtures("spark_3_5")
def test_spark_3_5_refuses_a_checkpoint_that_has_its_state_there(tmp_path: Path) -> None:
    manifest = {**new_manifest(describe(totals().plan(), 2)), "store": "spark", "operators": 1}
    (tmp_path / "beamlike").mkdir()
    (tmp_path / "beamlike" / MANIFEST).write_text(json.dumps(sealed(manifest, MANIFEST)))
    with pytest.raises(
        UnsupportedSpark, match=rf"{tmp_path} has its state in {LACKS}.*take a savepoint there"
    ):
        totals().run(bl.SparkRunner(str(tmp_path), master="nowhere"))


@pytest.mark.usefixtures("spark_3_5")
@pytest.mark.parametrize("path", ["checkpoint", "s3a://bucket/checkpoint"])
def test_on_spark_3_5_the_state_is_in_files_wherever_the_checkpoint_is(path: str) -> None:
    assert Checkpoint(cast(SparkSession, None), path).new_store == Store.FILES


@pytest.mark.usefixtures("spark_3_5")
def test_spark_3_5_needs_a_module_that_python_lacks_from_3_12_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedSpark, match=r"imports distutils, .*from 3\.12 on: pip install setuptools"):
        open_session(None, master="nowhere", shards=None, name="name", config={})


@pytest.mark.spark
@pytest.mark.usefixtures("spark_3_5")
def test_spark_3_5_passes_few_envelopes_at_once_as_it_does_not_limit_their_bytes(spark: SparkSession) -> None:
    def at_once(**options: bool) -> str | None:
        opened = open_session(spark, master=None, shards=1, name="name", config={}, **options)
        return opened.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")

    assert (at_once(), at_once(row_loops=True)) == ("64", "10000")


@pytest.mark.spark
def test_a_table_becomes_a_frame_with_the_same_values(spark: SparkSession) -> None:
    at = datetime(2026, 1, 1, 12)
    row = {
        "n": 1,
        "text": "a",
        "raw": b"a",
        "tags": ["a", "b"],
        "at": at,
        "price": Decimal("1.50"),
        "day": at.date(),
    }
    rows = pl.DataFrame([{**row, "nested": {"ids": [[1], []], "name": "a"}}, dict.fromkeys([*row, "nested"])])
    table = rows.with_columns(utc=pl.col("at").dt.replace_time_zone("UTC")).to_arrow()
    frames = [versions.frame_of(spark, one) for one in (table, table.slice(0, 0))]
    first, second = (dict(zip(frames[0].columns, one, strict=True)) for one in versions.collected(frames[0]))
    assert (first["n"], first["raw"], first["tags"], first["price"]) == (1, b"a", ["a", "b"], Decimal("1.50"))
    assert first["nested"].asDict() == {"ids": [[1], []], "name": "a"}
    assert not any(value is not None for value in second.values())
    # As texts, since Spark returns times in the zone of this machine.
    texts = frames[0].selectExpr("CAST(at AS string)", "CAST(utc AS string)", "CAST(day AS string)").first()
    assert texts is not None
    assert [*texts] == ["2026-01-01 12:00:00", "2026-01-01 12:00:00", "2026-01-01"]
    assert frames[1].collect() == []
    assert frames[1].schema == frames[0].schema
