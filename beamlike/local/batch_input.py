"""The input of a batch, and of all batches of a run without a checkpoint: by chunks, or by steps of test streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import attrs
import polars as pl

from beamlike.errors import naming_source
from beamlike.io.refreshed import Clock, Refreshed
from beamlike.local.prefetch import (
    Prefetched,
    ingest_all,
    may_prefetch,
    must_repeat,
    prefetch,
    threads_for,
)
from beamlike.plan.model import Plan, SourcePlan
from beamlike.plan.stepped import steps_of
from beamlike.runtime.batch.ingested import Chunk, Ingested
from beamlike.runtime.batch.reading import ingest_step, read_in_process
from beamlike.system.activity import activity
from beamlike.system.threads import ALONE, StartedTask, Threads
from stages.progress.inputs import Arrived, Inputs
from stages.progress.reports import Report, must_wait
from windowing.time import MIN_TIME


@attrs.frozen(eq=False)
class BatchInput:
    """The input of a batch, by source: the ingested rows, and the processing time (us). With `ended`, all sources end.

    `began`: the time (us) at which the runner began the batch. Sources in `waiting` are too far ahead, and were not
    read. `started`: the start of the run (us), before which silence of a source does not count. `over`: the sources
    that have ended although others have not. `changed`: their files that changed, as in `SourceRecord`.
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
        """The part of the input for a reader of these sources, with reports of the stages that it reads."""
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


def batch_inputs(
    plan: Plan, rows: int, clock: Clock, inputs: Mapping[str, Inputs], threads: Threads = ALONE
) -> Iterator[BatchInput]:
    """Iterates over the batches of a run; the last one is the end. Raises at once if a source cannot be read.

    `inputs` always has the current inputs of the sources.
    """
    steps = steps_of(plan)
    if steps is not None:
        return (step_input(plan, number, steps, clock) for number in range(steps + 1))
    again = {name: one.source for name, one in plan.sources.items() if isinstance(one.source, Refreshed)}
    chunks = {
        name: read_in_process(source, rows) for name, source in plan.sources.items() if name not in again
    }
    readings = {name: source.readings(clock) for name, source in again.items()}
    return _chunk_inputs(plan, chunks, readings, clock=clock, inputs=inputs, threads=threads)


def step_input(plan: Plan, number: int, steps: int, clock: Clock) -> BatchInput:
    """The input of a step of all test streams; after the last step, the end."""
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
    """Iterates over batches with the next chunk of every source that need not wait.

    Without any chunk left, all sources end together. On Spark, too, the end of a source cannot be distinguished from a
    pause, and so panes are the same. A source that is read as a whole ends in the first batch, and a refreshed source
    does not keep the run going.
    """
    early, started, worth = may_prefetch(plan), dict[str, StartedTask[Prefetched | None]](), threads
    while True:
        waiting = too_far_ahead(plan, chunks, inputs)
        going = [name for name in chunks if name not in waiting]
        found = {name: _next(name, chunks[name], started.pop(name, None)) for name in going}
        found |= {name: _next(name, source) for name, source in readings.items()}
        taken = {name: chunk for name, chunk in found.items() if chunk is not None}
        # A source without a chunk has ended, but a source that waits was not read.
        chunks = {name: source for name, source in chunks.items() if name in taken or name in waiting}
        now = clock()
        ingested = ingest_all(plan, taken, now, worth)
        worth, early = threads_for(ingested, threads), early - must_repeat(taken)
        times = dict.fromkeys(plan.sources, now)
        # Read while the caller runs this batch; the next round takes the result before it reads anything else.
        for name in [name for name in chunks if name in early]:
            read = partial(_read_next, plan.sources[name], chunks[name], now)
            if (one := prefetch(worth, read)) is not None:
                started[name] = one
        yield BatchInput(ingested, times, now, ended=not chunks, waiting=waiting, over=read_whole(plan))
        if not chunks:
            return


def read_whole(plan: Plan) -> frozenset[str]:
    """The sources that are read as a whole in the first batch, and end there."""
    return frozenset(name for name, source in plan.sources.items() if source.whole)


def too_far_ahead(plan: Plan, names: Iterable[str], inputs: Mapping[str, Inputs]) -> frozenset[str]:
    """The sources among `names`, which still have rows, that are too far ahead of the slowest of them."""
    reports = {name: inputs[name].report(name, []) for name in names if name in inputs}
    drifts = {name: source.watermark.max_drift for name, source in plan.sources.items()}
    return must_wait(reports, drifts)


def _next(
    name: str, chunks: Iterator[Chunk | None], started: StartedTask[Prefetched | None] | None = None
) -> Chunk | Prefetched | None:
    """The next chunk of a source, with its result if it was prefetched; None at the end."""
    with activity("source", name), naming_source(name):
        return next(chunks, None) if started is None else started.result()


def _read_next(source: SourcePlan, chunks: Iterator[Chunk], now: int) -> Prefetched | None:
    chunk = next(chunks, None)
    return None if chunk is None else Prefetched.of(source, chunk, now)
