"""The operators of a plan: ParDos with state or timers, and fused stages with side inputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import cast

import attrs
import polars as pl

from beamlike.beam.cells import ELEMENT, KEY, CellRow, Changes, ReadChunks, StatefulParDo
from beamlike.beam.planned.gate import Gate
from beamlike.beam.planned.job import Job, Written
from beamlike.beam.planned.steps import CHUNKS, PLACED
from beamlike.beam.stateful import StatefulNode
from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.operator import MAIN, Input, Operator, StepOutput
from stages.state_tables import State, StateTable, Table
from windowing.clocks import WATERMARK


@attrs.frozen(eq=False)
class JobHost:
    """The host of an operator: a fused stage in the process that executes a step."""

    job: Job
    stage: str
    said: str
    """The labels of its transforms."""

    @property
    def node(self) -> StatefulNode:
        """The fused stage in this process."""
        return self.job.worker().stateful(self.stage)

    def load(self, cell: bytes, read: ReadChunks) -> None:
        self.node.load(cell, read)

    def play(self, elements: list[bytes], watermark: int) -> int:
        return self.node.play(elements, watermark)

    def save(self, watermark: int) -> list[CellRow]:
        return self.node.save(watermark)

    def changes(self) -> Changes:
        return self.node.changes()

    def emitted(self) -> Written:
        return self.node.emitted()


@attrs.frozen(slots=False, eq=False)
class PlannedParDo(StatefulParDo):
    """The operator of a ParDo with state or timers whose host is a `JobHost`.

    Attributes:
        sides: The buffer of each side by role.
    """

    sides: Mapping[str, bytes] = attrs.field(factory=dict, kw_only=True)

    @property
    def there(self) -> JobHost:
        """The host."""
        return cast(JobHost, self.host)

    @cached_property
    def gate(self) -> Gate:
        """The sides."""
        schema = super().inputs[MAIN].schema
        return Gate(self.there.job, self.there.stage, self.sides, schema, (KEY,))

    @cached_property
    def inputs(self) -> Mapping[str, Input]:
        return {**super().inputs, **self.gate.inputs}

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        own = (self.gate.waiting, self.gate.content) if self.sides else ()
        return (*super().tables, *own)

    @property
    def clocks(self) -> tuple[str, ...]:
        return (*super().clocks, *self.gate.clocks)

    @property
    def declared(self) -> Declaration:
        choices = {"transforms": self.there.said, "lateness": self.allowed_lateness, "sides": [*self.sides]}
        return Declaration("ParDo", choices, exact=True)

    def facts(self, text: Text) -> Mapping[str, str]:
        return {"operator": f"ParDo {self.there.said}"}

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        worker = self.there.job.worker()
        with worker.lock:
            self.there.node.begin(clock.processing_time)
            done = self._step(state, arrivals, clock)
            metrics = pl.DataFrame(worker.metrics(self.there.stage), CHUNKS, orient="row")
        return attrs.evolve(done, panes=pl.concat([done.panes, metrics]))

    def _step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        if not self.sides:
            return super().step(state, arrivals, clock)
        timely, late = self.timely(arrivals[MAIN], clock)
        rows, waiting = self.gate.admitted(state, arrivals, timely, clock)
        # While elements wait, no timer fires that they may still change.
        reached = min(clock.watermark, clock.input_before) if waiting else clock.watermark
        return self.processed(state, rows, late, clock, reached)


@attrs.frozen(slots=False, eq=False)
class SidesParDo(Operator):
    """The operator of a fused stage without state that reads sides. Its elements are never late."""

    host: JobHost
    sides: Mapping[str, bytes]

    @cached_property
    def gate(self) -> Gate:
        """The sides."""
        return Gate(self.host.job, self.host.stage, self.sides, PLACED)

    @cached_property
    def inputs(self) -> Mapping[str, Input]:
        return {MAIN: Input((), PLACED, "anywhere"), **self.gate.inputs}

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.gate.waiting, self.gate.content)

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK, *self.gate.clocks)

    @property
    def python(self) -> bool:
        return True

    @property
    def declared(self) -> Declaration:
        return Declaration("ParDo", {"transforms": self.host.said, "sides": [*self.sides]}, exact=True)

    def facts(self, text: Text) -> Mapping[str, str]:
        return {"operator": f"ParDo {self.host.said}"}

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        worker, arrived = self.host.job.worker(), len(arrivals[MAIN])
        with worker.lock:
            rows, _ = self.gate.admitted(state, arrivals, arrivals[MAIN], clock)
            (name,) = worker.nodes[self.host.stage].inputs
            chunks = rows[ELEMENT].to_list()
            written = worker.process(self.host.stage, name, chunks) if chunks else []
        return StepOutput(pl.DataFrame(written, CHUNKS, orient="row"), arrived, arrived, len(rows))
