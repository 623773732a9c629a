"""The input of each batch of a run without a checkpoint: chunks of the sources, or steps of test streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Self, TypeAlias

import attrs
import polars as pl

from beamlike.errors import naming_source
from beamlike.io.refreshed import Clock, Refreshed
from beamlike.plan.model import Plan, SourcePlan
from beamlike.plan.stepped import steps_of
from beamlike.runtime.batch.ingested import Chunk, Ingested
from beamlike.runtime.batch.reading import ingest_step, read_in_process
from beamlike.runtime.loop.prefetch import (
    Prefetched,
    ingest_all,
    may_prefetch,
    must_repeat,
    prefetch,
    threads_for,
)
from beamlike.system.activity import activity
from beamlike.system.threads import ALONE, StartedTask, Threads
from stages.progress.inputs import Arrived, Inputs
from stages.progress.reports import Report, must_wait
from windowing.time import MIN_TIME


@attrs.frozen(eq=False)
class BatchInput:
    """The input of a batch, by source: the ingested rows, and the processing time (us). `ended`: all sources end here.

    `began`: the time (us) at which the runner began the batch. Sources in `waiting` are too far ahead of another
    source, and were not read. `started`: the start of the run (us), before which silence of a source does not count.
    `over`: the sources that have ended although others have not. `changed`: the files of each source that changed, as
    in `SourceRecord`.
    """

    ingested: Mapping[str, Ingested]
    times: Mapping[str, int]
    began: int
    ended: bool = attrs.field(default=False, kw_only=True)
    waiting: frozenset[str] = attrs.field(default=frozenset(), kw_only=True)
    started: int = attrs.field(default=MIN_TIME, kw_only=True)
    over: frozenset[str] = attrs.field(default=frozenset(), kw_only=True)
    changed: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict, kw_only=True)

    def arrived(
        self, sources: Iterable[str], now: int, reports: Mapping[str, Report] | None = None
    ) -> Arrived:
        """Returns the part of the input that concerns a reader of these sources.

        `reports`: the reports of the stages that it reads.
        """
        names = frozenset(sources)
        summaries = {name: got.summary for name, got in self.ingested.items() if name in names}
        return Arrived(
            summaries,
            names if self.ended else names & self.over,
            reports or {},
            now,
            self.waiting & names,
            {name: self.times[name] for name in names},
        )


Started: TypeAlias = StartedTask[Prefetched | None]


@attrs.define(eq=False)
class _Ahead:
    """The chunks of a complete source, of which the next one is already known."""

    chunks: Iterator[Chunk]
    _next: Chunk | None

    @classmethod
    def of(cls, chunks: Iterator[Chunk]) -> Self:
        return cls(chunks, next(chunks, None))

    @property
    def is_over(self) -> bool:
        """True if there are no further chunks."""
        return self._next is None

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        chunk = self._next
        if chunk is None:
            raise StopIteration
        self._next = next(self.chunks, None)
        return chunk


def batch_inputs(
    plan: Plan, rows: int, clock: Clock, inputs: Mapping[str, Inputs], threads: Threads = ALONE
) -> Iterator[BatchInput]:
    """Iterates over the batches of a run; the last one is the end. Raises at once if a source cannot be read.

    The caller keeps the current inputs of each source in `inputs`.
    """
    steps = steps_of(plan)
    if steps is not None:
        return (step_input(plan, number, steps, clock) for number in range(steps + 1))
    again = {name: one.source for name, one in plan.sources.items() if isinstance(one.source, Refreshed)}
    chunks = {
        name: _Ahead.of(read_in_process(source, rows)) if source.complete else read_in_process(source, rows)
        for name, source in plan.sources.items()
        if name not in again
    }
    readings = {name: source.readings(clock) for name, source in again.items()}
    return _chunk_inputs(plan, chunks, readings, clock=clock, inputs=inputs, threads=threads)


def step_input(plan: Plan, number: int, steps: int, clock: Clock) -> BatchInput:
    """Returns the input of a step of all test streams; after the last step, the end."""
    began = clock()
    played = {name: ingest_step(source, number) for name, source in plan.sources.items()}
    ingested = {name: got for name, (got, _) in played.items()}
    return BatchInput(
        ingested, {name: time for name, (_, time) in played.items()}, began, ended=number == steps
    )


def _chunk_inputs(
    plan: Plan,
    chunks: dict[str, Iterator[Chunk]],
    readings: Mapping[str, Iterator[pl.LazyFrame | None]],
    *,
    clock: Clock,
    inputs: Mapping[str, Inputs],
    threads: Threads,
) -> Iterator[BatchInput]:
    """Iterates over batches with the next chunk of every source that need not wait for a slower one.

    When no source has another chunk, all sources end together. On Spark, too, the end of a source cannot be
    distinguished from a pause, so panes are the same there. A source that is read as a whole ends in the first batch,
    a complete source in the batch with its last rows, and a refreshed source does not keep the run going.
    """
    complete = {name: source for name, source in chunks.items() if isinstance(source, _Ahead)}
    early, started, worth = may_prefetch(plan) - complete.keys(), dict[str, Started](), threads
    while True:
        waiting = too_far_ahead(plan, chunks, inputs)
        going = [name for name in chunks if name not in waiting]
        found = {name: _next(name, chunks[name], started.pop(name, None)) for name in going}
        found |= {name: _next(name, source) for name, source in readings.items()}
        taken = {name: chunk for name, chunk in found.items() if chunk is not None}
        # A source without a chunk has ended, unless it waits: then it was not read.
        chunks = {name: source for name, source in chunks.items() if name in taken or name in waiting}
        now = clock()
        ingested = ingest_all(plan, taken, now, worth)
        worth, early = threads_for(ingested, threads), early - must_repeat(taken)
        times = dict.fromkeys(plan.sources, now)
        # Read in another thread while the caller runs this batch. The next round uses the result before it
        # reads more.
        for name in [name for name in chunks if name in early]:
            read = partial(_read_next, plan.sources[name], chunks[name], now)
            if (one := prefetch(worth, read)) is not None:
                started[name] = one
        over = read_whole(plan) | {name for name, source in complete.items() if source.is_over}
        yield BatchInput(ingested, times, now, ended=not chunks, waiting=waiting, over=over)
        if not chunks:
            return


def read_whole(plan: Plan) -> frozenset[str]:
    """Returns the names of the sources that are read as a whole in the first batch, and end there."""
    return frozenset(name for name, source in plan.sources.items() if source.whole)


def too_far_ahead(plan: Plan, names: Iterable[str], inputs: Mapping[str, Inputs]) -> frozenset[str]:
    """Returns those of the sources `names` that must wait, since they are too far ahead of the slowest source.

    All sources in `names` still have rows.
    """
    reports = {name: inputs[name].report(name, []) for name in names if name in inputs}
    drifts = {name: source.watermark.max_drift for name, source in plan.sources.items()}
    return must_wait(reports, drifts)


def _next(
    name: str, chunks: Iterator[Chunk | None], started: StartedTask[Prefetched | None] | None = None
) -> Chunk | Prefetched | None:
    """Returns the next chunk of a source, already ingested if it was prefetched; None at the end."""
    with activity("source", name), naming_source(name):
        return next(chunks, None) if started is None else started.result()


def _read_next(source: SourcePlan, chunks: Iterator[Chunk], now: int) -> Prefetched | None:
    chunk = next(chunks, None)
    return None if chunk is None else Prefetched.of(source, chunk, now)
