"""Tells in the log that a run waits for the executors of a cluster."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

from beamlike.spark.java_errors import Py4JError
from beamlike.spark.session.kinds import is_connect, runs_here

SECONDS: Final = 30.0
"""The time between two messages."""

_LOG: Final = logging.getLogger("beamlike")


@contextmanager
def telling_of_executors(session: SparkSession, seconds: float = SECONDS) -> Iterator[None]:
    """Logs that the `with` block waits, each time that no executor has started for so long."""
    if is_connect(session) or runs_here(session):
        yield
        return
    over = threading.Event()

    def look() -> None:
        waited = 0.0
        while not over.wait(seconds) and not _has_executors(session):
            waited += seconds
            _LOG.warning(
                "%s has started no executor for %.0f s, so nothing can run: see on its page whether it has a worker "
                "with free cores and memory (spark.executor.cores, spark.executor.memory), and whether executors reach "
                "the driver (spark.driver.host)",
                session.sparkContext.master,
                waited,
            )

    threading.Thread(target=look, name="executors", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _has_executors(session: SparkSession) -> bool:
    """True if an executor has registered, or Spark was stopped. The driver itself counts as one."""
    context: Any = session.sparkContext
    try:
        return context._jsc is None or context._jsc.sc().getExecutorMemoryStatus().size() > 1
    except (Py4JError, AttributeError):
        return True
