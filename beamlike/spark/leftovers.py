"""What an attempt at a batch left in files that failed, or was not noted, and the one that counts has not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
from pyspark import TaskContext

from beamlike.in_hand import at
from beamlike.io.base import Sink
from beamlike.io.files import Files
from beamlike.io.paths import read_by_polars
from beamlike.writing import settle_part

AGAIN: Final = "again"
"""What a task tells the driver of an attempt that is not its first."""


def is_again(context: TaskContext | None) -> bool:
    """Whether there was an attempt at this task before."""
    return context is not None and context.attemptNumber() > 0


@attrs.define
class Leftovers:
    """Removes, when the tasks of a batch are done, the parts of it that none of them says it has written.

    The driver does it, as a shard or a partition that gets nothing in this attempt may have had something in another.
    Folders are listed only where an attempt before may have written what no name tells: in the first batch of a
    query, which may be a replay, and where a task was tried again.
    """

    sinks: Mapping[str, Sink]
    run: str
    tasks: int
    _is_first: bool = attrs.field(default=True, init=False)

    def remove(self, batch: int, notes: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """`notes`: what the tasks tell, of which sink each."""
        kept = defaultdict[str, set[str]](set)
        listing = self._is_first
        for name, facts in notes:
            kept[name].update(facts.get("files", ()))
            listing = listing or AGAIN in facts
        for name, sink in self.sinks.items():
            # Elsewhere no part can have been written.
            if isinstance(sink, Files) and read_by_polars(sink.folder):
                with at("sink", name):
                    settle_part(name, sink, self.run, batch, kept[name], None if listing else self.tasks)
        self._is_first = False
