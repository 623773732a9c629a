"""What all operators over keys and windows have in common: rows are placed, judged, and put in the order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import ClassVar, Final, Literal

import attrs
import polars as pl

from stages.declared import Declaration
from stages.dropped import LATE, NO_WINDOW, late_schema, with_reason
from stages.operator import HOLD, MAIN, PENDING, Given, Input, Operator, Refused, State, StateTable
from stages.progress.watermarks import Times, Watermarks
from stages.waiting import NUMBER, Waiting
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.lateness import collected_at, in_time
from windowing.placing import place
from windowing.time import MAX_TIME, Microseconds
from windowing.triggers.base import PROCESSING_TIME, WATERMARK
from windowing.windowing import Windowing

Order = Literal["time", "arrival"]

TypeName = Callable[[pl.DataType], str]
"""A type in words."""

CELL: Final = "__cell"
"""Of rows that are played: the number of their key and window."""
TURN: Final = "__turn"
"""Of rows that are played: 0 for those that are played at once, 1 for those in the order of time."""


@attrs.frozen
class Clocks:
    """The clocks of a step: the input watermark `before` it and `now`, and the processing time, in microseconds."""

    before: int
    now: int
    processing_time: int

    @property
    def at_end(self) -> bool:
        """Whether the input is over."""
        return self.now >= MAX_TIME

    @property
    def times(self) -> dict[str, int]:
        """Where they stand now, by name."""
        return {WATERMARK: self.now, PROCESSING_TIME: self.processing_time}


@attrs.frozen
class Result:
    """The `panes` of rows that are played, what was `refused`, how many rows of that, and how many timers `fired`."""

    panes: pl.DataFrame
    refused: tuple[Refused, ...] = ()
    fired: int = 0
    refused_rows: int = 0


@attrs.frozen(slots=False, eq=False)
class Keyed(Operator):
    """Plays the rows of each key and window.

    `title` says what it is, for people. `schema` has the columns of rows, `keys` among them. `order="time"`: rows wait
    for the watermark and are played in order of time; by "arrival" they are played at once. `late`: somebody wants to
    see what is dropped. `retracted`: rows that take back others come, too.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    windowing: Windowing
    order: Order = attrs.field(kw_only=True)
    title: str = attrs.field(kw_only=True)
    late: bool = attrs.field(default=False, kw_only=True)
    retracted: bool = attrs.field(default=False, kw_only=True)

    @property
    def id(self) -> list[str]:
        """The columns that tell a key and window from the others."""
        return [*self.keys, *WINDOW_COLUMNS]

    @property
    def ordered(self) -> bool:
        """Rows of one time are played in the order in which they come."""
        return True

    @property
    def clocks(self) -> tuple[str, ...]:
        """Those for which it must be looked at even if nothing comes."""
        return (WATERMARK,)

    @cached_property
    def inputs(self) -> dict[str, Input]:
        """The rows, with or without their windows."""
        times = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS), pl.Int64())
        return {MAIN: Input(self.keys, pl.Schema({**self.row, **times}))}

    @property
    def cells(self) -> StateTable:
        """What is kept of each key and window."""
        raise NotImplementedError

    @cached_property
    def waiting(self) -> Waiting:
        """The rows that wait."""
        return Waiting(self.keys, self.row)

    @property
    def tables(self) -> tuple[StateTable, ...]:
        """Cells, and in order of time the rows that wait."""
        return (self.cells, self.waiting) if self.order == "time" else (self.cells,)

    @property
    def row(self) -> pl.Schema:
        """The columns of a row, and whether it takes back another."""
        taken_back = {PANE_RETRACTED: pl.Boolean()} if self.retracted else {}
        return pl.Schema({**self.schema, **taken_back})

    kind: ClassVar[str]
    """What it is, for a checkpoint."""

    @property
    def declared(self) -> Declaration:
        """The order of rows, their windows, and all that is kept."""
        lateness = Microseconds(self.windowing.allowed_lateness)
        choices = {"order": self.order, "windows": self.windowing.windows, "allowed lateness": lateness}
        return Declaration(self.kind, choices, fields=self.kept, accumulators=self.content, does=self.does)

    @property
    def does(self) -> object:
        """The rest of what tells it from others of its kind."""
        return None

    @property
    def kept(self) -> Mapping[str, object]:
        """What it keeps, by the name that the user has given it, with its kind."""
        raise NotImplementedError

    @property
    def timers(self) -> Mapping[str, str]:
        """Its timers by name: "event" or "processing"."""
        return {}

    @property
    def content(self) -> pl.Schema:
        """The columns in which it keeps that."""
        raise NotImplementedError

    def facts(self, type_name: TypeName) -> dict[str, str]:
        """What it keeps or computes, in words."""
        raise NotImplementedError

    def usable(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Refused, ...]]:
        """(rows that can be played, the others)."""
        return rows, ()

    def play(self, state: State, rows: pl.DataFrame, clocks: Clocks) -> Result:
        """Plays rows, which have their window, and whatever else is due; keeps what is left."""
        raise NotImplementedError

    def step(
        self,
        state: State,
        arrivals: Mapping[str, pl.DataFrame],
        before: Watermarks,
        then: Times,
        now: Times,
    ) -> Given:
        """Rows that need not wait, then those whose turn has come, and what else is due."""
        usable, refused = self.usable(arrivals[MAIN])
        placed, nowhere = place(usable, self.windowing.windows)
        played, late = self._judged(placed, before.input)
        numbered = played.with_columns(
            (state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER),
            pl.lit(1, pl.Int64).alias(PENDING),
            pl.when(pl.col(EVENT_TIME) >= before.input).then(EVENT_TIME).alias(HOLD),
        ).select(list(self.waiting.schema))
        clocks = Clocks(before.input, now.time(WATERMARK), now.time(PROCESSING_TIME))
        rows = pl.concat(self._in_order(state, numbered, clocks))
        result = self.play(state, rows, clocks)
        dropped = {LATE: len(late), NO_WINDOW: len(nowhere)}
        return Given(
            result.panes,
            len(usable),
            len(placed) + len(nowhere),
            len(rows),
            {reason: count for reason, count in dropped.items() if count},
            self._shown(late, nowhere) if self.late else pl.DataFrame(),
            (*refused, *result.refused),
            result.fired,
            len(rows) - result.refused_rows,
        )

    def _judged(self, rows: pl.DataFrame, watermark: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """(rows that may be played, those that are too late)."""
        lateness = self.windowing.allowed_lateness
        may_come = collected_at(lateness) > watermark
        if self.order == "time":
            may_come &= in_time(watermark, lateness)
        return rows.filter(may_come), rows.filter(~may_come)

    def _in_order(self, state: State, rows: pl.DataFrame, clocks: Clocks) -> Iterator[pl.DataFrame]:
        """Rows that are played at once, then those whose turn in the order of time has come; the others are kept."""
        if self.order == "arrival":
            yield rows.with_columns(pl.lit(0).alias(TURN))
            return
        behind = pl.col(EVENT_TIME) < clocks.before
        yield rows.filter(behind).with_columns(pl.lit(0).alias(TURN))
        loaded = state.load(self.waiting, rows.filter(~behind))
        pool = pl.concat([loaded.rows, loaded.incoming])
        come = pl.col(EVENT_TIME) < clocks.now
        state.write_back(self.waiting, pool.filter(~come))
        yield pool.filter(come).with_columns(pl.lit(1).alias(TURN))

    def by_cell(self, cells: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of these cells, with the number of each, in the order in which they are played."""
        numbers = cells.select(self.id).with_row_index(CELL)
        order = [CELL, TURN, pl.when(pl.col(TURN) == 1).then(EVENT_TIME), NUMBER]
        return rows.join(numbers, on=self.id, how="left", nulls_equal=True).sort(order)

    def _shown(self, late: pl.DataFrame, nowhere: pl.DataFrame) -> pl.DataFrame:
        """What was dropped, with the reason."""
        schema = late_schema(self.row, self.row.names())
        reasons = ((late, LATE), (nowhere, NO_WINDOW))
        return pl.concat([with_reason(rows, reason, schema) for rows, reason in reasons])


def touched(
    cells: pl.DataFrame, reached: pl.DataFrame, due: pl.Expr, id: list[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(cells that rows have come for, a new one where there was none, or in which something is due; the others)."""
    marks = reached.with_columns(pl.lit(True).alias("__reached"))
    marked = cells.join(marks, on=id, how="left", nulls_equal=True, maintain_order="left")
    active = pl.col("__reached").fill_null(False) | due.fill_null(False)
    found = marked.filter(active).drop("__reached")
    new = reached.join(found, on=id, how="anti", nulls_equal=True, maintain_order="left")
    return pl.concat([found, new], how="diagonal"), marked.filter(~active).drop("__reached")
