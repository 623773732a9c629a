"""The operators of a plan: ParDos with state or timers, and fused stages with side inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import attrs
import polars as pl

from beamlike.beam.cells import CellRow, Changes, ReadChunks, StatefulParDo
from beamlike.beam.planned.job import Job, Written
from beamlike.beam.planned.steps import CHUNKS
from beamlike.beam.sided import SidedNode
from beamlike.beam.sides import Bounds
from beamlike.beam.stateful import StatefulNode
from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.operator import StepOutput
from stages.sides.contents import SideContents
from stages.sides.operator import sides_facts
from stages.state_tables import State


@attrs.frozen(eq=False)
class JobHost:
    """The host of an operator: a fused stage in the process that executes a step."""

    job: Job
    stage: str

    @property
    def node(self) -> StatefulNode:
        """The fused stage with state or timers in this process."""
        return self.job.worker().stateful(self.stage)

    @property
    def sided(self) -> StatefulNode | SidedNode:
        """The fused stage with sides in this process."""
        return self.job.worker().sided(self.stage)

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

    def window_read(self, side: str, window: bytes) -> Bounds:
        return self.sided.window_read(side, window)

    @contextmanager
    def reading(self, contents: SideContents) -> Iterator[None]:
        with self.job.worker().lock, self.sided.reading(contents):
            yield

    def process(self, chunks: list[bytes]) -> Written:
        return self.job.worker().process(self.stage, self.sided.name, chunks)


@attrs.frozen(slots=False, eq=False)
class PlannedParDo(StatefulParDo):
    """The operator of a ParDo with state or timers whose host is a `JobHost`."""

    @property
    def there(self) -> JobHost:
        """The host."""
        return cast(JobHost, self.host)

    @property
    def declared(self) -> Declaration:
        choices = {"transforms": self.title, "lateness": self.allowed_lateness, "sides": self.gate.choices}
        return Declaration("ParDo", choices, exact=True)

    def facts(self, text: Text) -> Mapping[str, str]:
        sides = sides_facts(self.sides, text) if self.sides else {}
        return {"operator": f"ParDo {self.title}", **sides}

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        worker = self.there.job.worker()
        with worker.lock:
            self.there.node.begin(clock.processing_time)
            done = super().step(state, arrivals, clock)
            metrics = pl.DataFrame(worker.metrics(self.there.stage), CHUNKS, orient="row")
        return attrs.evolve(done, panes=pl.concat([done.panes, metrics]))
