"""The local runner: a plan in this process, for tests, notebooks and data that one machine can go through."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from urllib.parse import quote

import attrs
import polars as pl

from beamlike.errors import PlanError
from beamlike.ingest import DEAD_LETTERS, ingest
from beamlike.io import JSONLines, SparkSource
from beamlike.io.base import Part, Sink, output_frame
from beamlike.plan import Plan, SourcePlan, StagePlan
from beamlike.progress import Progress
from beamlike.records import BatchRecord, SourceRecord, StageRecord, stage_record
from beamlike.routes import apply_routes
from stages.sources import SourceClock
from stages.state import DictStore
from stages.watermarks import Clock, propagate
from windowing.time import MAX_TIME

CHUNK_ROWS = 250_000


@attrs.frozen
class LocalRunner:
    """Runs a pipeline in process. A batch takes one chunk of every source that is not at its end.

    `chunk_rows`: about how many rows a chunk has, where the source does not say how many files.
    `on_batch` is called with the record of each batch.
    """

    chunk_rows: int = attrs.field(
        default=CHUNK_ROWS, validator=[attrs.validators.instance_of(int), attrs.validators.ge(1)]
    )
    on_batch: Callable[[BatchRecord], None] | None = None

    def run(self, plan: Plan) -> LocalRun:
        """Runs the plan to the end of its input, and closes all windows there."""
        run = LocalRun(plan, self)
        run.go()
        return run


@attrs.define
class LocalRun:
    """A run in process, and what it recorded."""

    plan: Plan
    runner: LocalRunner
    batches: list[BatchRecord] = attrs.field(factory=list)
    _store: DictStore = attrs.field(factory=DictStore)
    _clocks: dict[str, SourceClock] = attrs.field(factory=dict)
    _arrived: dict[str, list[pl.DataFrame]] = attrs.field(factory=dict)

    @property
    def dead_letters(self) -> str:
        """The folder of the dead letters that no collection of the pipeline takes; made when there is one."""
        return f"{quote(self.plan.name, safe=' ')}-dead-letters"

    def go(self) -> None:
        """Batch after batch, until all sources are at their end."""
        # Sources first: what cannot be read must not cost what an earlier run has written.
        chunks = {name: self._chunks(source) for name, source in self.plan.sources.items()}
        sinks = {name: sink.sink for name, sink in self.plan.sinks.items()}
        letters = JSONLines(self.dead_letters)
        for sink in [*sinks.values(), *([letters] if os.path.isdir(letters.path) else [])]:
            sink.start(self.plan.name)
        for name, plan in self.plan.sinks.items():
            # So that a sink knows its columns even if no row ever comes.
            plan.sink.write(
                output_frame(pl.DataFrame(schema=plan.schema)), Part(self.plan.name, 0, sink=name)
            )
        self._clocks = {name: SourceClock() for name in self.plan.sources}
        progress = Progress(self.plan.name)
        try:
            while chunks:
                self._batch(chunks, {**sinks, DEAD_LETTERS: letters})
                progress.update(self.batches[-1])
        finally:
            progress.close()

    def _chunks(self, source: SourcePlan) -> Iterator[pl.LazyFrame]:
        if isinstance(source.source, SparkSource):
            raise PlanError("only Spark can read it: run with runner=bl.SparkRunner(...)", step=source.name)
        chunks = source.source.chunks(self.runner.chunk_rows)
        first = list(islice(chunks, 1))
        return chain(first, chunks)

    def _batch(self, chunks: dict[str, Iterator[pl.LazyFrame]], sinks: Mapping[str, Sink]) -> None:
        now = time.time_ns() // 1000
        self._arrived = {}
        sources = {name: self._read(name, chunks, now) for name in self.plan.sources}
        if not chunks:
            self._clocks = {
                name: attrs.evolve(clock, watermark=MAX_TIME) for name, clock in self._clocks.items()
            }
            sources = {name: attrs.evolve(record, watermark=MAX_TIME) for name, record in sources.items()}
        stages: dict[str, StageRecord] = {}
        outputs = {name: clock.watermark for name, clock in self._clocks.items()}

        def step(name: str, watermark: int) -> int:
            stages[name] = self._step(self.plan.stages[name], Clock(watermark, now), outputs)
            outputs[name] = stages[name].output
            return outputs[name]

        propagate(self.plan.graph, outputs, step)
        record = BatchRecord(len(self.batches), now, sources, stages)
        for name, sink in sinks.items():
            for frame in self._take(name):
                sink.write(output_frame(frame), Part(self.plan.name, record.batch, sink=name))
        self.batches.append(record)
        if self.runner.on_batch is not None:
            self.runner.on_batch(record)

    def _read(self, name: str, chunks: dict[str, Iterator[pl.LazyFrame]], now: int) -> SourceRecord:
        """The next chunk of a source. When no source has one, all are at the end of time.

        Not earlier: on Spark, too, one cannot tell the end of a source from a pause, and panes are the same.
        """
        chunk = next(chunks[name], None) if name in chunks else None
        if chunk is None:
            chunks.pop(name, None)
            return SourceRecord(self._clocks[name].watermark)
        source = self.plan.sources[name]
        ingested = ingest(source, chunk)
        self._clocks[name] = self._clocks[name].observe(source.watermark, ingested.summary, now)
        self._send(ingested.frames)
        return SourceRecord(self._clocks[name].watermark, ingested.elements, ingested.dead_letters)

    def _step(self, plan: StagePlan, clock: Clock, outputs: Mapping[str, int]) -> StageRecord:
        frames = list(self._take(plan.name))
        arrivals = frames[0] if frames else plan.stage.grouping.no_arrivals()
        step = plan.stage.step(self._store, arrivals, clock)
        self._send(apply_routes(step.panes, plan.routes))
        return stage_record(step, {name: outputs[name] for name in plan.inputs})

    def _send(self, frames: Mapping[str, pl.DataFrame]) -> None:
        for consumer, frame in frames.items():
            if len(frame):
                self._arrived.setdefault(consumer, []).append(frame)

    def _take(self, consumer: str) -> Iterator[pl.DataFrame]:
        """What has come for a stage or sink in this batch, as one frame, if anything has."""
        frames = self._arrived.pop(consumer, [])
        if frames:
            yield pl.concat(frames)
