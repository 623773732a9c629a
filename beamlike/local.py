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
from beamlike.ingest import DEAD_LETTERS, Ingested, ingest, ingest_step, steps_of
from beamlike.io import JSONLines, SparkSource
from beamlike.io.base import Part, Sink, output_frame
from beamlike.plan import Plan, SourcePlan, StagePlan
from beamlike.progress import Progress
from beamlike.records import BatchRecord, SourceRecord, StageRecord, stage_record
from beamlike.routes import apply_routes
from stages.sources import SourceClock, least_percentiles
from stages.state import DictStore
from stages.watermarks import Clock, propagate
from windowing.time import MAX_TIME

CHUNK_ROWS = 250_000


@attrs.frozen
class LocalRunner:
    """Runs a pipeline in process. A batch takes one chunk of every source that is not at its end.

    Of test streams it takes one step each; processing time is then theirs, and otherwise that of this machine.

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
        bundles = _bundles(self.plan, self.runner.chunk_rows)
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
            for bundle in bundles:
                self._batch(bundle, {**sinks, DEAD_LETTERS: letters})
                progress.update(self.batches[-1])
        finally:
            progress.close()

    def _batch(self, bundle: Bundle, sinks: Mapping[str, Sink]) -> None:
        self._arrived = {}
        sources = {name: self._receive(name, bundle) for name in self.plan.sources}
        stages: dict[str, StageRecord] = {}
        outputs = {name: clock.watermark for name, clock in self._clocks.items()}
        times = dict(bundle.times)

        def step(name: str, watermark: int) -> int:
            plan = self.plan.stages[name]
            times[name] = max(times[upstream] for upstream in plan.inputs)
            clock = Clock(watermark, times[name], self._percentiles(plan))
            stages[name] = self._step(plan, clock, outputs)
            outputs[name] = stages[name].output
            return outputs[name]

        propagate(self.plan.graph, outputs, step)
        record = BatchRecord(len(self.batches), max(times.values()), sources, stages)
        for name, sink in sinks.items():
            for frame in self._take(name):
                sink.write(output_frame(frame), Part(self.plan.name, record.batch, sink=name))
        self.batches.append(record)
        if self.runner.on_batch is not None:
            self.runner.on_batch(record)

    def _receive(self, name: str, bundle: Bundle) -> SourceRecord:
        """What the bundle has of a source is sent on, and moves its clock."""
        clock, got = self._clocks[name], bundle.arrived.get(name, Ingested({}, {}))
        if name in bundle.arrived:
            clock = clock.observe(self.plan.sources[name].watermark, got.summary, bundle.times[name])
        if bundle.ended:
            clock = attrs.evolve(clock, watermark=MAX_TIME)
        self._clocks[name] = clock
        self._send(got.frames)
        return SourceRecord(clock.watermark, got.elements, got.dead_letters)

    def _percentiles(self, plan: StagePlan) -> dict[int, int]:
        return least_percentiles(
            self._clocks[name].percentiles(self.plan.sources[name].watermark)
            for name in plan.inputs
            if name in self._clocks
        )

    def _step(self, plan: StagePlan, clock: Clock, outputs: Mapping[str, int]) -> StageRecord:
        frames = list(self._take(plan.name))
        arrivals = frames[0] if frames else plan.stage.grouping.no_arrivals()
        step = plan.stage.step(self._store, arrivals, clock)
        self._send(apply_routes(step.panes, plan.routes))
        self._send(apply_routes(step.late, plan.routes, output="late"))
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


@attrs.frozen
class Bundle:
    """What comes in a batch, by source: what was ingested, and the processing time (us) there; or that all end."""

    arrived: Mapping[str, Ingested]
    times: Mapping[str, int]
    ended: bool = False


def _bundles(plan: Plan, chunk_rows: int) -> Iterator[Bundle]:
    """The bundles of a run, the last of which is the end. Sources that cannot be read fail at once."""
    steps = steps_of(plan)
    if steps is not None:
        return _played(plan, steps)
    return _read(plan, {name: _chunks(source, chunk_rows) for name, source in plan.sources.items()})


def _played(plan: Plan, steps: int) -> Iterator[Bundle]:
    """Step after step of all test streams."""
    for number in range(steps + 1):
        played = {name: ingest_step(source, number) for name, source in plan.sources.items()}
        arrived = {name: ingested for name, (ingested, _) in played.items()}
        yield Bundle(arrived, {name: time for name, (_, time) in played.items()}, ended=number == steps)


def _read(plan: Plan, chunks: dict[str, Iterator[pl.LazyFrame]]) -> Iterator[Bundle]:
    """The next chunk of every source. When no source has one, all are at the end of time.

    Not earlier: on Spark, too, one cannot tell the end of a source from a pause, and panes are the same.
    """
    ended = False
    while not ended:
        now = time.time_ns() // 1000
        taken = {name: chunk for name in plan.sources if (chunk := next(chunks[name], None)) is not None}
        arrived = {name: ingest(plan.sources[name], chunk) for name, chunk in taken.items()}
        ended = not taken
        yield Bundle(arrived, dict.fromkeys(plan.sources, now), ended)


def _chunks(source: SourcePlan, rows: int) -> Iterator[pl.LazyFrame]:
    if isinstance(source.source, SparkSource):
        raise PlanError("only Spark can read it: run with runner=bl.SparkRunner(...)", step=source.name)
    chunks = source.source.chunks(rows)
    first = list(islice(chunks, 1))
    return chain(first, chunks)
