"""A small cluster with executors on two hosts, so that Spark runs a second attempt of a slow task beside the first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from beamlike.spark.session.launch import start

# For a Java that starts fast and does not live long.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_MEMORY = 512  # MB
_SETTINGS = {
    "spark.driver.memory": f"{_MEMORY}m",
    "spark.executor.memory": f"{_MEMORY}m",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.task.maxFailures": "4",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.minTaskRuntime": "100ms",
    # A cancelled attempt may run on without a limit; the default is some seconds.
    "spark.python.task.killTimeout": "600s",
}


@contextmanager
def two_hosts(folder: Path) -> Iterator[SparkSession]:
    """Yields a session with an executor of one core on each host. Both hosts are this machine, under two names."""
    session = start(f"local-cluster[1,1,{_MEMORY}]", "two hosts", _SETTINGS)
    second = _second_host(session, folder)
    try:
        status = session.sparkContext._jsc.sc().getExecutorMemoryStatus
        while status().size() < 3:  # the driver is one
            time.sleep(0.05)
        yield session
    finally:
        session.stop()
        second.shutdown()


def _second_host(session: SparkSession, folder: Path) -> Any:
    """Starts another worker for the master of a local cluster, whose own workers are all on one host."""
    context = session.sparkContext
    jvm: Any = context._jvm
    deploy = "org.apache.spark.deploy"
    cluster = _object(jvm, f"{deploy}.LocalSparkCluster").get().get()
    masters = cluster.getClass().getDeclaredField("masterRpcEnvs")
    masters.setAccessible(True)
    urls = context._gateway.new_array(jvm.java.lang.String, 1)
    urls[0] = masters.get(cluster).apply(0).address().toSparkURL()
    number, no_resources = jvm.scala.Option.apply(2), jvm.scala.Option.apply(None)
    start_worker = _object(jvm, f"{deploy}.worker.Worker").startRpcEnvAndEndpoint
    conf = context._jsc.sc().conf()
    return start_worker("localhost", 0, 0, 1, _MEMORY, urls, str(folder), number, conf, no_resources)


def _object(jvm: Any, name: str) -> Any:
    """Returns a Scala singleton."""
    return jvm.java.lang.Class.forName(f"{name}$").getField("MODULE$").get(None)
