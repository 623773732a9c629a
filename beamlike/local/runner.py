"""The local runner: a plan in this process, for tests, notebooks and data that one machine can go through."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from signal import SIGINT

import attrs
import polars as pl

from beamlike.io import JSONLines
from beamlike.io.base import Part, Sink, output_frame
from beamlike.logical.names import require_name
from beamlike.logical.overlaps import require_outside
from beamlike.plan.model import Plan, StagePlan
from beamlike.plan.stepped import steps_of
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord
from beamlike.rows.dead_letters import DeadLetterCounts
from beamlike.runtime.build_records import source_record, with_letters
from beamlike.runtime.dead_letter_folder import folder_of_letters, hold_letters
from beamlike.runtime.dead_letter_limit import DeadLetterLimit
from beamlike.runtime.file_order import FileOrder
from beamlike.runtime.ingest import Chunk, Ingested, ingest, ingest_step, read_in_process
from beamlike.runtime.observers import Observers
from beamlike.runtime.outcome import Outcome
from beamlike.runtime.progress import Progress
from beamlike.runtime.run_sinks import RunSinks
from beamlike.runtime.sinks import (
    check_sinks,
    hold_sinks,
    require_in_process,
    write_part,
)
from beamlike.runtime.stage_task import StageTask, StageTurn
from beamlike.runtime.summary import Shown
from beamlike.system.in_hand import Desk, at, seated
from beamlike.system.signals import Interrupted, held_back, signals
from stages.progress.inputs import Arrived, Inputs
from stages.progress.reports import Report, must_wait
from stages.state.store import DictStore

CHUNK_ROWS = 250_000


@attrs.frozen
class LocalRunner:
    """Runs a pipeline in process. A batch takes one chunk of every source that is not at its end.

    Of test streams it takes one step each; processing time is then theirs, and otherwise that of this machine.

    `chunk_rows`: about how many rows a chunk has, where the source does not say how many files.
    `records`: a file for the records of all batches, for `beamlike why`, `watch` and `report`.
    `on_batch` is called with the record of each batch.
    `clock` gives the processing time in microseconds; by default it is this machine's.
    `run_id`: the name under which sinks know the run, by default that of the pipeline. A run replaces the files of
    the last one of its name, and is refused while one goes on that writes to the same place.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("out", bl.Memory())
        <Collection 'plays': user String, points Int64, at String>
        >>> p.run(bl.LocalRunner(records="plays.jsonl", on_batch=lambda record: print(record.batch, record.sinks)))
        0 {'out': 1}
        1 {'out': 1}
        2 {'out': 1}
        3 {}
        <LocalRun of 'scores': 4 batches>
    """

    chunk_rows: int = attrs.field(
        default=CHUNK_ROWS, validator=[attrs.validators.instance_of(int), attrs.validators.ge(1)]
    )
    records: str | os.PathLike[str] | None = None
    on_batch: Callable[[BatchRecord], None] | None = None
    clock: Callable[[], int] = attrs.field(default=lambda: time.time_ns() // 1000, repr=False)
    run_id: str | None = attrs.field(default=None)

    @run_id.validator
    def _is_a_name(self, attribute: attrs.Attribute[str | None], value: object) -> None:
        if value is not None:
            require_name(value, "run")

    def run(self, plan: Plan) -> LocalRun:
        """Runs the plan to the end of its input, and closes all windows there. Users call `Pipeline.run`.

        Ctrl-C ends it after the batch in hand: what was done so far is kept, windows that are open emit nothing, and
        `KeyboardInterrupt` is raised, whose `run` has the records. A second one gives that batch up, and files that
        an earlier run has written stay as they were. Raises `RunError` or its kinds, and what a user's function
        raises.

        Example, with the `plays` of `bl.Collection`:
            >>> plays.write("out", bl.Memory())
            <Collection 'plays': user String, points Int64, at String>
            >>> run = bl.LocalRunner().run(p.plan())
            >>> len(run.batches)
            4
        """
        run = LocalRun(plan, self)
        run.go()
        return run


@attrs.define(repr=False)
class LocalRun(Shown):
    """A run in process, and what it recorded."""

    plan: Plan
    runner: LocalRunner
    batches: list[BatchRecord] = attrs.field(factory=list)
    _store: DictStore = attrs.field(factory=DictStore)
    _sources: dict[str, Inputs] = attrs.field(factory=dict)
    _inputs: dict[str, Inputs] = attrs.field(factory=dict)
    _arrived: dict[str, list[tuple[str, pl.DataFrame]]] = attrs.field(factory=dict)
    _letters: DeadLetterCounts = attrs.field(factory=DeadLetterCounts)
    _file_order: FileOrder = attrs.field(factory=FileOrder)
    _desk: Desk = attrs.field(init=False)
    _stopped: bool = False
    dead_letters: str = attrs.field(init=False)
    """The folder of the dead letters that no collection of the pipeline takes; made when there is one."""

    def __attrs_post_init__(self) -> None:
        self.dead_letters = folder_of_letters(self.plan.name)
        self._desk = Desk(self.runner.clock, simulated=steps_of(self.plan) is not None)

    @property
    def run_id(self) -> str:
        """The name under which sinks know it."""
        return self.runner.run_id or self.plan.name

    def go(self) -> None:
        """Batch after batch, until all sources are at their end."""
        # Sources first: what cannot be read must not cost what an earlier run has written.
        bundles = self.bundles()
        _require_writable(self.plan, self.run_id, self.runner.records)
        with hold_sinks(self.plan, self.run_id) as held:
            self.dead_letters, lock = hold_letters(self.plan.name, self.run_id)
            held.enter_context(lock)
            self._go_alone(bundles)
        if self._stopped:
            raise Interrupted(self)

    def _go_alone(self, bundles: Iterator[Bundle]) -> None:
        """While no other run of this name writes to the same places."""
        outcome = Outcome.open(self.runner.records, self.plan, self._desk, fresh=True)
        try:
            outcome.followed_by(self.runner.on_batch)
            self._write_all(bundles, outcome)
        except KeyboardInterrupt:
            outcome.close("stopped")
            raise
        finally:
            outcome.close("failed")

    def _write_all(self, bundles: Iterator[Bundle], outcome: Outcome) -> None:
        """To files beside those of an earlier run, which they replace at the end."""
        letters = JSONLines(self.dead_letters)
        sinks = RunSinks.replacing(self.plan, self.run_id, letters, also_letters=True)
        try:
            sinks.start()
            self._go(bundles, sinks.sinks, outcome)
            self._publish(sinks, outcome)
        finally:
            sinks.withdraw()

    def _publish(self, sinks: RunSinks, outcome: Outcome) -> None:
        """All is done: whoever interrupts this gets the run, and all files."""
        try:
            with held_back():
                sinks.publish()
                outcome.close("stopped" if self._stopped else "ended")
        except KeyboardInterrupt:
            raise Interrupted(self) from None

    def _go(self, bundles: Iterator[Bundle], sinks: Mapping[str, Sink], outcome: Outcome) -> None:
        progress = Progress(self.plan.name)

        def stop() -> None:
            self._stopped = True
            progress.tell(f"{self.plan.name}: stopping after the batch in hand; a second Ctrl-C gives it up")

        try:
            with seated(self._desk), signals(stop, (SIGINT,)):
                self._take_all(bundles, sinks, outcome, progress)
        finally:
            progress.close()

    def _take_all(
        self, bundles: Iterator[Bundle], sinks: Mapping[str, Sink], outcome: Outcome, progress: Progress
    ) -> None:
        limit = DeadLetterLimit(self.plan.max_dead_letters)
        observers = Observers.of(self.plan, limit, outcome, progress, self.runner.on_batch)
        self._desk.begin(0)
        for bundle in bundles:
            observers.take(self.take(bundle, sinks))
            if self._stopped:
                return
            # To look for more is part of the next one.
            self._desk.begin(len(self.batches))
        observers.end()

    def take(self, bundle: Bundle, sinks: Mapping[str, Sink]) -> BatchRecord:
        """One batch, of which these sinks get what is for them."""
        self._arrived, self._letters = {}, DeadLetterCounts()
        sources = {name: self._receive(name, bundle) for name in self.plan.sources}
        reports: dict[str, Report] = {}
        stages: dict[str, StageRecord] = {}
        for name, plan in self.plan.stages.items():
            turn = self._step(plan, bundle, reports)
            self._desk.done(name)
            reports[name] = turn.report
            stages[name] = turn.record(turn.inputs.now + self._elapsed(bundle))
        now = max(bundle.times.values())
        rows = {}
        for name, sink in sinks.items():
            with at("sink", name):
                rows[name] = self._write(name, sink)
        rows = {name: count for name, count in rows.items() if count}
        lost = DeadLetterCounts.of_all(got.lost for got in bundle.ingested.values())
        finished, before = now + self._elapsed(bundle), self.batches[-1] if self.batches else None
        record = BatchRecord(len(self.batches), now, sources, stages, finished, rows)
        self.batches.append(with_letters(record, lost, self._letters).following(before))
        return self.batches[-1]

    def _elapsed(self, bundle: Bundle) -> int:
        """How long (us) the batch has taken so far."""
        return self.runner.clock() - bundle.started

    def _receive(self, name: str, bundle: Bundle) -> SourceRecord:
        """What the bundle has of a source is sent on."""
        got = bundle.ingested.get(name, Ingested({}, {}))
        self._send(name, got.frames, got.letters)
        strategy = self.plan.sources[name].watermark
        inputs = self._sources.get(name, Inputs())
        if name in inputs.sources:
            before = inputs.sources[name].watermark
            self._file_order.look(name, self.plan.sources[name].source, got.newest, before)
        inputs = inputs.receive(bundle.arrived([name], bundle.times[name]), {name: strategy})
        self._sources[name] = inputs
        record = source_record(name, inputs, strategy)
        return attrs.evolve(record, elements=got.elements, dead_letters=got.dead_letters, read=got.read)

    def _step(self, plan: StagePlan, bundle: Bundle, reports: Mapping[str, Report]) -> StageTurn:
        """A stage takes its step, and what comes of it is sent on."""
        sources = {name: self.plan.sources[name].watermark for name in plan.inputs if name not in reports}
        upstream = {name: reports[name] for name in plan.inputs if name in reports}
        times = [bundle.times[name] for name in sources] + [self._inputs[name].now for name in upstream]
        task = StageTask(plan, sources, {name: [name] for name in upstream})
        inputs = task.receive(
            self._inputs.get(plan.name, Inputs()), bundle.arrived(sources, max(times), upstream)
        )
        turn = task.step(inputs, self._arrived.pop(plan.name, []), self._store)
        self._inputs[plan.name] = inputs
        for routed in turn.routed.values():
            self._send(plan.name, routed.frames, routed.letters)
        return turn

    def _write(self, name: str, sink: Sink) -> int:
        """What has come for a sink in this batch is written: how many rows."""
        frames = [frame for _, frame in self._arrived.pop(name, [])]
        if not frames:
            return 0
        frame = pl.concat(frames)
        write_part(sink, output_frame(frame), Part(self.run_id, len(self.batches), sink=name))
        return len(frame)

    def _send(self, producer: str, frames: Mapping[str, pl.DataFrame], letters: DeadLetterCounts) -> None:
        self._letters = self._letters.plus(letters)
        for consumer, frame in frames.items():
            if len(frame):
                self._arrived.setdefault(consumer, []).append((producer, frame))

    def bundles(self) -> Iterator[Bundle]:
        """The bundles of the run, the last of which is the end. Sources that cannot be read fail at once."""
        steps = steps_of(self.plan)
        if steps is not None:
            return self._play(steps)
        rows = self.runner.chunk_rows
        return self._read({name: read_in_process(source, rows) for name, source in self.plan.sources.items()})

    def _play(self, steps: int) -> Iterator[Bundle]:
        """Step after step of all test streams."""
        for number in range(steps + 1):
            started = self.runner.clock()
            played = {name: ingest_step(source, number) for name, source in self.plan.sources.items()}
            ingested = {name: got for name, (got, _) in played.items()}
            times = {name: time for name, (_, time) in played.items()}
            yield Bundle(ingested, times, started, ended=number == steps)

    def _read(self, chunks: dict[str, Iterator[Chunk]]) -> Iterator[Bundle]:
        """The next chunk of every source that need not wait. When no source has one, all are at the end of time.

        Not earlier: on Spark, too, one cannot tell the end of a source from a pause, and panes are the same.
        """
        while True:
            waiting = self._waiting(chunks)
            going = [name for name in chunks if name not in waiting]
            taken = {name: chunk for name in going if (chunk := _next(name, chunks[name])) is not None}
            chunks = {name: source for name, source in chunks.items() if name in taken or name in waiting}
            now = self.runner.clock()
            ingested = {name: ingest(self.plan.sources[name], chunk, now) for name, chunk in taken.items()}
            times = dict.fromkeys(self.plan.sources, now)
            yield Bundle(ingested, times, now, ended=not chunks, waiting=waiting)
            if not chunks:
                return

    def _waiting(self, chunks: Mapping[str, Iterator[Chunk]]) -> frozenset[str]:
        """The sources that are too far ahead of the slowest of those that still have something."""
        reports = {name: self._sources[name].report(name, []) for name in chunks if name in self._sources}
        drifts = {name: source.watermark.max_drift for name, source in self.plan.sources.items()}
        return must_wait(reports, drifts)


@attrs.frozen
class Bundle:
    """What comes in a batch, by source: what was ingested, and the processing time (us) there; or that all end.

    `started`: when the runner's clock (us) began with it. Sources that are `waiting` were not asked, as they are
    too far ahead.
    """

    ingested: Mapping[str, Ingested]
    times: Mapping[str, int]
    started: int
    ended: bool = False
    waiting: frozenset[str] = frozenset()

    def arrived(
        self, sources: Iterable[str], now: int, reports: Mapping[str, Report] | None = None
    ) -> Arrived:
        """What of it a reader of these sources gets, with reports of what else it reads."""
        names = frozenset(sources)
        summaries = {name: got.summary for name, got in self.ingested.items() if name in names}
        return Arrived(
            summaries,
            names if self.ended else frozenset(),
            reports or {},
            now,
            self.waiting & names,
            {name: self.times[name] for name in names},
        )


def _require_writable(plan: Plan, run: str, records: str | os.PathLike[str] | None) -> None:
    """Before anything is written."""
    require_in_process(plan)
    sources = {name: source.source for name, source in plan.sources.items()}
    letters = "where dead letters go that nobody takes; read another folder, or run in another"
    require_outside(sources, folder_of_letters(plan.name), (f"part-{run}-000000-000.jsonl",), letters)
    if records is not None:
        require_outside(sources, os.fspath(records), ("",), "the records of the run; name another file")
    check_sinks({name: sink.sink for name, sink in plan.sinks.items()})


def _next(name: str, chunks: Iterator[Chunk]) -> Chunk | None:
    with at("source", name):
        return next(chunks, None)
