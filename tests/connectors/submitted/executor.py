"""Starts an executor by the entry point of the image, as Kubernetes does, and runs a task on it.

Arguments: the master of a cluster without workers, and the entry point.
"""

from __future__ import annotations

import os
import subprocess
import sys

from pyspark.sql import SparkSession

master, entry = sys.argv[1:]
spark = (
    SparkSession.builder.master(master)
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.executor.cores", "1")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
port = spark.sparkContext.getConf().get("spark.driver.port")
given = {
    "PATH": f"{os.environ['JAVA_HOME']}/bin:{os.environ['PATH']}",
    "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": spark.sparkContext.applicationId,
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_EXECUTOR_POD_NAME": "plays-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_0": f"-Dspark.driver.port={port}",
    "SPARK_JAVA_OPT_1": "-Done.text=with 'a' $space",
    "SPARK_JAVA_OPT_2": "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "SPARK_JAVA_OPT_3": "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
}
executor = subprocess.Popen([entry, "executor"], env=os.environ | given)
text = "java_method('java.lang.System', 'getProperty', 'one.text')"
print(f"found: {spark.range(1).selectExpr(text).collect()[0][0]}", flush=True)
executor.terminate()
assert executor.wait(60) == 143
spark.stop()
