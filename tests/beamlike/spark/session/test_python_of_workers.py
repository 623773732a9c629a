"""The Python of Spark's workers must be able to run operators."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from beamlike.spark.session import launch
from beamlike.spark.session.session import require_python


def test_the_python_of_executors_is_the_one_asked_for_and_must_be_found_beside_the_driver(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = SparkConf(loadDefaults=False).setMaster("spark://host:7077")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert launch._launch_environment(conf, java=None)["PYSPARK_PYTHON"] == sys.executable
    conf.set("spark.pyspark.python", "./environment/bin/python")
    monkeypatch.setenv("PYSPARK_PYTHON", "another")
    assert launch._launch_environment(conf, java=None)["PYSPARK_PYTHON"] == "./environment/bin/python"
    require_python(spark)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "./environment/bin/python")
    with pytest.raises(ValueError, match=r"there is no './environment/bin/python' in .* begin the run in"):
        require_python(spark)


def python(folder: Path, answer: str, status: int = 0) -> str:
    """Writes a program that answers as a Python would, and returns its path."""
    found = folder / "python3"
    found.write_text(f"#!/bin/sh\necho '{answer}'\nexit {status}\n")
    found.chmod(0o755)
    return str(found)


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        ("3.7", 0, r"is Python 3\.7, and this process Python 3\.\d+; set PYSPARK_PYTHON="),
        (
            f"{sys.version_info.major}.{sys.version_info.minor} polars pyarrow",
            0,
            "does not have polars, pyarrow, which beamlike needs; set PYSPARK_PYTHON=",
        ),
        ("", 1, "does not start: "),
    ],
)
@pytest.mark.parametrize("stateful", [False, True])
def test_a_python_of_workers_that_cannot_run_operators_is_refused(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    status: int,
    reason: str,
    stateful: bool,
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python(tmp_path, answer, status))
    with pytest.raises(ValueError, match=f"the Python of Spark's workers, .*/python3, {reason}"):
        require_python(spark, stateful=stateful)
