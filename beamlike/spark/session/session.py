"""The session in which a pipeline runs: beside the user's own, with our settings and code."""

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

from pyspark import SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from beamlike.spark.session.archive import build_archive
from beamlike.spark.session.launch import start
from beamlike.system import allocator

MOST_DEFAULT_SHARDS = 200
_SETTINGS = {
    # Spark's stateful Python operators work with this state store only.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # By default, Spark waits for ever for a query that does not heed the order to stop.
    "spark.sql.streaming.stopTimeout": "120s",
    # Stateful queries cannot use it, and Spark warns of each one that would.
    "spark.sql.adaptive.enabled": "false",
    # Rows of a Spark source come in chunks worth a vectorised step. Chunks of envelopes, whose payloads weigh
    # megabytes, are limited by bytes instead.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
}
# The envelopes of a batch are few rows. To compile code for them, anew in every batch as the time in it is another,
# takes a fifth of what its tasks need.
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# The same paths lead to S3 everywhere: Hadoop by itself knows s3a:// only. Some platforms have an s3:// of their own.
_STORES = {
    "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
}
_WORKERS = {
    # Tasks share the cores, so each has one thread.
    "POLARS_MAX_THREADS": "1",
    # Spark sets this for mapInArrow only. With it everywhere, all operators share the same worker processes.
    "SPARK_SIMPLIFIED_TRACEBACK": "1",
}
# To get pages from the system anew takes a twentieth of what tasks need. There is one pool, as there is one thread.
_ALLOCATOR = {allocator.VARIABLE: f"{allocator.KEPT},narenas:1"}
_NEEDED = ("attrs", "narwhals", "numpy", "pandas", "polars", "pyarrow")  # of what is imported in workers
_PROBE_SECONDS = 60
EARLY = Path(__file__).with_name("early")  # its `sitecustomize` is for the worker on this machine
_ARCHIVE = "beamlike.archive"  # the archive that was shipped for a session is a setting of that session


def open_session(
    session: SparkSession | None,
    *,
    master: str | None,
    shards: int | None,
    name: str,
    config: Mapping[str, str],
    row_loops: bool = False,
) -> SparkSession:
    """Opens a session beside `session`, with the same settings and views, and ours on top.

    Without `session`, the Spark that runs in this process is used, or else one is started, named `name`, on `master`
    (by default local[*]); it stays up for the next run. `shards` is the number of shuffle partitions, by default the
    cores, at most 200. `config` overrides the settings made here. `row_loops`: rows will pass through Java one by one;
    a Spark that is started here then compiles loops well.

    Raises JavaNotFound; TypeError for a Spark Connect session; ValueError if the running Spark has another master, or
    if `config` has a setting that only a new Spark could use.
    """
    if session is not None and not hasattr(session, "_jsparkSession"):
        raise TypeError(f"session: must be a classic SparkSession, not {session!r} of Spark Connect")
    base = session or _running(master) or start(master, name, config, row_loops=row_loops)
    opened = SparkSession(base.sparkContext, base._jsparkSession.cloneSession())
    partitions = shards or min(base.sparkContext.defaultParallelism, MOST_DEFAULT_SHARDS)
    for key, value in {**_SETTINGS, "spark.sql.shuffle.partitions": str(partitions)}.items():
        opened.conf.set(key, value)
    if base._jsparkSession.sessionState().newHadoopConf().get("fs.s3.impl") is None:
        for key, value in _STORES.items():
            opened.conf.set(key, value)
    for key, value in config.items():
        _set(opened, key, value)
    return opened


def _running(master: str | None) -> SparkSession | None:
    context = SparkContext._active_spark_context
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
    """Raises `ValueError` for a Python of the executors that cannot run operators.

    If operators are `stateful`, or executors are in this process, Spark starts that Python beside the driver, so it is
    checked here. The error of Spark itself would be a traceback of Java that does not say what is missing.
    """
    if not stateful and not _is_local(session.sparkContext):
        return
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
    """The reason for which a Python cannot run operators of this process; None if it can."""
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    program = (
        "import sys, importlib.util as u; print('%d.%d' % sys.version_info[:2], "
        f"*(name for name in {_NEEDED} if u.find_spec(name) is None))"
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


def interpret(session: SparkSession) -> None:
    """Switches off code generation for the session's plans, unless the user has set it."""
    for key, value in _INTERPRETED.items():
        if session.conf.get(key, None) is None:
            session.conf.set(key, value)


def ship(session: SparkSession, modules: Iterable[ModuleType | str]) -> None:
    """Makes these packages and the user's `modules` importable for Python functions of `session`.

    They apply to functions that are built under `worker_environment`; other functions, also of the same application, do
    not see them. `session` must come from `open_session`. Shipping again costs nothing while the code is the same.
    """
    archive = build_archive(modules)
    context = session.sparkContext
    # SparkSession.addArtifacts would put the archive on the path of every Python function of the application,
    # and of this process. Sending it as a plain file does not; local workers read it where it is.
    if not _is_local(context) and not any(sent.endswith(f"/{archive.name}") for sent in context.listFiles):
        context.addFile(str(archive))
    session.conf.set(_ARCHIVE, str(archive))


@contextlib.contextmanager
def worker_environment(session: SparkSession) -> Iterator[None]:
    """Gives operators with Python functions that are built inside polars with one thread, and the shipped code.

    Spark copies these settings into a function when it wraps it for an operator, and starts separate workers for each
    set of them: functions that are built outside do not change. Not for use from several threads.
    """
    context = session.sparkContext
    before, includes = context.environment, context._python_includes
    variables, archives = dict(_WORKERS), []
    if shipped := session.conf.get(_ARCHIVE, None):
        # The path is right on this machine, also for Spark's Python worker on the driver, which knows nothing
        # of files that were sent. Elsewhere it leads nowhere, but makes workers that never served other code.
        paths = [shipped, str(EARLY), before.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        variables["PYTHONSAFEPATH"] = "1"  # or else what lies in the working directory would come first
        archives = [] if _is_local(context) else [Path(shipped).name]
    context.environment = {**_ALLOCATOR, **before, **variables}
    context._python_includes = [*archives, *(includes or [])]
    try:
        yield
    finally:
        context.environment, context._python_includes = before, includes


def _is_local(context: SparkContext) -> bool:
    return bool(context._jsc.sc().isLocal())
