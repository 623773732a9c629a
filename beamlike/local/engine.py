"""Runs the batches of a plan in this process: sources, then stages in order, then sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import polars as pl

from beamlike.local.bundle import Bundle, Clock
from beamlike.plan.model import Plan, StagePlan
from beamlike.plan.route import address
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord
from beamlike.rows.dead_letters import DeadLetterCounts
from beamlike.runtime.batch_sinks import BatchSinks
from beamlike.runtime.build_records import with_letters
from beamlike.runtime.ingest import Ingested
from beamlike.runtime.origins import shard_name
from beamlike.runtime.source_turns import SourceTurn, SourceTurns
from beamlike.runtime.stage_task import StageTask, StageTurn
from beamlike.system.in_hand import desk
from stages.progress.inputs import Inputs
from stages.progress.reports import Report
from stages.state.store import DictStore, StateStore


@attrs.define
class Engine:
    """The state of a run in process: what its stages keep in `store`, and what they and its sources know (`inputs`).

    Each stage is one shard. `last` is the record of the batch before. `between` is called between two parts of a batch,
    and may raise, to give it up.
    """

    plan: Plan
    clock: Clock
    store: StateStore = attrs.field(factory=DictStore)
    inputs: dict[str, Inputs] = attrs.field(factory=dict)
    last: BatchRecord | None = None
    between: Callable[[], object] = lambda: None
    _arrived: dict[str, list[tuple[str, pl.DataFrame]]] = attrs.field(factory=dict, init=False)
    _letters: DeadLetterCounts = attrs.field(factory=DeadLetterCounts, init=False)
    _sources: SourceTurns = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._sources = SourceTurns(self.plan, self.inputs)

    def take(self, bundle: Bundle, number: int, sinks: BatchSinks) -> BatchRecord:
        """The batch of this number, of which these sinks get what is for them."""
        self._arrived, self._letters = {}, DeadLetterCounts()
        sources = {name: self._receive(name, bundle) for name in self.plan.sources}
        stages = self._steps(bundle)
        self.between()
        arrived = {name: [frame for _, frame in frames] for name, frames in self._arrived.items()}
        rows = sinks.write(number, arrived)
        lost = DeadLetterCounts.of_all(got.lost for got in bundle.ingested.values())
        now = max(bundle.times.values())
        record = BatchRecord(number, now, sources, stages, now + self._elapsed(bundle), rows)
        self.last = with_letters(record, lost, self._letters).following(self.last)
        return self.last

    def _elapsed(self, bundle: Bundle) -> int:
        """How long (us) the batch has taken so far."""
        return self.clock() - bundle.began

    def _receive(self, name: str, bundle: Bundle) -> SourceRecord:
        """What the bundle has of a source is sent on."""
        got = bundle.ingested.get(name, Ingested({}, {}))
        self._send(name, got.frames, got.letters)
        record = self._sources.receive(name, bundle.arrived([name], bundle.times[name]), bundle.started)
        turn = SourceTurn(got.read, got.elements, got.dead_letters, got.newest)
        return self._sources.tell(name, record, turn, self.last.sources.get(name) if self.last else None)

    def _steps(self, bundle: Bundle) -> dict[str, StageRecord]:
        """All stages take their step, each after those that it reads from."""
        reports: dict[str, Report] = {}
        stages: dict[str, StageRecord] = {}
        for name, plan in self.plan.stages.items():
            self.between()
            turn = self._step(plan, bundle, reports)
            if (here := desk()) is not None:
                here.done(name)
            reports[name] = turn.report
            stages[name] = turn.record(turn.inputs.now + self._elapsed(bundle))
        return stages

    def _step(self, plan: StagePlan, bundle: Bundle, reports: Mapping[str, Report]) -> StageTurn:
        """A stage takes its step, and what comes of it is sent on."""
        sources = {name: self.plan.sources[name].watermark for name in plan.inputs if name not in reports}
        upstream = [name for name in plan.inputs if name in reports]
        times = [bundle.times[name] for name in sources] + [self.inputs[name].now for name in upstream]
        task = StageTask(
            plan, sources, {name: [shard_name(name, 0)] for name in upstream}, started=bundle.started
        )
        told = {shard_name(name, 0): reports[name] for name in upstream}
        inputs = task.receive(self.inputs.get(plan.name, Inputs()), bundle.arrived(sources, max(times), told))
        rows = {role: self._arrived.pop(address(plan.name, role), []) for role in plan.stage.operator.inputs}
        turn = task.step(inputs, rows, self.store)
        self.inputs[plan.name] = inputs
        for routed in turn.routed.values():
            self._send(plan.name, routed.frames, routed.letters)
        return turn

    def _send(self, producer: str, frames: Mapping[str, pl.DataFrame], letters: DeadLetterCounts) -> None:
        self._letters = self._letters.plus(letters)
        for consumer, frame in frames.items():
            if len(frame):
                self._arrived.setdefault(consumer, []).append((producer, frame))
