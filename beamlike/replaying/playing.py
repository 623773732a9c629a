"""Plays the batches of an earlier run in this process, the last one stage by stage."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import polars as pl

from beamlike.local.engine import Engine
from beamlike.plan.model import Plan
from beamlike.plan.stepped import steps_of
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord
from beamlike.replaying.inputs import input_again
from beamlike.replaying.scratch import Scratch, scratch_sinks
from beamlike.runtime.batch.batch_sinks import BatchSinks
from beamlike.runtime.batch.kept_inputs import load_inputs
from beamlike.runtime.batch.stage_task import StageTurn
from beamlike.runtime.loop.batch_input import BatchInput
from beamlike.runtime.recorded.batches import RecordedBatch
from stages.progress.inputs import Inputs
from stages.progress.reports import Report
from stages.state.store import DictStore


@attrs.define(eq=False)
class Player:
    """A replay of consecutive batches. The batch that is played stage by stage has the stages in `left` still to run.

    Processing time is that of the run: it stands still within a batch.
    """

    plan: Plan
    engine: Engine
    sinks: BatchSinks
    _inputs: Callable[[RecordedBatch], BatchInput]
    _reports: Callable[[RecordedBatch], Mapping[str, Report]] | None
    _now: list[int]
    batch: RecordedBatch | None = attrs.field(default=None, init=False)
    left: deque[str] = attrs.field(factory=deque, init=False)
    turns: dict[str, StageTurn] = attrs.field(factory=dict, init=False)
    record: BatchRecord | None = attrs.field(default=None, init=False)
    _input: BatchInput | None = attrs.field(default=None, init=False)
    _sources: dict[str, SourceRecord] = attrs.field(factory=dict, init=False)
    _stages: dict[str, StageRecord] = attrs.field(factory=dict, init=False)

    @classmethod
    def of(
        cls,
        plan: Plan,
        manifest: Mapping[str, Any],
        store: DictStore,
        last: BatchRecord | None,
        *,
        inputs: Callable[[RecordedBatch], BatchInput] | None = None,
        reports: Callable[[RecordedBatch], Mapping[str, Report]] | None = None,
    ) -> Player:
        """Creates a player that begins with this state. `last` is the record of the batch before.

        `inputs` returns the input of a batch, by default as it is read again. `reports` returns the reports of the
        stages in a batch, if they are not those of the stages that are played.
        """
        now = [0]
        known = {name: load_inputs(name, store) for name in plan.producers}
        asked = (manifest["draining"] or manifest["drained"]) and steps_of(plan) is None
        engine = Engine(
            plan,
            lambda: now[0],
            store=store,
            inputs={name: inputs for name, inputs in known.items() if inputs != Inputs()},
            last=last,
            drains=plan.drains(asked=asked),
        )
        sinks = scratch_sinks(plan, manifest["run"])
        return cls(plan, engine, sinks, inputs or partial(input_again, plan), reports, now)

    def play(self, batch: RecordedBatch) -> BatchRecord:
        """Plays a batch completely."""
        self.begin(batch)
        while self.left:
            self.step()
        return self.finish()

    def begin(self, batch: RecordedBatch) -> None:
        """Reads the input of a batch. Raises `InputGone` if that is not possible."""
        self._now[0] = batch.now
        self.batch, self.record, self.turns, self._stages = batch, None, {}, {}
        self._input = self._inputs(batch)
        self.left = deque(name for level in self.plan.levels for name in level)
        self._sources = self.engine.begin(self._input)

    def step(self) -> str:
        """Runs the next stage, and returns its name."""
        assert self._input is not None
        assert self.batch is not None
        name = self.left[0]
        reports = {other: turn.report for other, turn in self.turns.items()}
        if self._reports is not None:
            reports |= {other: one for other, one in self._reports(self.batch).items() if other in reports}
        self.turns[name], self._stages[name] = self.engine.step(name, self._input, reports)
        self.left.popleft()
        return name

    def finish(self) -> BatchRecord:
        """Passes the rows of the batch to the sinks in memory, and returns its record."""
        assert self._input is not None
        assert self.batch is not None
        self.record = self.engine.finish(
            self._input,
            self.batch.number,
            self.sinks,
            sources=self._sources,
            turns=self.turns,
            stages={name: self._stages[name] for name in self.plan.stages},
        )
        return self.record

    @property
    def summaries(self) -> dict[str, dict[str, Any]]:
        """The event times that each source reported in the batch, as its strategy summarized them."""
        assert self._input is not None
        return {name: dict(got.summary) for name, got in self._input.ingested.items()}

    def written(self, sink: str, batch: int) -> pl.DataFrame | None:
        """Returns the rows that a batch has for a sink; None if it has none."""
        scratch = self.sinks.sinks[sink]
        assert isinstance(scratch, Scratch)
        return scratch.frames.get(batch)
