"""Bytes that Java passes to Python."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql import SparkSession

from beamlike.spark.session.pickling import pickle_bytes_as_bytes
from tests.support.spark_versions import needs_state_store

pytestmark = [pytest.mark.spark, needs_state_store]


@pytest.mark.parametrize("length", [0, 1, 255, 256, 100_000])
def test_bytes_come_as_they_are_with_their_length(spark: SparkSession, length: int) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    pickle_bytes_as_bytes(gateway)
    data = bytes(number % 256 for number in range(length))
    of = gateway.jvm.java.lang.Class.forName(
        "org.apache.spark.sql.execution.python.EvaluatePython$BytesWrapper"
    )
    arguments = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    arguments[0] = data
    wrapped = of.getConstructors()[0].newInstance(arguments)
    dumped = bytes(gateway.jvm.net.razorvine.pickle.Pickler(True, False).dumps([wrapped, wrapped]))
    assert pickle.loads(dumped) == [data, data]
    assert len(dumped) < length + 50
