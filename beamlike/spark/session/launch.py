"""Starts Spark in this process: its Java and its settings, with start-up noise removed from the terminal."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from beamlike.errors import RunError
from beamlike.spark.session.java import Java, find_java
from beamlike.spark.session.java_options import DRIVER_MEMORY, java_options
from beamlike.spark.session.pickling import pickle_bytes_as_bytes
from beamlike.spark.session.scratch import scratch
from beamlike.spark.session.sockets import socket_settings
from beamlike.system.json_logs import logs_json
from beamlike.system.secrets import without_secrets

_DEFAULTS = {
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.executorEnv.POLARS_MAX_THREADS": "1",  # each task has one thread, because tasks share the cores
    # On a busy machine, Python, and Java during garbage collection, may answer slowly. By default Spark stops
    # waiting after 15 and 120 seconds.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.network.timeout": "300s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# Normal output of Java, and of Spark's Python worker on the driver. The worker adds an empty line.
_JAVA_NOISE = re.compile(rb"WARNING: (Using incubator modules|package sun\.security\.action not in)")
_WORKER_NOISE = re.compile(
    rb"Starting Streaming TransformWithState\w+ Python worker\.$"
    rb"|Streaming TransformWithState\w+ Python worker "
    rb"(finish init stage|received parameters|Starting execution|Completed execution) "
)

_TRACEBACK = b"Traceback (most recent call last):"
_CLOSED = (b"BrokenPipeError", b"ConnectionResetError")
_SAID = 12  # the number of Java's last lines that are kept
_LAST_LINES_SECONDS = 10


class SparkNotStarted(RunError):
    """Raised if Spark did not start. The message has the last output of Java."""

    def __init__(self, said: str) -> None:
        super().__init__(f"Spark did not start; its Java said:\n{without_secrets(said)}")


def start(
    master: str | None, name: str, config: Mapping[str, str], *, row_loops: bool = False
) -> SparkSession:
    """Starts a Spark application in this process. `config` overrides the defaults of this module.

    `row_loops`: rows will pass through Java one by one, and not only as payloads of many rows. Under spark-submit, Java
    already runs, and the master is the submitted one unless `master` is given; otherwise the default is local[*].
    Raises `JavaNotFound` and `SparkNotStarted`.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    running = submitted or SparkContext._gateway is not None  # a stopped application leaves its Java running
    if running:
        # So that the settings below start from those that Java was started with.
        SparkContext._ensure_initialized()
    conf = SparkConf().setIfMissing("spark.sql.warehouse.dir", str(scratch() / "warehouse"))
    for key, value in _DEFAULTS.items():
        conf.setIfMissing(key, value)
    conf.setAll(list(config.items())).setAppName(name)
    if master or not submitted:
        conf.setMaster(master or "local[*]")
    for key, value in socket_settings(conf.get("spark.master") or "", str(scratch())).items():
        conf.setIfMissing(key, value)
    java = None if running else find_java()
    with _environment(_launch_environment(conf, java)):
        gateway = None if java is None else _quiet_gateway(conf, java, row_loops=row_loops)
        try:
            session = SparkSession(SparkContext(conf=conf, gateway=gateway))
        except Py4JJavaError as error:
            raise SparkNotStarted(str(error.java_exception)) from error
    if str(session.sparkContext.master).startswith("local-cluster"):
        atexit.register(session.stop)  # before the scratch folder is removed, because workers run in it
    return session


def _launch_environment(conf: SparkConf, java: Java | None) -> dict[str, str]:
    """Returns the environment variables that PySpark reads when it starts, and those that start `java`. It is None if
    Java already runs.
    """
    master = conf.get("spark.master") or ""
    wanted = {"PYSPARK_PYTHON": sys.executable}
    if master.startswith("local"):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"  # no other machine takes part
    if master.startswith("local-cluster"):
        wanted["SPARK_HOME"] = _linked_home()
    wanted = {name: value for name, value in wanted.items() if name not in os.environ}
    if python := conf.get("spark.pyspark.python"):
        wanted["PYSPARK_PYTHON"] = python  # spark-submit would have set it like this
    return wanted if java is None else {**wanted, "JAVA_HOME": str(java.home)}


def end() -> None:
    """Stops the application of this process, if there is one, and waits until its Java has ended."""
    if (context := SparkContext._active_spark_context) is not None:
        context.stop()
    if (gateway := SparkContext._gateway) is None:
        return
    java: Any = gateway.proc  # set by PySpark
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    java.stdin.close()
    java.wait()


def _linked_home() -> str:
    """Returns a Spark home with links to the existing one. Workers of local-cluster write into their Spark home."""
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


def _quiet_gateway(conf: SparkConf, java: Java, *, row_loops: bool) -> JavaGateway:
    """Starts Java with this module's options, which the user's options override, and filters its standard error."""
    given = conf.get("spark.driver.extraJavaOptions") or ""
    options = [*java_options(conf, java, row_loops=row_loops), given]
    if "log4j" not in given:
        name = "log4j2-json.properties" if logs_json() else "log4j2.properties"
        options.append(f"-Dlog4j2.configurationFile={Path(__file__).with_name(name).as_uri()}")
    conf.set("spark.driver.extraJavaOptions", " ".join(options))
    gateway = _launched(conf)
    pickle_bytes_as_bytes(gateway)
    return gateway


def _launched(conf: SparkConf) -> JavaGateway:
    """Starts Java, whose standard error a thread copies. Raises `SparkNotStarted` with its last lines if it ends."""
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
    """Returns the exception that ended Java or, if there is none, its last lines."""
    thrown = [place for place, line in enumerate(said) if line.startswith(b"Exception in thread")]
    return b"".join(said[thrown[-1] if thrown else 0 :]).decode(errors="replace").strip()


def _pass_on(pipe: IO[bytes], said: deque[bytes]) -> None:
    """Copies lines to this process's standard error and to `said`, until the other end closes.

    Noise is dropped. Frames of tracebacks are copied to standard error only.
    """
    with pipe:
        for line in _without_noise(_without_broken_pipes(pipe)):
            if line.strip() and not line.startswith(b"\tat "):
                said.append(line)
            # Without a terminal, too, the lines are read: Java must never wait for this process.
            with contextlib.suppress(OSError):
                os.write(2, line)


def _without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    after_noise = False
    for line in lines:
        noise = _WORKER_NOISE.match(line)
        if not (noise or _JAVA_NOISE.match(line) or (after_noise and not line.strip())):
            yield line
        after_noise = noise is not None


def _apart(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Begins a line with a traceback that is within a line of noise: several workers may write at once.

    Other lines may contain one, too, such as Spark's errors and logs in JSON. They stay as they are.
    """
    for line in lines:
        before, traceback, after = line.partition(_TRACEBACK)
        if traceback and _WORKER_NOISE.match(before):
            yield before + b"\n"
            yield traceback + after
        else:
            yield line


def _without_broken_pipes(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Leaves out the tracebacks of workers whose task Java has cancelled: they find their socket closed."""
    held: list[bytes] = []
    for line in _apart(lines):
        if line.startswith(_TRACEBACK) or (held and line[:1].isspace()):
            held.append(line)
        elif held and line.startswith(_CLOSED) and any(b"daemon.py" in one for one in held):
            held = []
        else:
            yield from [*held, line]
            held = []
    yield from held
