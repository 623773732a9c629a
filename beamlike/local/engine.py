"""Runs the batches of a plan in this process: sources, then stages in order, then sinks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import attrs
import polars as pl

from beamlike.io.refreshed import Clock
from beamlike.plan.model import Plan, StagePlan
from beamlike.plan.route import address
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord
from beamlike.records.seen_keys import write_seen
from beamlike.rows.dead_letters import DeadLetterCounts
from beamlike.runtime.batch.batch_sinks import BatchSinks
from beamlike.runtime.batch.build_records import with_letters
from beamlike.runtime.batch.ingested import Ingested, SourceTurn
from beamlike.runtime.batch.origins import shard_name
from beamlike.runtime.batch.stage_task import StageTask, StageTurn
from beamlike.runtime.loop.batch_input import BatchInput
from beamlike.runtime.loop.control import BatchHooks
from beamlike.runtime.loop.prefetch import threads_for
from beamlike.runtime.run.source_turns import SourceTurns, columns_left_out
from beamlike.system.activity import current_tracker, taken_retries
from beamlike.system.threads import ALONE, Threads
from stages.progress.inputs import Inputs
from stages.progress.reports import Report
from stages.state.store import DictStore, StateStore


@attrs.define
class Engine:
    """The engine of a run in process. It has the state of the stages (`store`), and the inputs of stages and sources.

    Each stage is one shard. The stages of one level run in parallel, on `threads`. `last` is the record of the batch
    before. `drains`: the run may end before its input does. `keys`: the folder in which each stage records the keys
    that it received; None if they are not recorded.
    """

    plan: Plan
    clock: Clock
    store: StateStore = attrs.field(factory=DictStore, kw_only=True)
    inputs: dict[str, Inputs] = attrs.field(factory=dict, kw_only=True)
    last: BatchRecord | None = attrs.field(default=None, kw_only=True)
    hooks: BatchHooks = attrs.field(factory=lambda: BatchHooks(), kw_only=True)
    threads: Threads = attrs.field(default=ALONE, kw_only=True)
    drains: bool = attrs.field(default=False, kw_only=True)
    keys: str | None = attrs.field(default=None, kw_only=True)
    _arrived: dict[str, list[tuple[str, pl.DataFrame]]] = attrs.field(factory=dict, init=False)
    _sources: SourceTurns = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._sources = SourceTurns(self.plan, self.inputs)

    def run(self, batch: BatchInput, number: int, sinks: BatchSinks) -> BatchRecord:
        """Runs the batch with this number, writes its rows to the sinks, and returns its record."""
        sources = self.begin(batch)
        # At the end of input all windows may emit a pane, even if few rows arrive.
        threads = self.threads if batch.ended else threads_for(batch.ingested, self.threads)
        turns, stages = self._steps(batch, threads)
        self.hooks.between_parts()
        return self.finish(batch, number, sinks, sources=sources, turns=turns, stages=stages, threads=threads)

    def begin(self, batch: BatchInput) -> dict[str, SourceRecord]:
        """Sends the rows of all sources to their consumers. Returns the records of the sources."""
        self._arrived = {}
        return {name: self._receive(name, batch) for name in self.plan.sources}

    def waiting(self, stage: str, role: str) -> list[tuple[str, pl.DataFrame]]:
        """Returns the rows that were sent to an input of a stage or to a sink in this batch, each with its sender."""
        return self._arrived.get(address(stage, role), [])

    def finish(
        self,
        batch: BatchInput,
        number: int,
        sinks: BatchSinks,
        *,
        sources: Mapping[str, SourceRecord],
        turns: Mapping[str, StageTurn],
        stages: Mapping[str, StageRecord],
        threads: Threads = ALONE,
    ) -> BatchRecord:
        """Writes the rows of a batch to the sinks when all stages are done, and returns its record."""
        # From here on sinks may receive rows, so after a failure only a replay of this batch may follow. If nothing
        # outside of the checkpoint shows the batch, the next run may read other input instead.
        if self.hooks.observed or sinks.may_change(self._arrived):
            self.hooks.before_writing()
        arrived = {name: self._in_order(frames) for name, frames in self._arrived.items()}
        rows = sinks.write(number, arrived, threads)
        lost = DeadLetterCounts.of_all(got.lost for got in batch.ingested.values())
        ingested = [batch.ingested[name] for name in self.plan.sources if name in batch.ingested]
        made = [got.dead_letters for got in ingested] + [
            turns[name].dead_letters for name in self.plan.stages
        ]
        now = max(batch.times.values())
        finished, retries = now + self._elapsed(batch), taken_retries()
        record = BatchRecord(number, now, sources, stages, finished=finished, sinks=rows, retries=retries)
        self.last = with_letters(record, lost, DeadLetterCounts.of_all(made)).following(self.last)
        return self.last

    def _elapsed(self, batch: BatchInput) -> int:
        """Returns the duration (us) of the batch so far."""
        return self.clock() - batch.began

    def _receive(self, name: str, batch: BatchInput) -> SourceRecord:
        """Sends the rows of a source to their consumers, and returns the record of the source."""
        got = batch.ingested.get(name, Ingested({}, {}))
        self._send(name, got.frames)
        record = self._sources.receive(name, batch.arrived([name], batch.times[name]), batch.started)
        turn = attrs.evolve(
            SourceTurn.of(got),
            left_out=columns_left_out(self.plan.sources[name].source),
            changed=batch.changed.get(name, {}),
        )
        return self._sources.with_counts(
            name, record, turn, self.last.sources.get(name) if self.last else None
        )

    def _steps(
        self, batch: BatchInput, threads: Threads
    ) -> tuple[dict[str, StageTurn], dict[str, StageRecord]]:
        """Runs all stages, each after the stages that it reads. Returns their results and records."""
        turns, records, stages = dict[str, StageTurn](), dict[str, StageRecord](), self.plan.stages
        here = frozenset(name for name, plan in stages.items() if plan.python)
        for level in self.plan.levels:
            reports = {name: turn.report for name, turn in turns.items()}
            tasks = {name: partial(self._step, stages[name], batch, reports) for name in level}
            for name, turn in threads.each(tasks, here).items():
                turns[name], records[name] = turn, self._sent(name, turn, batch)
        return turns, {name: records[name] for name in stages}

    def step(
        self, name: str, batch: BatchInput, reports: Mapping[str, Report]
    ) -> tuple[StageTurn, StageRecord]:
        """Runs one stage, and sends its rows to their consumers. `reports` has those of the stages that have run."""
        turn = self._step(self.plan.stages[name], batch, reports)
        return turn, self._sent(name, turn, batch)

    def _sent(self, name: str, turn: StageTurn, batch: BatchInput) -> StageRecord:
        for routed in turn.routed.values():
            self._send(name, routed.frames)
        return turn.record(turn.inputs.now + self._elapsed(batch))

    def _step(self, plan: StagePlan, batch: BatchInput, reports: Mapping[str, Report]) -> StageTurn:
        """Runs one stage, and returns its result."""
        self.hooks.between_parts()
        sources = {name: self.plan.sources[name].watermark for name in plan.hears if name not in reports}
        upstream = [name for name in plan.inputs if name in reports]
        times = [batch.times[name] for name in sources] + [self.inputs[name].now for name in upstream]
        task = StageTask(
            plan,
            sources,
            {name: [shard_name(name, 0)] for name in upstream},
            started=batch.started,
            drains=self.drains,
            complete=self.plan.complete,
        )
        sent = {shard_name(name, 0): reports[name] for name in upstream}
        inputs = task.receive(self.inputs.get(plan.name, Inputs()), batch.arrived(sources, max(times), sent))
        rows = {role: self._arrived.pop(address(plan.name, role), []) for role in plan.stage.operator.inputs}
        turn = task.step(inputs, rows, self.store)
        self.inputs[plan.name] = inputs
        if (tracker := current_tracker()) is not None:
            tracker.done(plan.name)
        if turn.keys is not None:
            write_seen(self.keys, turn.keys)
        return turn.without_keys()

    def _send(self, producer: str, frames: Mapping[str, pl.DataFrame]) -> None:
        for consumer, frame in frames.items():
            if len(frame):
                self._arrived.setdefault(consumer, []).append((producer, frame))

    def _in_order(self, sent: list[tuple[str, pl.DataFrame]]) -> list[pl.DataFrame]:
        """Returns the frames without their senders, sorted by the order of the senders in the plan."""
        return [frame for producer in self.plan.producers for name, frame in sent if name == producer]
