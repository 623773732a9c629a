"""The session of a run in a session of Spark Connect, whose Java and workers are on the machines of a server."""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from beamlike.errors import CheckpointError, RunError
from beamlike.spark.java_errors import UNKNOWN_SCHEME, Py4JJavaError
from beamlike.spark.session.kinds import is_connect, parallelism
from beamlike.spark.versions import OLDEST_CONNECT, require_supported

_SECONDS: Final = 60
"""The time for which calls to a server that does not answer are repeated."""

_MOST_ASKED: Final = 32
"""The greatest number of tasks that ask the workers of a cluster."""

_ERRORS: Final = re.compile(r"^(?:[\w.]+(?:Error|Exception)): (?!.*SparkException).*", re.MULTILINE)
_CAUSES: Final = re.compile(r"^Caused by: (.*)", re.MULTILINE)

_NO_INTERVAL: Final = re.compile("INFINITE_STREAMING_TRIGGER_NOT_SUPPORTED")


def connected(master: str | None) -> SparkSession | None:
    """Returns the session that this process has with a server, or that the variable SPARK_REMOTE asks for; None if a
    Spark in this process is meant. Raises `RunError` if `master` is the URL of a server.
    """
    if (master or "").startswith("sc://"):
        raise RunError(
            f"{master!r} is no master, but a server of Spark Connect: leave out the master, and set the environment "
            f"variable SPARK_REMOTE={master}, or give the runner session="
        )
    asked = is_remote() or ("SPARK_REMOTE" in os.environ and not _runs_classic())
    return SparkSession.builder.getOrCreate() if master is None and asked else None


def _runs_classic() -> bool:
    from pyspark import SparkContext  # not there with the client alone, in which `is_remote` is true

    return SparkContext._active_spark_context is not None


def open_connect_session(
    session: SparkSession,
    settings: Mapping[str, str],
    *,
    shards: int | None,
    most: int,
    config: Mapping[str, str],
) -> SparkSession:
    """Clones a session on its server, and sets this package's settings and those of the user.

    `shards` is the number of shuffle partitions, by default the number of cores, at most `most`. Settings of this
    package that the server does not allow stay as they are there; Spark reports the ones that it needs.

    Raises `UnsupportedSpark`, `RunError` if the session cannot be cloned, and `ValueError` for a setting of the user
    that the server refuses.
    """
    require_supported(pyspark.__version__, "the installed PySpark", OLDEST_CONNECT)
    require_supported(session.version, "the session", OLDEST_CONNECT)
    opened = _cloned(session)
    for key, value in settings.items():
        set_if_allowed(opened, key, value)
    opened.conf.set("spark.sql.shuffle.partitions", str(shards or min(parallelism(session), most)))
    for key, value in config.items():
        try:
            opened.conf.set(key, value)
        except PySparkException as error:
            raise ValueError(f"config: the server refuses {key}={value!r}: {first_line(error)}") from error
    return opened


def _cloned(session: SparkSession) -> SparkSession:
    from grpc import RpcError  # type: ignore[import-untyped]

    try:
        opened = cast(Any, session).cloneSession()
    except (PySparkException, RpcError) as error:
        raise RunError(f"this server of Spark Connect cannot clone a session: {first_line(error)}") from error
    opened.client.set_retry_policies([_patience()])
    _BASES[opened] = session
    return cast(SparkSession, opened)


_BASES: Final[WeakKeyDictionary[SparkSession, SparkSession]] = WeakKeyDictionary()
"""The session from which each session was cloned."""


