"""A Spark that does not start reports the reason."""

from __future__ import annotations

import gc

import pytest
from pyspark import SparkConf

from beamlike.errors import RunError
from beamlike.spark.session import launch
from beamlike.spark.session.java import find_java


# PySpark leaves the pipe to a Java that does not start open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("spark.driver.memory", "lots", "Invalid maximum heap size: -Xmxlots"),
        ("spark.jars.packages", "nonsense", "The coordinate provided is: nonsense"),
    ],
)
def test_java_that_does_not_start_says_why(setting: str, value: str, reason: str) -> None:
    conf = SparkConf(loadDefaults=False).setMaster("local[1]").set(setting, value)
    with (
        launch._environment(launch._launch_environment(conf, find_java())),
        pytest.raises(RunError, match=f"(?s)Spark did not start; its Java said:\n.*{reason}") as caught,
    ):
        launch._launched(conf)
    assert "\tat " not in str(caught.value)
    del caught
    gc.collect()  # the pipe, while the warning is expected
