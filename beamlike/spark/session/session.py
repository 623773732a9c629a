"""The session in which a pipeline runs. It is separate from the user's own, and has this package's settings
and code.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from beamlike.errors import RunError
from beamlike.spark.session.archive import build_archive
from beamlike.spark.session.connect import connected, open_connect_session, set_if_allowed, will_ship
from beamlike.spark.session.kinds import is_connect, is_stopped, require_session, runs_here
from beamlike.spark.session.loading import code_in
from beamlike.spark.versions import needed_modules, require_modules, require_supported, rows_at_once
from beamlike.system import allocator

MOST_DEFAULT_SHARDS = 200
_ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # By default, Spark waits for ever for a query that does not stop when it is asked to.
    "spark.sql.streaming.stopTimeout": "120s",
    # Stateful queries cannot use it, and Spark warns of each query that would.
    "spark.sql.adaptive.enabled": "false",
    # A chunk of rows from a Spark source is large enough for vectorised steps. Chunks of envelopes, whose
    # payloads have megabytes, are limited by bytes.
    _ROWS_AT_ONCE: "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
}
_STATE_STORE = {
    # Spark's stateful Python operators work only with this state store.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
# The envelopes of a batch are few rows. The time in the query differs from batch to batch, so code would be
# compiled again for each. That takes a fifth of the time that tasks need.
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# With these settings s3:// works everywhere, although Hadoop itself knows only s3a://. Some platforms have an
# s3:// of their own.
_STORES = {
    "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
}
_WORKERS = {
    # Each task has one thread, because tasks share the cores.
    "POLARS_MAX_THREADS": "1",
    # Spark sets this only for mapInArrow. If it is set everywhere, all operators share the same worker
    # processes.
    "SPARK_SIMPLIFIED_TRACEBACK": "1",
}
# Freed memory is kept, as getting it again from the system costs a twentieth of the tasks' time. There is one
# pool, as each worker has one thread.
_ALLOCATOR = {allocator.VARIABLE: f"{allocator.KEPT},narenas:1"}
NEEDED = ("attrs", "narwhals", "numpy", "pandas", "polars", "pyarrow")  # modules that workers import
_PROBE_SECONDS = 60
EARLY = Path(__file__).with_name("early")  # its `sitecustomize` is only for the worker on this machine
_TO_ASK: list[pyspark.SparkContext] = []  # a Spark that was started, and that no run has used
_ARCHIVE = "beamlike.archive"  # the session setting with the path of the archive that was shipped for it


def open_session(
    session: SparkSession | None,
    *,
    master: str | None,
    shards: int | None,
    name: str,
    config: Mapping[str, str],
    row_loops: bool = False,
) -> SparkSession:
    """Opens a session in the same Spark as `session`, with its settings and views, and with this package's settings.

    Without `session`, the Spark that runs in this process, or that it is connected with, is used; else the server of
    SPARK_REMOTE; else one is started with this `name` on `master` (by default local[*]), which keeps running for the
    next run. `shards` is the number of shuffle partitions, by default the number of cores, at most 200. `config`
    overrides the settings made here.
    `row_loops`: the user's rows will pass through Java one by one, so a Spark that is started here compiles loops well.

    Raises `JavaNotFound`; `UnsupportedSpark`; `RunError` on Windows; the errors of `open_connect_session`;
    `ValueError` if the running Spark has another master, or if `config` has a setting that only takes effect when Spark
    starts.
    """
    _require_platform()
    session = session or connected(master)
    if session is not None:
        require_session(session)
        if is_stopped(session):
            raise RunError(
                "the Spark session was stopped, so nothing can run in it: give the runner a new one, as by "
                "SparkSession.builder.getOrCreate(), or leave out session="
            )
    if session is not None and is_connect(session):
        return open_connect_session(
            session, _SETTINGS, shards=shards, most=MOST_DEFAULT_SHARDS, config=config
        )
    require_supported(pyspark.__version__, "the installed PySpark")
    require_modules()
    from beamlike.spark.session.launch import start  # not there with the client of Spark Connect alone

    base = session or _running(master, config) or start(master, name, config, row_loops=row_loops)
    require_supported(base.version, "the session")  # SPARK_HOME may name another Spark than the installed one
    opened = SparkSession(base.sparkContext, base._jsparkSession.cloneSession())
    partitions = shards or min(base.sparkContext.defaultParallelism, MOST_DEFAULT_SHARDS)
    of_this_run = {
        "spark.sql.shuffle.partitions": str(partitions),
        _ROWS_AT_ONCE: str(rows_at_once(users=row_loops)),
    }
    for key, value in {**_SETTINGS, **of_this_run}.items():
        opened.conf.set(key, value)
    if base._jsparkSession.sessionState().newHadoopConf().get("fs.s3.impl") is None:
        for key, value in _STORES.items():
            opened.conf.set(key, value)
    for key, value in config.items():
        _set(opened, key, value)
    return opened


def _require_platform() -> None:
    """Raises `RunError` on Windows, where the paths of a checkpoint are no paths of Hadoop."""
    if sys.platform == "win32":
        raise RunError(
            "beamlike does not run pipelines on Spark on Windows, whose paths Hadoop and Spark's Python workers handle "
            "differently; use bl.LocalRunner(), or run this in WSL or a Linux container"
        )


def open_to_ask() -> SparkSession:
    """Opens a session in which only the columns of a source are asked for. If Spark is started for that, a run with
    settings of its own starts another.
    """
    classic = getattr(pyspark, "SparkContext", None)  # not there with the client of Spark Connect alone
    running = connected(None) is not None or classic is None or classic._active_spark_context is not None
    session = open_session(None, master=None, shards=None, name="beamlike", config={}, row_loops=True)
    if not running and not is_connect(session):
        _TO_ASK.append(session.sparkContext)
    return session


def _running(master: str | None, config: Mapping[str, str]) -> SparkSession | None:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    asked = context in _TO_ASK
    _TO_ASK.clear()
    if asked and context is not None and (config or master not in (None, context.master)):
        from beamlike.spark.session.launch import end

        end()
        return None
    if context is None:
        return None
    if master not in (None, context.master):
        raise ValueError(
            f"Spark runs in this process already, on master {context.master!r}, not {master!r}: "
            "stop it first, or leave out the master to use it"
        )
    return SparkSession.builder.getOrCreate()


def _set(session: SparkSession, key: str, value: str) -> None:
    try:
        session.conf.set(key, value)
    except AnalysisException as error:
        current = session.sparkContext.getConf().get(key, "")
        extended = key.endswith("JavaOptions") and value in current  # Spark adds options of its own
        if value != current and not extended:
            raise ValueError(
                f"config: {key}={value!r} can only be set when Spark starts; it runs, with {current!r}"
            ) from error


def require_python(session: SparkSession, *, stateful: bool = True) -> None:
    """Raises `ValueError` if the Python of the executors cannot run operators.

    For `stateful` operators, and for executors in this process, Spark starts this Python on the driver, so it can be
    checked here. Spark's own error would be a Java traceback that does not say what is missing.
    """
    if is_connect(session) or not (stateful or runs_here(session)):
        return  # with Spark Connect, `require_reached` asks the workers
    python = session.sparkContext.pythonExec
    found = shutil.which(python)
    if found is None:
        raise ValueError(
            f"there is no {python!r} in {os.getcwd()}: spark.pyspark.python or PYSPARK_PYTHON has it for the "
            "executors, and Spark also starts it beside the driver; begin the run in a folder from which it is found"
        )
    if found != sys.executable and (reason := _unfit(found)):
        raise ValueError(
            f"the Python of Spark's workers, {found}, {reason}; set PYSPARK_PYTHON={sys.executable} in the environment "
            "before the session is made, or to a Python like that one on every machine"
        )


@cache
def _unfit(python: str) -> str | None:
    """Returns the reason why a Python cannot run operators of this process; None if it can."""
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    program = (
        "import sys, importlib.util as u; print('%d.%d' % sys.version_info[:2], "
        f"*(name for name in {NEEDED + needed_modules()} if u.find_spec(name) is None))"
    )
    asked = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
    )
    if asked.returncode:
        return f"does not start: {asked.stderr.strip()}"
    version, *lacking = asked.stdout.split()
    if version != wanted:
        return f"is Python {version}, and this process Python {wanted}"
    return f"does not have {', '.join(lacking)}, which beamlike needs" if lacking else None


def use_state_store(session: SparkSession, config: Mapping[str, str]) -> None:
    """Sets what Spark's stateful operators in Python, and its reader of their state, need. `config` has the settings of
    the user, which stay.
    """
    for key, value in _STATE_STORE.items():
        if key not in config:
            set_if_allowed(session, key, value)


def interpret(session: SparkSession) -> None:
    """Switches off code generation for the session's plans, unless the user has set it."""
    for key, value in _INTERPRETED.items():
        if session.conf.get(key, None) is None:
            session.conf.set(key, value)


