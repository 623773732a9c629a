"""The operator of a ParDo with state or timers in a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import attrs
import polars as pl

from beamlike.beam.cells import CellRow, Changes, ReadChunks, StatefulParDo
from beamlike.beam.planned.job import Job, Written
from beamlike.beam.planned.steps import CHUNKS
from beamlike.beam.stateful import StatefulNode
from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.operator import StepOutput
from stages.state_tables import State


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
    """The operator of a ParDo whose host is a `JobHost`."""

    @property
    def there(self) -> JobHost:
        """The host."""
        return cast(JobHost, self.host)

    @property
    def declared(self) -> Declaration:
        choices = {"transforms": self.there.said, "lateness": self.allowed_lateness}
        return Declaration("ParDo", choices, exact=True)

    def facts(self, text: Text) -> Mapping[str, str]:
        return {"operator": f"ParDo {self.there.said}"}

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        worker = self.there.job.worker()
        with worker.lock:
            self.there.node.begin(clock.processing_time)
            done = super().step(state, arrivals, clock)
            metrics = pl.DataFrame(worker.metrics(self.there.stage), CHUNKS, orient="row")
        return attrs.evolve(done, panes=pl.concat([done.panes, metrics]))
