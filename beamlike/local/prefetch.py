"""What sources give, several at once; and of files, beside the batch in hand, what the next batch takes.

What becomes of rows can depend on the processing time of their batch, which is not known before it begins: a row is set
aside whose event time is too far in the future. Time only goes on, so rows of which none was set aside earlier are
elements then, too. Where one was, elements are made of the chunk again when its batch has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import attrs

from beamlike.io.sources import ReadInFiles
from beamlike.plan.model import Plan, SourcePlan
from beamlike.runtime.ingest import ingest
from beamlike.runtime.ingested import Chunk, Ingested
from beamlike.system.activity import tracked_by
from beamlike.system.threads import ALONE, StartedTask, Threads

T = TypeVar("T")

FEW: Final = 20_000
"""A batch of fewer rows is not worth a second thread: most of what it takes is Python, and one waits for the other."""


def threads_for(ingested: Mapping[str, Ingested], threads: Threads) -> Threads:
    """The threads for a batch in which this has come, or for the next one."""
    return threads if sum(got.read for got in ingested.values()) >= FEW else ALONE


@attrs.frozen(eq=False)
class Prefetched:
    """A chunk of the next batch, and what has become of it with an earlier processing time (us), if that is certain."""

    chunk: Chunk
    ingested: Ingested | None
    now: int

    @classmethod
    def of(cls, source: SourcePlan, chunk: Chunk, now: int) -> Prefetched:
        """Reads it while `now` is the processing time."""
        try:
            got = ingest(source, chunk, now)
        except Exception:
            # Raised again when its batch has begun, unless the time of that makes a difference.
            return cls(chunk, None, now)
        return cls(chunk, None if got.lost.total else got, now)

    def at(self, now: int) -> Ingested | None:
        """What becomes of it in a batch of this processing time, if that is known; clocks can be set back."""
        return self.ingested if self.now <= now else None


def ingest_all(
    plan: Plan, taken: Mapping[str, Chunk | Prefetched], now: int, threads: Threads
) -> dict[str, Ingested]:
    """What becomes of the chunks that a batch takes; of those that were prefetched that is known, as a rule."""
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
    """The sources of which it was no use to prefetched: some rows were set aside, and so others are likely to be."""
    return frozenset(
        name for name, got in taken.items() if isinstance(got, Prefetched) and got.ingested is None
    )


def may_prefetch(plan: Plan) -> frozenset[str]:
    """The sources that give the next batch the same, whether they are asked before it begins or then.

    Those are files, unless they have the clock as event time, or other sources or a function of the user's have a say.
    """
    if any(source.watermark.max_drift is not None for source in plan.sources.values()):
        return frozenset()
    return frozenset(name for name, source in plan.sources.items() if _has_its_own_way(source))


def _has_its_own_way(source: SourcePlan) -> bool:
    by_itself = not (source.whole or source.python or source.watermark.assigns_event_time)
    return isinstance(source.source, ReadInFiles) and by_itself


def prefetch(threads: Threads, read: Callable[[], T]) -> StartedTask[T] | None:
    """Has it read beside the batch in hand, which does not show as what that is at."""

    def unseen() -> T:
        with tracked_by(None):
            return read()

    return threads.start(unseen)
