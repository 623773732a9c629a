"""Runs the batches of a plan in this process: sources, then stages in order, then sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import attrs
import polars as pl

from beamlike.local.bundle import Bundle, Clock
from beamlike.local.read_ahead import threads_for
from beamlike.plan.model import Plan, StagePlan
from beamlike.plan.route import address
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord
from beamlike.rows.dead_letters import DeadLetterCounts
from beamlike.runtime.batch_sinks import BatchSinks
from beamlike.runtime.build_records import with_letters
from beamlike.runtime.ingest import Ingested
from beamlike.runtime.origins import shard_name
from beamlike.runtime.source_turns import SourceTurn, SourceTurns, columns_left_out
from beamlike.runtime.stage_task import StageTask, StageTurn
from beamlike.system.in_hand import desk
from beamlike.system.threads import ALONE, Threads
from stages.progress.inputs import Inputs
from stages.progress.reports import Report
from stages.state.store import DictStore, StateStore


@attrs.define
class Engine:
    """The state of a run in process: what its stages keep in `store`, and what they and its sources know (`inputs`).

    Each stage is one shard; those of a level take their steps at once, on `threads`. `last` is the record of the batch
    before. `between` is called between two parts of a batch, and may raise, to give it up; `noted` before anything of
    it is written, to wait until it is on disk what it takes. `drains`: the end of the run may come before that of its
    input.
    """

    plan: Plan
    clock: Clock
    store: StateStore = attrs.field(factory=DictStore)
    inputs: dict[str, Inputs] = attrs.field(factory=dict)
    last: BatchRecord | None = None
    between: Callable[[], object] = lambda: None
    noted: Callable[[], object] = lambda: None
    threads: Threads = ALONE
    drains: bool = False
    _arrived: dict[str, list[tuple[str, pl.DataFrame]]] = attrs.field(factory=dict, init=False)
    _sources: SourceTurns = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._sources = SourceTurns(self.plan, self.inputs)

    def take(self, bundle: Bundle, number: int, sinks: BatchSinks) -> BatchRecord:
        """The batch of this number, of which these sinks get what is for them."""
        self._arrived = {}
        sources = {name: self._receive(name, bundle) for name in self.plan.sources}
        # With the end of input all windows may fire, however little comes.
        threads = self.threads if bundle.ended else threads_for(bundle.ingested, self.threads)
        turns, stages = self._steps(bundle, threads)
        self.between()
        self.noted()
        arrived = {name: self._in_order(frames) for name, frames in self._arrived.items()}
        rows = sinks.write(number, arrived, threads)
        lost = DeadLetterCounts.of_all(got.lost for got in bundle.ingested.values())
        ingested = [bundle.ingested[name] for name in self.plan.sources if name in bundle.ingested]
        letters = [got.letters for got in ingested] + [turns[name].letters for name in self.plan.stages]
        now = max(bundle.times.values())
        record = BatchRecord(number, now, sources, stages, now + self._elapsed(bundle), rows)
        self.last = with_letters(record, lost, DeadLetterCounts.of_all(letters)).following(self.last)
        return self.last

    def _elapsed(self, bundle: Bundle) -> int:
        """How long (us) the batch has taken so far."""
        return self.clock() - bundle.began

    def _receive(self, name: str, bundle: Bundle) -> SourceRecord:
        """What the bundle has of a source is sent on."""
        got = bundle.ingested.get(name, Ingested({}, {}))
        self._send(name, got.frames)
        record = self._sources.receive(name, bundle.arrived([name], bundle.times[name]), bundle.started)
        left_out, changed = columns_left_out(self.plan.sources[name].source), bundle.changed.get(name, {})
        turn = SourceTurn(got.read, got.elements, got.dead_letters, got.newest, left_out, changed)
        return self._sources.tell(name, record, turn, self.last.sources.get(name) if self.last else None)

    def _steps(self, bundle: Bundle, threads: Threads) -> tuple[dict[str, StageTurn], dict[str, StageRecord]]:
        """All stages take their step, each after those that it reads from."""
        turns, records, stages = dict[str, StageTurn](), dict[str, StageRecord](), self.plan.stages
        here = frozenset(name for name, plan in stages.items() if plan.python)
        for level in self.plan.levels:
            reports = {name: turn.report for name, turn in turns.items()}
            tasks = {name: partial(self._step, stages[name], bundle, reports) for name in level}
            for name, turn in threads.each(tasks, here).items():
                for routed in turn.routed.values():
                    self._send(name, routed.frames)
                turns[name] = turn
                records[name] = turn.record(turn.inputs.now + self._elapsed(bundle))
        return turns, {name: records[name] for name in stages}

    def _step(self, plan: StagePlan, bundle: Bundle, reports: Mapping[str, Report]) -> StageTurn:
        """A stage takes its step."""
        self.between()
        sources = {name: self.plan.sources[name].watermark for name in plan.inputs if name not in reports}
        upstream = [name for name in plan.inputs if name in reports]
        times = [bundle.times[name] for name in sources] + [self.inputs[name].now for name in upstream]
        task = StageTask(
            plan,
            sources,
            {name: [shard_name(name, 0)] for name in upstream},
            started=bundle.started,
            drains=self.drains,
        )
        told = {shard_name(name, 0): reports[name] for name in upstream}
        inputs = task.receive(self.inputs.get(plan.name, Inputs()), bundle.arrived(sources, max(times), told))
        rows = {role: self._arrived.pop(address(plan.name, role), []) for role in plan.stage.operator.inputs}
        turn = task.step(inputs, rows, self.store)
        self.inputs[plan.name] = inputs
        if (here := desk()) is not None:
            here.done(plan.name)
        return turn

    def _send(self, producer: str, frames: Mapping[str, pl.DataFrame]) -> None:
        for consumer, frame in frames.items():
            if len(frame):
                self._arrived.setdefault(consumer, []).append((producer, frame))

    def _in_order(self, sent: list[tuple[str, pl.DataFrame]]) -> list[pl.DataFrame]:
        """By who sent it, in the order of the plan."""
        return [frame for producer in self.plan.producers for name, frame in sent if name == producer]
