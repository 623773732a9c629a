"""Starts Spark in this process: its Java, its settings, and a terminal without its start-up noise."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from beamlike.errors import RunError
from beamlike.spark.session.java import find_java
from beamlike.spark.session.pickling import pickle_bytes_as_bytes
from beamlike.spark.session.scratch import scratch

_DEFAULTS = {
    "spark.driver.memory": "2g",
    "spark.executorEnv.POLARS_MAX_THREADS": "1",  # tasks share the cores, so each has one thread
    # On a busy machine Python, and Java while it collects garbage, may be slow to answer: by default they are given up
    # after 15 and 120 seconds.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.network.timeout": "300s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# When a query is stopped inside of a batch, Spark matches a regular expression against the whole traceback,
# which overflows Java's usual stack of 1 MB.
_STACK = "-Xss16m"

# Java hands payloads on and plans batches: little of it is ever hot. By default its second compiler works on all that
# is called some thousand times, for minutes, and takes the cores from the tasks. Where rows pass through Java it may
# still compile the loops over them. The first compiler alone would get a fifth of the usual space for its code.
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
_LATE_SECOND_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

# What Java, and Spark's Python worker on the driver, print when all is well. The worker adds an empty line.
_JAVA_NOISE = re.compile(rb"WARNING: (Using incubator modules|package sun\.security\.action not in)")
_WORKER_NOISE = re.compile(
    rb"Starting Streaming TransformWithState\w+ Python worker\.$"
    rb"|Streaming TransformWithState\w+ Python worker "
    rb"(finish init stage|received parameters|Starting execution|Completed execution) "
)

_SAID = 12  # lines of Java that are kept
_LAST_LINES_SECONDS = 10


class SparkNotStarted(RunError):
    """Raised if Spark did not start, with the last output of Java."""

    def __init__(self, said: str) -> None:
        super().__init__(f"Spark did not start; its Java said:\n{said}")


def start(
    master: str | None, name: str, config: Mapping[str, str], *, row_loops: bool = False
) -> SparkSession:
    """Starts a Spark application in this process; `config` overrides the defaults of this module.

    `row_loops`: rows will pass through Java one by one, not only payloads with many of them.

    Under spark-submit, where Java runs already, the master is the submitted one, unless `master` names one; otherwise
    the default is local[*]. Raises JavaNotFound and SparkNotStarted.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    running = submitted or SparkContext._gateway is not None  # a stopped application leaves its Java behind
    if running:
        SparkContext._ensure_initialized()  # so that the settings below start from what Java was started with
    conf = SparkConf().setIfMissing("spark.sql.warehouse.dir", str(scratch() / "warehouse"))
    for key, value in _DEFAULTS.items():
        conf.setIfMissing(key, value)
    conf.setAll(list(config.items())).setAppName(name)
    if master or not submitted:
        conf.setMaster(master or "local[*]")
    with _environment(_launch_environment(conf, running)):
        gateway = None if running else _quiet_gateway(conf, row_loops=row_loops)
        try:
            session = SparkSession(SparkContext(conf=conf, gateway=gateway))
        except Py4JJavaError as error:
            raise SparkNotStarted(str(error.java_exception)) from error
    if str(session.sparkContext.master).startswith("local-cluster"):
        atexit.register(session.stop)  # before the scratch folder is removed, in which its workers run
    return session


def _launch_environment(conf: SparkConf, running: bool) -> dict[str, str]:
    """The environment variables that PySpark, and Java unless it is running, read while they start."""
    master = conf.get("spark.master") or ""
    wanted = {"PYSPARK_PYTHON": sys.executable}
    if master.startswith("local"):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"  # no other machine takes part
    if master.startswith("local-cluster"):
        wanted["SPARK_HOME"] = _linked_home()
    wanted = {name: value for name, value in wanted.items() if name not in os.environ}
    if python := conf.get("spark.pyspark.python"):
        wanted["PYSPARK_PYTHON"] = python  # which spark-submit would have made of it
    return wanted if running else {**wanted, "JAVA_HOME": str(find_java().home)}


def _linked_home() -> str:
    """A Spark home of links to the existing one, for local-cluster, whose workers write into it."""
    home = Path(tempfile.mkdtemp(prefix="spark-home-", dir=scratch()))
    for entry in Path(_find_spark_home()).iterdir():
        (home / entry.name).symlink_to(entry)
    return str(home)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _quiet_gateway(conf: SparkConf, *, row_loops: bool) -> JavaGateway:
    """Starts Java with our options, which those of the user override, and filters its standard error."""
    given = conf.get("spark.driver.extraJavaOptions") or ""
    options = [_STACK, _LATE_SECOND_COMPILER if row_loops else _FIRST_COMPILER, given]
    if "log4j" not in given:
        options.append(f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}")
    conf.set("spark.driver.extraJavaOptions", " ".join(options))
    gateway = _launched(conf)
    pickle_bytes_as_bytes(gateway)
    return gateway


def _launched(conf: SparkConf) -> JavaGateway:
    """Starts Java; a thread copies its standard error. Raises `SparkNotStarted` with its last lines if it ends."""
    ours, javas = os.pipe()
    said: deque[bytes] = deque(maxlen=_SAID)
    reader = threading.Thread(
        target=_pass_on, args=(os.fdopen(ours, "rb"), said), name="spark-stderr", daemon=True
    )
    reader.start()
    try:
        return launch_gateway(conf, popen_kwargs={"stderr": javas})
    except PySparkRuntimeError as error:
        failed = error
    finally:
        os.close(javas)
    reader.join(_LAST_LINES_SECONDS)
    raise SparkNotStarted(_reason(list(said)) or str(failed)) from failed


def _reason(said: list[bytes]) -> str:
    """The exception that ended Java, or else its last lines."""
    thrown = [place for place, line in enumerate(said) if line.startswith(b"Exception in thread")]
    return b"".join(said[thrown[-1] if thrown else 0 :]).decode(errors="replace").strip()


def _pass_on(pipe: IO[bytes], said: deque[bytes]) -> None:
    """Copies lines to this process's standard error and to `said`, until the other end closes.

    Noise is dropped, and frames of tracebacks are only copied to standard error.
    """
    after_noise = False
    with pipe:
        for line in pipe:
            noise = _WORKER_NOISE.match(line)
            if not (noise or _JAVA_NOISE.match(line) or (after_noise and not line.strip())):
                if line.strip() and not line.startswith(b"\tat "):
                    said.append(line)
                with contextlib.suppress(
                    OSError
                ):  # keep reading without a terminal: Java must never wait for us
                    os.write(2, line)
            after_noise = noise is not None