def _patience() -> Any:
    """Returns the policy for a server that does not answer. Spark's own would wait for ten minutes."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    return DefaultPolicy(
        max_retries=_SECONDS // 4, max_backoff=4_000, max_server_retry_delay=_SECONDS * 1_000
    )


def set_if_allowed(session: SparkSession, key: str, value: str) -> None:
    """Sets an option, or leaves it as it is if the server does not allow that."""
    try:
        session.conf.set(key, value)
    except PySparkException:
        return


_ARCHIVES: Final[WeakKeyDictionary[SparkSession, Path]] = WeakKeyDictionary()


def will_ship(session: SparkSession, archive: Path) -> None:
    """Sets the archive with the code for a session."""
    _ARCHIVES[session] = archive


def archive_for(session: SparkSession) -> Path:
    """Returns the archive with the code for a session."""
    return _ARCHIVES[session]


def forbidden(error: Exception) -> RunError | None:
    """Returns the error for a query that a platform does not allow; None for any other error."""
    if _NO_INTERVAL.search(str(error)) is None:
        return None
    return RunError(
        "this server of Spark Connect allows no query without an end, as for an interval, drain=True, or a source that "
        f"plans one batch after the other: use trigger='available_now' without drain ({first_line(error)})"
    )


def unknown_scheme(error: Exception, checkpoint: str) -> CheckpointError | None:
    """Returns the error for a checkpoint in storage that the server's Hadoop does not know; None for any other."""
    if UNKNOWN_SCHEME.search(str(error)) is None:
        return None
    scheme = checkpoint.partition("://")[0]
    advice = "add the jars of that to the server, with spark.jars.packages"
    if scheme == "s3":
        advice = "Hadoop itself calls S3 s3a://, so give the path this scheme, and the server hadoop-aws of its version"
    elif scheme == "s3a":
        advice = "add hadoop-aws of the version of its Hadoop to the server, with spark.jars.packages"
    return CheckpointError(
        f"the server of Spark Connect cannot reach {checkpoint}, as its Hadoop knows no {scheme}://: {advice}"
    )


def release(session: SparkSession) -> None:
    """Ends a session that `open_connect_session` has cloned. Otherwise the server keeps it for an hour."""
    client = cast(Any, session).client
    with suppress(PySparkException):
        client.release_session()
        client.close()


def give_up(session: SparkSession) -> None:
    """Gives up a session that `open_connect_session` has cloned, and that from which it was, as their server no
    longer answers. Otherwise, each would ask it for minutes at the end of this process.
    """
    for one in (session, _BASES.get(session)):
        client = None if one is None else cast(Any, one).client
        for hook in ("_on_exit", "_cleanup_ml_cache"):
            if hasattr(client, hook):
                atexit.unregister(getattr(client, hook))


def require_reached(session: SparkSession, file: str, needed: tuple[str, ...]) -> None:
    """Raises an error that says why the workers of a server of Spark Connect, or of a cluster, cannot run operators:
    their Python, packages that they lack, or a file of this process that they cannot read, unless it is empty.
    """
    where = "this server of Spark Connect" if is_connect(session) else "this cluster"
    tasks = 1 if is_connect(session) else min(session.sparkContext.defaultParallelism, _MOST_ASKED)
    try:
        answers = session.range(0, tasks, 1, tasks).mapInArrow(_asked(file, needed), "told string").collect()
    except (PySparkException, Py4JJavaError) as error:
        raise RunError(
            f"the workers of {where} cannot run Python functions: {_reason(error)}; they need "
            f"Python {sys.version_info.major}.{sys.version_info.minor}, pandas and pyarrow"
        ) from None
    for python, lacking, found in {tuple(told.split("|")) for (told,) in answers}:
        if lacking:
            raise RunError(
                f"the Python of the workers of {where}, {python}, lacks {lacking}, which beamlike needs"
            )
        if not found:
            raise CheckpointError(
                f"the workers of {where} cannot read {file}, which this process has just written: the run needs a "
                "checkpoint at a place that this process and the workers reach under the same path, such as an object "
                "store, a network folder, or on Databricks /Volumes/..."
            )


def _asked(file: str, needed: tuple[str, ...]) -> Any:
    """Returns the function that reports from a worker. It is pickled with its code, as the worker may lack ours."""

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys
        from importlib.util import find_spec

        import pyarrow

        def there() -> bool:
            import re

            from pyarrow import fs

            url = re.sub("^s3[an]://", "s3://", file)  # Hadoop's schemes
            system, path = fs.FileSystem.from_uri(url) if "://" in file else (fs.LocalFileSystem(), file)
            return bool(system.get_file_info(path).type == fs.FileType.File)

        lacking = ", ".join(name for name in needed if find_spec(name) is None)
        for _ in batches:
            told = f"{sys.executable}|{lacking}|{'yes' if not file or there() else ''}"
            yield pyarrow.RecordBatch.from_pydict({"told": [told]})

    return answer


def _reason(error: Exception) -> str:
    """Returns the last error of Python, or the last cause of Java, in a message of Spark; else its first line."""
    found = _ERRORS.findall(str(error)) or _CAUSES.findall(str(error))
    return str(found[-1]).strip() if found else first_line(error)


def first_line(error: Exception) -> str:
    """Returns the first line of a message that is not empty."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
