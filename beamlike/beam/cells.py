"""The operator of a ParDo with state or timers: a state table with a row for each key.

A row has all state and timers of its key as bytes, and the times that the engine needs: when the row is due on each
clock, and where it holds the watermark, with the timer that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, Protocol

import attrs
import polars as pl

from stages.clock import StepClock
from stages.dropped import LATE
from stages.operator import HOLD, MAIN, PENDING, Input, Operator, StepOutput
from stages.process.keyed import touched
from stages.state_tables import KeyedTable, State, StateTable, Table
from windowing.clocks import PROCESSING_TIME, WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_END
from windowing.lateness import collected_at

KEY: Final = "key"
ELEMENT: Final = "element"
CELL: Final = "cell"
BUFFER: Final = "buffer"
DATA: Final = "data"
TIMER: Final = "__timer"
"""The name of the timer that holds the watermark."""
SET_FOR: Final = "__set_for"
"""The time (us) for which that timer is set."""
DUE: Final = "__due"
DUE_BY_CLOCK: Final = "__due_by_clock"
_OUTPUT: Final = pl.Schema({BUFFER: pl.Binary(), DATA: pl.Binary()})

CellRow = tuple[bytes, bytes, str | None, int, int | None, int | None, int | None, int | None]
"""A row of the table: key, cell, holding timer, pending timers, hold, the time of the holding timer, due by watermark,
due by processing time (us)."""


class Host(Protocol):
    """The worker that processes elements and timers with the state of their keys."""

    def load(self, cell: bytes) -> None:
        """Loads the state and timers of a key."""

    def play(self, elements: list[bytes], watermark: int) -> int:
        """Processes elements, then all timers that are due. Returns the number of bundles of timers."""

    def save(self, watermark: int) -> list[CellRow]:
        """Removes all state and timers from the worker, and returns those that are still needed."""

    def emitted(self) -> list[tuple[bytes, bytes]]:
        """Removes and returns the output: buffers and encoded elements."""


@attrs.frozen(slots=False, eq=False)
class Cells(StateTable[KeyedTable]):
    """The state table of a `StatefulParDo`."""

    @cached_property
    def table(self) -> KeyedTable:
        times = dict.fromkeys((PENDING, HOLD, SET_FOR, DUE, DUE_BY_CLOCK), pl.Int64())
        return KeyedTable(
            row="timer",
            waits="is pending",
            keys=(KEY,),
            bounds=(HOLD, SET_FOR),
            schema=pl.Schema({KEY: pl.Binary(), CELL: pl.Binary(), TIMER: pl.String(), **times}),
            incoming=pl.Schema({KEY: pl.Binary()}),
            timers=pl.col(PENDING),
            holder=TIMER,
        )

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK, PROCESSING_TIME)

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: pl.col(DUE), PROCESSING_TIME: pl.col(DUE_BY_CLOCK)}


@attrs.frozen(slots=False, eq=False)
class StatefulParDo(Operator):
    """The operator that processes keyed elements and timers with a worker, and stores their state between steps.

    Attributes:
        host: The worker.
        allowed_lateness: The duration (us) after the end of a window for which its state is stored.
    """

    host: Host
    allowed_lateness: int = 0

    @cached_property
    def cells(self) -> Cells:
        """The state table."""
        return Cells()

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.cells,)

    @property
    def clocks(self) -> tuple[str, ...]:
        return self.cells.clocks

    @property
    def ordered(self) -> bool:
        return True

    @property
    def python(self) -> bool:
        return True

    @cached_property
    def inputs(self) -> Mapping[str, Input]:
        times = dict.fromkeys((EVENT_TIME, WINDOW_END), pl.Int64())
        return {MAIN: Input((KEY,), pl.Schema({KEY: pl.Binary(), ELEMENT: pl.Binary(), **times}))}

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        arrived = arrivals[MAIN]
        timely = collected_at(self.allowed_lateness) > clock.input_before
        rows, late = arrived.filter(timely), arrived.filter(~timely)
        loaded = state.load(self.cells, rows.select(KEY).unique(maintain_order=True))
        due = (pl.col(DUE) <= clock.watermark) | (pl.col(DUE_BY_CLOCK) <= clock.processing_time)
        used, other = touched(loaded.rows, loaded.incoming, due, [KEY])
        for cell in used[CELL].drop_nulls():
            self.host.load(cell)
        fired = self.host.play(rows[ELEMENT].to_list(), clock.watermark)
        saved = pl.DataFrame(self.host.save(clock.watermark), self.cells.table.schema, orient="row")
        state.write_back(self.cells, pl.concat([other, saved]))
        panes = pl.DataFrame(self.host.emitted(), _OUTPUT, orient="row")
        dropped = {LATE: len(late)} if len(late) else {}
        # Elements are never pending: each is processed at once. Only timers are, which `PENDING` counts.
        return StepOutput(panes, len(arrived), len(arrived), len(rows), dropped, fired=fired)
