"""Versions of Spark: refused ones, and the features of the version that runs here."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pyspark
import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.spark import versions
from beamlike.spark.query.opened import opened
from beamlike.spark.session.session import open_session
from beamlike.spark.versions import UnsupportedSpark, reader_package, renaming_file_manager, require_supported
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
