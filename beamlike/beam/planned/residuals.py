"""The operator of a splittable DoFn in a plan. The rest of its input is a row that is due by processing time.

elements that arrive, residuals that are due  --bundle-->  output, and new residuals
a residual   element and restriction   due                    hold
             numbers, [3, 10)          when it is read again  watermark of the restriction
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import attrs
import polars as pl

from beamlike.beam.cells import DUE, ELEMENT
from beamlike.beam.nodes import Residual
from beamlike.beam.planned.gate import Gate
from beamlike.beam.planned.job import Worker
from beamlike.beam.planned.operators import JobHost
from beamlike.beam.planned.steps import CHUNKS, PLACED
from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.operator import HOLD, MAIN, PENDING, Input, Operator, StepOutput
from stages.state_tables import KeyedTable, State, StateTable, Table
from windowing.clocks import PROCESSING_TIME, WATERMARK, Times

_ROWS = pl.Schema({**PLACED, **dict.fromkeys((DUE, PENDING, HOLD), pl.Int64())})


@attrs.frozen(slots=False, eq=False)
class Residuals(StateTable[KeyedTable]):
    """The table of the residuals of a splittable DoFn. Those that are not due are few, and in one bucket."""

    clocks = (WATERMARK, PROCESSING_TIME)

    @cached_property
    def table(self) -> KeyedTable:
        return KeyedTable(
            row="residual",
            waits="waits to be processed again",
            keys=(),
            bounds=(HOLD, HOLD),
            schema=_ROWS,
            incoming=_ROWS,
            said=Residual.SAID,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: pl.lit(None, pl.Int64), PROCESSING_TIME: pl.col(DUE)}


@attrs.frozen(slots=False, eq=False)
class SplittableParDo(Operator):
    """The operator of a fused stage that begins with a splittable DoFn. Its elements are never late.

    Attributes:
        host: The fused stage.
        sides: The buffer of each side by role.
        simulated: True if a TestStream sets the processing time, at whose end the run ends. A step then waits until
            nothing is left of its input.
    """

    host: JobHost
    sides: Mapping[str, bytes]
    simulated: bool

    @cached_property
    def gate(self) -> Gate:
        """The sides."""
        return Gate(self.host.job, self.host.stage, self.sides, PLACED)

    @cached_property
    def residuals(self) -> Residuals:
        """The table of residuals."""
        return Residuals()

    @cached_property
    def inputs(self) -> Mapping[str, Input]:
        return {MAIN: Input((ELEMENT,), PLACED), **self.gate.inputs}

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.residuals, *((self.gate.waiting, self.gate.content) if self.sides else ()))

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK, PROCESSING_TIME, *self.gate.clocks)

    @property
    def python(self) -> bool:
        return True

    @property
    def declared(self) -> Declaration:
        choices = {"transforms": self.host.said, "sides": [*self.sides]}
        return Declaration("splittable ParDo", choices, exact=True)

    def facts(self, text: Text) -> Mapping[str, str]:
        return {"operator": f"splittable ParDo {self.host.said}"}

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        worker, now = self.host.job.worker(), clock.processing_time
        arrived = len(arrivals[MAIN])
        with worker.lock:
            due, later = self._due(state, arrivals[MAIN], now)
            rows = due.select(list(PLACED))
            if self.sides:
                rows, _ = self.gate.admitted(state, arrivals, rows, clock)
            written, left = worker.advance(
                self.host.stage,
                rows[ELEMENT].to_list(),
                None if self.simulated else now,
                clock.watermarks.output,
            )
            state.write_back(self.residuals, pl.concat([later, self._rows(worker, left)]))
        # A residual is not pending: its element has been processed, and waits only to be continued.
        emitted = len(rows) - (len(due) - arrived)
        return StepOutput(pl.DataFrame(written, CHUNKS, orient="row"), arrived, arrived, emitted)

    def _due(self, state: State, arrived: pl.DataFrame, now: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Returns the elements that arrive with the residuals that are due, and the other loaded residuals."""
        never = pl.lit(None, pl.Int64)
        fresh = arrived.with_columns(
            pl.lit(now, pl.Int64).alias(DUE), pl.lit(0, pl.Int64).alias(PENDING), never.alias(HOLD)
        )
        loaded = state.load(self.residuals, fresh.select(list(_ROWS)))
        pool = pl.concat([loaded.rows, loaded.incoming])
        return pool.filter(pl.col(DUE) <= now), pool.filter(pl.col(DUE) > now)

    def _rows(self, worker: Worker, left: Iterable[Residual]) -> pl.DataFrame:
        """Returns residuals as rows of the table."""
        rows = [
            (*placed, each.due, 0, each.hold)
            for each in left
            for placed in worker.placed(self.host.stage, [each.element])
        ]
        return pl.DataFrame(rows, _ROWS, orient="row")
