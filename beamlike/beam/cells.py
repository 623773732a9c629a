"""The operator of a ParDo with state or timers: a row for each key, and the chunks of its large bags.

A row has the state and timers of its key as bytes, and the times that the engine needs: when the row is due on each
clock, and where it holds the watermark, with the timer that holds it. If a bag is large, most of its content is in
chunks. They are read when the worker reads the bag, and written once:

    key   cell                                        key   bag      number   data
    red   bag: 2 chunks, then values 9 10; timers     red   values   0        values 1 2 3 4
    blue  bag: values 1 2                             red   values   1        values 5 6 7 8
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import Final, Protocol

import attrs
import polars as pl

from stages.clock import StepClock
from stages.dropped import LATE
from stages.operator import HOLD, MAIN, PENDING, Input, Operator, StepOutput
from stages.process.keyed import touched
from stages.sides.contents import SideContents
from stages.sides.declarations import Side
from stages.sides.gate import SideGate
from stages.state_tables import KeyedTable, Loaded, State, StateTable, Table
from windowing.clocks import PROCESSING_TIME, WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_END
from windowing.lateness import collected_at
from windowing.time import MAX_TIME, MIN_TIME

KEY: Final = "key"
WINDOW: Final = "window"
"""The encoded window of an element, from which the windows of side inputs that it reads are found."""
ELEMENT: Final = "element"
CELL: Final = "cell"
BAG: Final = "bag"
NUMBER: Final = "number"
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


ReadChunks = Callable[[bytes, bytes], list[bytes]]
"""A function that returns the chunks of a bag, in order: `(key, bag) -> chunks`."""


@attrs.frozen
class Changes:
    """The changes of the chunks of bags.

    Attributes:
        written: New chunks: key, bag, number and content.
        removed: The bags whose earlier chunks must be removed: key and bag.
    """

    written: list[tuple[bytes, bytes, int, bytes]] = attrs.field(factory=list)
    removed: list[tuple[bytes, bytes]] = attrs.field(factory=list)


class Host(Protocol):
    """The worker that processes elements and timers with the state of their keys."""

    def load(self, cell: bytes, read: ReadChunks) -> None:
        """Loads the state and timers of a key. Until `save` is called, `read` can be called for its bags."""

    def play(self, elements: list[bytes], watermark: int) -> int:
        """Processes elements, then all timers that are due. Returns the number of bundles of timers."""

    def save(self, watermark: int) -> list[CellRow]:
        """Removes all state and timers from the worker, and returns those that are still needed."""

    def changes(self) -> Changes:
        """Removes and returns the changes of the chunks."""

    def emitted(self) -> list[tuple[bytes, bytes]]:
        """Removes and returns the output: buffers and encoded elements."""

    def reading(self, contents: SideContents) -> AbstractContextManager[None]:
        """Lets the worker read this content of side inputs during a `with` block."""


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

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows  # arrivals never wait


@attrs.frozen(slots=False, eq=False)
class Chunks(StateTable[KeyedTable]):
    """The table of the chunks of large bags. A chunk is never due."""

    clocks = (WATERMARK,)

    @cached_property
    def table(self) -> KeyedTable:
        own = {KEY: pl.Binary(), BAG: pl.Binary(), NUMBER: pl.Int64(), DATA: pl.Binary()}
        return KeyedTable(
            name="chunks",
            row="chunk",
            waits="is stored",
            keys=(KEY,),
            bounds=(NUMBER, NUMBER),
            schema=pl.Schema({**own, PENDING: pl.Int64(), HOLD: pl.Int64()}),
            incoming=pl.Schema({KEY: pl.Binary()}),
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: pl.lit(None, pl.Int64)}

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows  # arrivals never wait

    def read(self, state: State, key: bytes, bag: bytes) -> list[bytes]:
        """Returns the chunks of a bag, in order."""
        keys = pl.DataFrame({KEY: [key]}, self.table.incoming)
        rows = state.scan(self, (MIN_TIME, MAX_TIME), keys)
        return rows.filter(pl.col(BAG) == pl.lit(bag)).sort(NUMBER)[DATA].to_list()

    def apply(self, state: State, changes: Changes) -> None:
        """Writes and removes chunks."""
        if not changes.written and not changes.removed:
            return
        nothing = {PENDING: pl.lit(0, pl.Int64), HOLD: pl.lit(None, pl.Int64)}
        names = (KEY, BAG, NUMBER, DATA)
        schema = {name: self.table.schema[name] for name in names}
        written = pl.DataFrame(changes.written, schema, orient="row").with_columns(**nothing)
        removed = pl.DataFrame(changes.removed, {name: schema[name] for name in (KEY, BAG)}, orient="row")
        changed = pl.concat([written.select(KEY), removed.select(KEY)]).unique(maintain_order=True)
        loaded = state.load(self, changed).rows
        state.write_back(self, pl.concat([loaded.join(removed, on=[KEY, BAG], how="anti"), written]))


@attrs.frozen(slots=False, eq=False)
class StatefulParDo(Operator):
    """The operator that processes keyed elements and timers with a worker, and stores their state between steps.

    Attributes:
        host: The worker.
        allowed_lateness: The duration (us) after the end of a window for which its state is stored.
        sides: The side inputs.
        side_lateness: The duration (us) after the end of a window for which its content of sides is stored.
        title: The labels of the transforms.
    """

    host: Host
    allowed_lateness: int = 0
    sides: tuple[Side, ...] = ()
    side_lateness: int = 0
    title: str = ""

    @cached_property
    def cells(self) -> Cells:
        """The state table."""
        return Cells()

    @cached_property
    def chunks(self) -> Chunks:
        """The table of the chunks of large bags."""
        return Chunks()

    @cached_property
    def gate(self) -> SideGate:
        """The sides, and the elements that wait for them."""
        return SideGate(self._elements, self.sides, self.side_lateness, self.title, (KEY,), WINDOW)

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.cells, self.chunks, *(self.gate.tables if self.sides else ()))

    @property
    def clocks(self) -> tuple[str, ...]:
        return (*self.cells.clocks, *self.gate.clocks)

    @property
    def ordered(self) -> bool:
        return True

    @property
    def python(self) -> bool:
        return True

    @cached_property
    def inputs(self) -> Mapping[str, Input]:
        return {MAIN: Input((KEY,), self._elements), **self.gate.inputs}

    @cached_property
    def _elements(self) -> pl.Schema:
        times = dict.fromkeys((EVENT_TIME, WINDOW_END), pl.Int64())
        window = {WINDOW: pl.Binary()} if self.sides else {}
        return pl.Schema({KEY: pl.Binary(), ELEMENT: pl.Binary(), **times, **window})

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        arrived = arrivals[MAIN]
        timely = collected_at(self.allowed_lateness) > clock.input_before
        rows, late = arrived.filter(timely), len(arrived.filter(~timely))
        if not self.sides:
            done = self._processed(state, rows, clock)
        else:
            # No element of a window is processed before the window is ready on all sides, so there is no timer of it.
            contents = self.gate.updated(state, arrivals, clock)
            admitted = [
                each.select(rows.columns) for each in self.gate.admitted(state, rows, contents, clock)
            ]
            with self.host.reading(contents):
                done = self._processed(state, pl.concat(admitted), clock)
        dropped = {LATE: late} if late else {}
        return attrs.evolve(done, elements=len(arrived), placed=len(arrived), dropped=dropped)

    def _processed(self, state: State, rows: pl.DataFrame, clock: StepClock) -> StepOutput:
        """Processes elements, and then the timers that are due."""
        watermark = clock.watermark
        loaded = state.load(self.cells, rows.select(KEY).unique(maintain_order=True))
        due = (pl.col(DUE) <= watermark) | (pl.col(DUE_BY_CLOCK) <= clock.processing_time)
        used, other = touched(loaded.rows, loaded.incoming, due, [KEY])
        for cell in used[CELL].drop_nulls():
            self.host.load(cell, partial(self.chunks.read, state))
        fired = self.host.play(rows[ELEMENT].to_list(), watermark)
        saved = pl.DataFrame(self.host.save(watermark), self.cells.table.schema, orient="row")
        state.write_back(self.cells, pl.concat([other, saved]))
        self.chunks.apply(state, self.host.changes())
        panes = pl.DataFrame(self.host.emitted(), _OUTPUT, orient="row")
        return StepOutput(panes, len(rows), len(rows), len(rows), fired=fired)
