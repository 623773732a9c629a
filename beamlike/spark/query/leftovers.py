"""Which files of a batch count: of each task those of one attempt, whatever others have written, or write later."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping

import attrs
from pyspark import TaskContext

from beamlike.io.base import Sink
from beamlike.io.sinks import InTwoSteps
from beamlike.runtime.sinks import writing
from beamlike.spark.query.messages import AgainMessage, Message, SinkMessage
from beamlike.system.in_hand import at

_LOG = logging.getLogger("beamlike")


def is_again(context: TaskContext | None) -> bool:
    """Whether there was an attempt at this task before."""
    return context is not None and context.attemptNumber() > 0


def tell_of_copies(sinks: Iterable[Sink], speculation: str | None) -> None:
    """Where Spark runs copies of slow tasks, says which files may be those of an attempt that does not count."""
    places = {sink.shown_early() for sink in sinks if isinstance(sink, InTwoSteps)}
    remote = sorted(place for place in places if place is not None)
    if speculation == "true" and remote:
        told = (
            "spark.speculation is on, and an object store shows files at once: those in %s may be replaced by an "
            "attempt at a task that does not count; functions should give the same rows each time, or set it to false"
        )
        _LOG.warning(told, ", ".join(map(repr, remote)))


@attrs.define
class Leftovers:
    """Shows, when the tasks of a batch are done, the files that they say they have written, and removes others.

    The driver does it, as it alone knows which attempt counts. Another may go on, and write, long after that: one that
    Spark has given up, because a copy of it was faster or its executor does not answer.

    Folders are listed only where an attempt before may have left what no name tells: in the first batch of a query,
    which may be a replay, and where a task was tried again.
    """

    sinks: Mapping[str, Sink]
    run: str
    _is_first: bool = attrs.field(default=True, init=False)

    def settle(self, batch: int, notes: Iterable[tuple[str, Message]]) -> None:
        """`notes`: what the tasks tell, of which source, stage or sink each."""
        parts = defaultdict[str, dict[str, str]](dict)
        again = self._is_first
        for name, told in notes:
            if isinstance(told, SinkMessage):
                parts[name].update(told.files)
            again = again or isinstance(told, AgainMessage)
        for name, sink in self.sinks.items():
            if isinstance(sink, InTwoSteps):
                with at("sink", name), writing(sink, name, batch):
                    sink.settle(self.run, batch, parts[name], again=again)
        self._is_first = False
