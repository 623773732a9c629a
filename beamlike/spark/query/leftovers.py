"""Attempts at a Spark task: earlier ones, and the visible files of those that do not count."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyspark import TaskContext

from beamlike.io.base import Sink
from beamlike.io.sinks import TwoPhase

_LOG = logging.getLogger("beamlike")


def is_again(context: TaskContext | None) -> bool:
    """True if there was an earlier attempt at this task."""
    return context is not None and context.attemptNumber() > 0


def warn_of_copies(sinks: Iterable[Sink], speculation: str | None) -> None:
    """Logs which files may be those of an attempt that does not count, if Spark runs copies of slow tasks."""
    places = {sink.shown_early() for sink in sinks if isinstance(sink, TwoPhase)}
    remote = sorted(place for place in places if place is not None)
    if speculation == "true" and remote:
        told = (
            "spark.speculation is on, and an object store shows files at once: those in %s may be replaced by an "
            "attempt at a task that does not count; functions should give the same rows each time, or set it to false"
        )
        _LOG.warning(told, ", ".join(map(repr, remote)))
