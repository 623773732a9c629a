"""Ingests several sources in parallel, and prefetches files for the next batch while the current batch runs.

The result of ingestion can depend on the processing time of the batch, which is not known before it begins: a row whose
event time is too far in the future becomes a dead letter. Processing time only increases, so if a chunk has no dead
letter at an earlier time, it will have none later. Otherwise the chunk is ingested again when its batch has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import attrs

from beamlike.plan.model import Plan, SourcePlan
from beamlike.records.model import BatchRecord
from beamlike.runtime.batch.ingest import ingest
from beamlike.runtime.batch.ingested import Chunk, Ingested
from beamlike.system.activity import tracked_by
from beamlike.system.threads import ALONE, StartedTask, Threads

T = TypeVar("T")

FEW: Final = 20_000
"""The number of rows below which a batch uses one thread: it spends most of its time in Python, which has one lock."""


def threads_for(ingested: Mapping[str, Ingested], threads: Threads) -> Threads:
    """Returns the threads for a batch with these ingested rows; a small batch uses only the calling thread."""
    return threads if sum(got.read for got in ingested.values()) >= FEW else ALONE


def is_small(last: BatchRecord | None) -> bool:
    """True if the batch before had so few rows that several threads of polars would mostly wait in the next one."""
    return last is not None and sum(one.read or 0 for one in last.sources.values()) < FEW


@attrs.frozen(eq=False)
class Prefetched:
    """A chunk of the next batch that was read early. `ingested`: its result at the processing time `now`
    (us), if final.
    """

    chunk: Chunk
    ingested: Ingested | None
    now: int

    @classmethod
    def of(cls, source: SourcePlan, chunk: Chunk, now: int) -> Prefetched:
        """Ingests a chunk at the processing time `now` (us)."""
        try:
            got = ingest(source, chunk, now)
        except Exception:
            # If the error does not depend on the time, it is raised again when the batch has begun.
            return cls(chunk, None, now)
        return cls(chunk, None if got.lost.total else got, now)

    def at(self, now: int) -> Ingested | None:
        """Returns the ingested rows for a batch with this processing time (us), if they are valid there, otherwise
        None.

        They are not valid if the clock was set back.
        """
        return self.ingested if self.now <= now else None


def ingest_all(
    plan: Plan, taken: Mapping[str, Chunk | Prefetched], now: int, threads: Threads
) -> dict[str, Ingested]:
    """Ingests the chunks of a batch. The results of most prefetched chunks are used without change."""
    prefetched = {name: got for name, got in taken.items() if isinstance(got, Prefetched)}
    ingested = {name: known for name, got in prefetched.items() if (known := got.at(now)) is not None}
    tasks = {
        name: partial(ingest, plan.sources[name], got.chunk if isinstance(got, Prefetched) else got, now)
        for name, got in taken.items()
        if name not in ingested
    }
    done = threads.each(tasks, here=[name for name in tasks if plan.sources[name].python])
    return {name: ingested.get(name) or done[name] for name in taken}


def must_repeat(taken: Mapping[str, object]) -> frozenset[str]:
    """Returns the sources whose prefetched result cannot be used, since some rows were dead letters.

    The next chunk of such a source probably has dead letters too.
    """
    return frozenset(
        name for name, got in taken.items() if isinstance(got, Prefetched) and got.ingested is None
    )


def may_prefetch(plan: Plan) -> frozenset[str]:
    """Returns the sources that can be prefetched: their next batch has the same rows, whenever it is read.

    They are sources of files, unless their event time is the clock, another source can make them wait, or they run a
    user's function.
    """
    if any(source.watermark.max_drift is not None for source in plan.sources.values()):
        return frozenset()
    return frozenset(name for name, source in plan.sources.items() if _has_its_own_way(source))


def _has_its_own_way(source: SourcePlan) -> bool:
    by_itself = not (source.whole or source.python or source.watermark.assigns_event_time)
    return source.reads_files and by_itself


def prefetch(threads: Threads, read: Callable[[], T]) -> StartedTask[T] | None:
    """Starts to read in another thread, without an entry in the activity tracker. Returns None if there is no other
    thread.
    """

    def unseen() -> T:
        with tracked_by(None):
            return read()

    return threads.start(unseen)