def ship(session: SparkSession, modules: Iterable[ModuleType | str]) -> None:
    """Makes these packages and the user's `modules` importable for Python functions of `session`.

    This affects only functions that are built under `worker_environment`; other functions, even of the same
    application, do not see them. `session` must come from `open_session`. Shipping the same code again costs nothing.
    """
    archive = build_archive(modules, compressed=is_connect(session) or not runs_here(session))
    if is_connect(session):
        return will_ship(session, archive)
    context = session.sparkContext
    # SparkSession.addArtifacts would put the archive on the path of all Python functions of the application,
    # and of this process. A plain file is on no path. Local workers read it in place.
    if not runs_here(session) and not any(sent.endswith(f"/{archive.name}") for sent in context.listFiles):
        context.addFile(str(archive))
    return session.conf.set(_ARCHIVE, str(archive))


@contextlib.contextmanager
def worker_environment(session: SparkSession, code: str | None = None) -> Iterator[None]:
    """Builds the Python functions inside the `with` block for workers with one polars thread and the shipped code.

    Spark copies these settings into a function when it wraps it for an operator, and starts separate workers for each
    set of settings. So functions that are built outside do not change. Not for use from several threads.

    With Spark Connect, `code` is the path of the shipped code, from which functions load it themselves.
    """
    if is_connect(session):  # the server has one environment for all functions
        assert code is not None
        with code_in(code):
            yield
        return
    context = session.sparkContext
    before, includes = context.environment, context._python_includes
    variables, archives = dict(_WORKERS), []
    if shipped := session.conf.get(_ARCHIVE, None):
        # The path is valid on this machine, also for Spark's Python worker on the driver, which does not
        # receive sent files. On other machines it does not exist, but it still forces workers of their own
        # for this code.
        paths = [shipped, str(EARLY), before.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        variables["PYTHONSAFEPATH"] = "1"  # otherwise modules in the working directory would come first
        archives = [] if runs_here(session) else [Path(shipped).name]
    context.environment = {**_ALLOCATOR, **before, **variables}
    context._python_includes = [*archives, *(includes or [])]
    try:
        yield
    finally:
        context.environment, context._python_includes = before, includes
