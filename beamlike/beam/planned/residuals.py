"""The operator of a splittable DoFn in a plan. The rest of its input is a row that is due by processing time.

elements that arrive, residuals that are due  --bundle-->  output, and new residuals
a residual   element and restriction   due                    hold
             numbers, [3, 10)          when it is read again  watermark of the restriction
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from typing import Final, cast

import attrs
import polars as pl

from beamlike.beam.cells import DUE, ELEMENT
from beamlike.beam.nodes import Residual
from beamlike.beam.planned.operators import JobHost
from beamlike.beam.planned.steps import CHUNKS
from beamlike.beam.sided import COUNT, PLACED, SidesParDo
from stages.clock import StepClock
from stages.declared import Declaration
from stages.dropped import LATE
from stages.operator import HOLD, MAIN, PENDING, Input, StepOutput
from stages.state_tables import KeyedTable, State, StateTable, Table
from windowing.clocks import PROCESSING_TIME, WATERMARK, Times
from windowing.time import MAX_TIME, MIN_TIME

SINCE: Final = "__since"
"""The watermark (us) before the step in which an element arrived. It may read sides as they were then."""
_ROWS: Final = pl.Schema({**PLACED, **dict.fromkeys((SINCE, DUE, PENDING, HOLD), pl.Int64())})


@attrs.frozen(slots=False, eq=False)
class Residuals(StateTable[KeyedTable]):
    """The table of the residuals of a splittable DoFn. Those that are not due are few, and in one bucket."""

    clocks = (WATERMARK, PROCESSING_TIME)

    @cached_property
    def table(self) -> KeyedTable:
        return KeyedTable(
            name="residuals",
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
class SplittableParDo(SidesParDo):
    """The operator of a fused stage that begins with a splittable DoFn, with or without sides.

    Attributes:
        simulated: True if a TestStream sets the processing time, at whose end the run ends. A step then waits until
            nothing is left of its input.
    """

    simulated: bool = attrs.field(kw_only=True)

    @cached_property
    def residuals(self) -> Residuals:
        """The table of residuals."""
        return Residuals()

    @cached_property
    def inputs(self) -> Mapping[str, Input]:
        # Restrictions are spread over the shards.
        return {**super().inputs, MAIN: Input((ELEMENT,), PLACED)}

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.residuals, *(super().tables if self.sides else ()))

    @property
    def clocks(self) -> tuple[str, ...]:
        return (*super().clocks, PROCESSING_TIME)

    @property
    def declared(self) -> Declaration:
        choices = {"transforms": self.title, "sides": self.gate.choices}
        return Declaration("splittable ParDo", choices, exact=True)

    @property
    def there(self) -> JobHost:
        """The host."""
        return cast(JobHost, self.host)

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        worker, arrived = self.there.job.worker(), arrivals[MAIN]
        held = (
            _held(clock, state.scan(self.residuals, (MIN_TIME, MAX_TIME)), arrived) if self.sides else clock
        )
        due, later = self._due(state, arrived, clock)
        elements, late = due[ELEMENT].to_list(), 0
        with worker.lock, ExitStack() as reading:
            if self.sides:
                elements, late = self._admitted(state, arrivals, due, held, reading)
            now = None if self.simulated else clock.processing_time
            written, left = worker.advance(self.there.stage, elements, now, clock.watermarks.output)
            since = min([clock.input_before, *due[SINCE]])
            rest = [
                (*row, since, each.due, 0, each.hold)
                for each in left
                for row in worker.divided(self.there.stage, [each.element])
            ]
        state.write_back(self.residuals, pl.concat([later, pl.DataFrame(rest, _ROWS, orient="row")]))
        # A residual is not pending: its element has been processed, and waits only to be continued.
        emitted = len(elements) - (len(due) - len(arrived))
        panes = pl.DataFrame(written, CHUNKS, orient="row")
        return StepOutput(panes, len(arrived), len(arrived), emitted, {LATE: late} if late else {})

    def _due(
        self, state: State, arrived: pl.DataFrame, clock: StepClock
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Returns the residuals that are due, with the elements that arrive, and the other loaded residuals."""
        columns = {SINCE: clock.input_before, DUE: clock.processing_time, PENDING: 0, HOLD: None}
        fresh = arrived.with_columns(pl.lit(value, pl.Int64).alias(name) for name, value in columns.items())
        loaded = state.load(self.residuals, fresh.select(list(_ROWS)))
        pool, is_due = pl.concat([loaded.rows, loaded.incoming]), pl.col(DUE) <= clock.processing_time
        return pool.filter(is_due), pool.filter(~is_due)

    def _admitted(
        self,
        state: State,
        arrivals: Mapping[str, pl.DataFrame],
        due: pl.DataFrame,
        clock: StepClock,
        reading: ExitStack,
    ) -> tuple[list[bytes], int]:
        """Lets the worker read the sides until `reading` ends.

        Returns the elements that need not wait for them, and the number of those for which they are gone.
        """
        contents = self.gate.updated(state, arrivals, clock)
        gone = self.gate.is_gone(due, clock)
        admitted = self.gate.admitted(state, due.filter(~gone)[list(PLACED)], contents, clock)
        reading.enter_context(self.host.reading(contents))
        return [each for part in admitted for each in part[ELEMENT]], int(due.filter(gone)[COUNT].sum())


def _held(clock: StepClock, waiting: pl.DataFrame, arrived: pl.DataFrame) -> StepClock:
    """Returns the clock of the sides. It stays where elements have arrived whose rest may read a side again."""
    known = [*waiting[SINCE], *([clock.input_before] if len(arrived) else [])]
    if not known:
        return clock
    before, now = (
        times.with_watermark(min(times.watermark, *known)) for times in (clock.previous, clock.now)
    )
    return attrs.evolve(clock, previous=before, now=now)
