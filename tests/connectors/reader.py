"""Spark's own readers of Delta Lake and Iceberg, in a Spark version that they support; they follow new ones later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.jars import jars
from tests.support.places import ROOT

_SPARK = "4.1.*"
_READ = """
import json, sys
from pyspark.sql import SparkSession

settings, read = map(json.loads, sys.argv[1:])
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for sql in read:
    print(json.dumps([json.loads(row) for row in spark.sql(sql).toJSON().collect()]))
spark.stop()
"""


def read_by_spark(queries: list[str], warehouse: Path) -> list[list[dict[str, Any]]]:
    """Returns Spark's rows for each query; `lake` is the Iceberg catalog in this folder."""
    classes = ",".join(map(os.fspath, jars("spark-tables")))
    iceberg = "spark.sql.catalog.lake"
    settings = {
        "spark.jars": classes,
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # The tables are small.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        iceberg: "org.apache.iceberg.spark.SparkCatalog",
        f"{iceberg}.type": "jdbc",
        f"{iceberg}.uri": f"jdbc:sqlite:{warehouse}/catalog.db",
        f"{iceberg}.warehouse": str(warehouse),
    }
    environment = {**os.environ, "PYTHONPATH": str(_spark()), "PYTHONWARNINGS": "ignore"}
    environment.pop("SPARK_HOME", None)
    read = subprocess.run(
        [sys.executable, "-c", _READ, json.dumps(settings), json.dumps(queries)],
        env=environment,
        cwd=warehouse,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert read.returncode == 0, read.stderr[-3000:]
    return [json.loads(line) for line in read.stdout.splitlines()]


def _spark() -> Path:
    """Returns the folder of that Spark, installed once; skips the test if it cannot be installed."""
    folder = ROOT / "build" / "connectors" / f"pyspark-{_SPARK.removesuffix('.*')}"
    if not folder.is_dir():
        partial = folder.with_suffix(".partial")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(partial)]
        got = subprocess.run([*pip, f"pyspark=={_SPARK}"], capture_output=True, text=True, timeout=600)
        if got.returncode:
            pytest.skip(f"pip cannot get Spark {_SPARK}: {got.stderr.strip()[-500:]}")
        partial.rename(folder)
    return folder
