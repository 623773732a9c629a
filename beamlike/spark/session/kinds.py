"""The two kinds of sessions of Spark: classic ones, whose Java runs beside this process, and those of Spark Connect."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from pyspark.sql import SparkSession

from beamlike.errors import PlanError, WrongType
from beamlike.spark.java_errors import Py4JError

_NUMBERS: Final = 1 << 16
"""Rows enough for a partition on each core."""


def is_connect(session: SparkSession) -> bool:
    """True for a session of Spark Connect."""
    return not hasattr(session, "_jsparkSession")


def require_session(session: object) -> None:
    """Raises `WrongType` unless an object is a session of either kind, whose classes have only their name in common.
    Raises `PlanError` if it was stopped.
    """
    if not any(kind.__name__ == "SparkSession" for kind in type(session).__mro__):
        raise WrongType(f"session: must be a SparkSession, classic or of Spark Connect, not {session!r}")
    given: Any = session
    try:
        stopped = given.is_stopped if is_connect(given) else given._jsparkSession.sparkContext().isStopped()
    except (AttributeError, OSError, Py4JError):  # its Java has ended
        stopped = not is_connect(given)
    if stopped:
        raise PlanError(
            f"session: {type(given).__name__} was stopped, or its Java has ended; make a new one, as by "
            "SparkSession.builder.getOrCreate(), or leave out session= and a session is created"
        )


def is_stopped(session: SparkSession) -> bool:
    """True for a session that was stopped, or whose Spark was."""
    if is_connect(session):
        return bool(getattr(session, "is_stopped", False))
    context: Any = session.sparkContext
    return context._jsc is None or bool(context._jsc.sc().isStopped())


def functions_of(session: SparkSession) -> ModuleType:
    """Returns the functions that build columns for a session. Columns of both kinds of session may be in one process,
    so the functions in `pyspark.sql` cannot tell them apart.
    """
    if is_connect(session):
        import pyspark.sql.connect.functions as remote

        return remote
    import pyspark.sql.functions as classic

    return classic


def setting(session: SparkSession, key: str) -> str | None:
    """Returns a setting, also one that cannot be changed while Spark runs. Returns None if it is unset, or if a
    platform conceals it.
    """
    from pyspark.errors import PySparkException

    try:
        return session.conf.get(key, None)
    except PySparkException:
        return None


def runs_here(session: SparkSession) -> bool:
    """True if executors are threads of Spark's driver, and so on the driver's machine."""
    if is_connect(session):
        return (setting(session, "spark.master") or "").startswith("local")
    context: Any = session.sparkContext
    return bool(context._jsc.sc().isLocal())


def parallelism(session: SparkSession) -> int:
    """Returns the default number of tasks, which is the number of cores."""
    return _counted(session) if is_connect(session) else session.sparkContext.defaultParallelism


@lru_cache(maxsize=8)
def _counted(session: SparkSession) -> int:
    """Counts the partitions of numbers, whose default is that number."""
    numbers = (
        session.range(_NUMBERS).selectExpr("spark_partition_id() AS partition").selectExpr("max(partition)")
    )
    (last,) = numbers.collect()[0]
    return int(last) + 1
