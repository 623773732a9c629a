"""What sources give, several at once; and of files, beside the batch in hand, what the next batch takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from beamlike.io.sources import ReadInFiles
from beamlike.plan.model import Plan, SourcePlan
from beamlike.runtime.ingest import Chunk, Ingested, ingest
from beamlike.system.in_hand import seated
from beamlike.system.threads import ALONE, Started, Threads

T = TypeVar("T")

FEW: Final = 20_000
"""A batch of fewer rows is not worth a second thread: most of what it takes is Python, and one waits for the other."""


def threads_for(ingested: Mapping[str, Ingested], threads: Threads) -> Threads:
    """The threads for a batch in which this has come, or for the next one."""
    return threads if sum(got.read for got in ingested.values()) >= FEW else ALONE


def ingest_all(
    plan: Plan, taken: Mapping[str, Chunk | Ingested], now: int, threads: Threads
) -> dict[str, Ingested]:
    """What becomes of the chunks that a batch takes; of those that were read ahead that is known."""
    ingested = {name: got for name, got in taken.items() if isinstance(got, Ingested)}
    tasks = {
        name: partial(ingest, plan.sources[name], got, now)
        for name, got in taken.items()
        if not isinstance(got, Ingested)
    }
    done = threads.each(tasks, here=[name for name in tasks if plan.sources[name].python])
    return {name: ingested.get(name) or done[name] for name in taken}


def may_be_read_ahead(plan: Plan) -> frozenset[str]:
    """The sources that give the next batch the same, whether they are asked before it begins or then.

    Those are files, unless the clock, other sources or a function of the user's have a say in what becomes of them.
    """
    if any(source.watermark.max_drift is not None for source in plan.sources.values()):
        return frozenset()
    return frozenset(name for name, source in plan.sources.items() if _has_its_own_way(source))


def _has_its_own_way(source: SourcePlan) -> bool:
    asks_the_clock = source.watermark.assigns_event_time or source.max_future is not None
    return isinstance(source.source, ReadInFiles) and not (source.whole or source.python or asks_the_clock)


def read_ahead(threads: Threads, read: Callable[[], T]) -> Started[T] | None:
    """Has it read beside the batch in hand, which does not show as what that is at."""

    def unseen() -> T:
        with seated(None):
            return read()

    return threads.start(unseen)
