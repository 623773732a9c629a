"""The base of operators over keys and windows: rows are assigned to windows, dropped if late, and ordered by time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import ClassVar, Final, Literal, Self

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Declaration
from stages.dropped import LATE, NO_WINDOW, late_schema, with_reason
from stages.operator import HOLD, MAIN, PENDING, Given, Input, Operator, Refused, State, StateTable, Text
from stages.waiting import NUMBER, Waiting
from windowing.clocks import WATERMARK
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.lateness import collected_at, in_time
from windowing.placing import place
from windowing.time import Microseconds
from windowing.windowing import Windowing
from windowing.windows import GlobalWindows

Order = Literal["time", "arrival"]

CELL: Final = "__cell"
"""Column of rows in a step: the number of their key and window."""
TIMED: Final = "__timed"
"""Column of rows in a step: 0 if they are processed at once, 1 if they are processed in the order of time."""


@attrs.frozen
class Result:
    """The `panes` of processed rows, `refused` rows and firings, and the numbers of refused rows and fired timers."""

    panes: pl.DataFrame
    refused: tuple[Refused, ...] = ()
    fired: int = 0
    refused_rows: int = 0


@attrs.frozen(slots=False, eq=False)
class Keyed(Operator):
    """Processes the rows of each key and window.

    `title` names the operator for people. `schema` contains the columns of rows, `keys` among them. `order="time"`:
    rows wait for the watermark and are processed in order of time; with "arrival" they are processed at once. `late`:
    dropped rows are returned with the reason. `retracted`: rows may retract earlier ones.
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
        """The columns that identify a key and window."""
        return [*self.keys, *WINDOW_COLUMNS]

    @property
    def ordered(self) -> bool:
        """True: rows of one time are processed in the order of arrival."""
        return True

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK,)

    @cached_property
    def inputs(self) -> dict[str, Input]:
        times = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS), pl.Int64())
        return {MAIN: Input(self.keys, pl.Schema({**self.row, **times}))}

    @property
    def cells(self) -> StateTable:
        """The state table of keys and windows."""
        raise NotImplementedError

    @cached_property
    def waiting(self) -> Waiting:
        """The table of rows that wait for the watermark."""
        return Waiting(self.keys, self.row)

    @property
    def tables(self) -> tuple[StateTable, ...]:
        return (self.cells, self.waiting) if self.order == "time" else (self.cells,)

    @property
    def row(self) -> pl.Schema:
        """The columns of a row, and a flag for retractions."""
        taken_back = {PANE_RETRACTED: pl.Boolean()} if self.retracted else {}
        return pl.Schema({**self.schema, **taken_back})

    kind: ClassVar[str]
    """The kind of the operator in a checkpoint."""

    @property
    def declared(self) -> Declaration:
        lateness = Microseconds(self.windowing.allowed_lateness)
        choices = {"order": self.order, "windows": self.windowing.windows, "allowed lateness": lateness}
        return Declaration(self.kind, choices, fields=self.kept, accumulators=self.content, does=self.does)

    @property
    def does(self) -> object:
        """The user's code or further choices that tell the operator from others of its kind."""
        return None

    @property
    def kept(self) -> Mapping[str, object]:
        """The state fields, by the name that the user chose, with their kind."""
        raise NotImplementedError

    @property
    def content(self) -> pl.Schema:
        """The columns of the state fields."""
        raise NotImplementedError

    @property
    def assigns_windows(self) -> bool:
        return True

    def with_late(self) -> Self:
        return attrs.evolve(self, late=True)

    def facts(self, text: Text) -> dict[str, str]:
        windows = self.windowing.windows
        return {
            "process": self.title,
            "keys": ", ".join(self.keys),
            **({} if isinstance(windows, GlobalWindows) else {"scope": text(windows)}),
            "order": self.order,
            **self.own_facts(text),
        }

    def own_facts(self, text: Text) -> dict[str, str]:
        """Returns the facts that only operators of this kind have."""
        raise NotImplementedError

    def usable(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Refused, ...]]:
        """Splits rows into (rows that can be processed, refused rows)."""
        return rows, ()

    def process_rows(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Result:
        """Processes rows, which have their window, and whatever else is due; stores what is left."""
        raise NotImplementedError

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> Given:
        """Processes rows that need not wait, then rows whose time the watermark has passed, and what else is due."""
        usable, refused = self.usable(arrivals[MAIN])
        placed, nowhere = place(usable, self.windowing.windows)
        played, late = self._judged(placed, clock.input_before)
        numbered = played.with_columns(
            (state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER),
            pl.lit(1, pl.Int64).alias(PENDING),
            pl.when(pl.col(EVENT_TIME) >= clock.input_before).then(EVENT_TIME).alias(HOLD),
        ).select(list(self.waiting.schema))
        rows = pl.concat(self._in_order(state, numbered, clock))
        result = self.process_rows(state, rows, clock)
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
        """(rows that are in time, rows that are too late)."""
        lateness = self.windowing.allowed_lateness
        may_come = collected_at(lateness) > watermark
        if self.order == "time":
            may_come &= in_time(watermark, lateness)
        return rows.filter(may_come), rows.filter(~may_come)

    def _in_order(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Iterator[pl.DataFrame]:
        """Yields rows to process at once, then rows whose time the watermark has passed; the others are stored."""
        if self.order == "arrival":
            yield rows.with_columns(pl.lit(0).alias(TIMED))
            return
        behind = pl.col(EVENT_TIME) < clock.input_before
        yield rows.filter(behind).with_columns(pl.lit(0).alias(TIMED))
        loaded = state.load(self.waiting, rows.filter(~behind))
        pool = pl.concat([loaded.rows, loaded.incoming])
        come = pl.col(EVENT_TIME) < clock.watermark
        state.write_back(self.waiting, pool.filter(~come))
        yield pool.filter(come).with_columns(pl.lit(1).alias(TIMED))

    def by_cell(self, cells: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of these cells, with the number of their cell, in the order in which they are processed."""
        numbers = cells.select(self.id).with_row_index(CELL)
        order = [CELL, TIMED, pl.when(pl.col(TIMED) == 1).then(EVENT_TIME), NUMBER]
        return rows.join(numbers, on=self.id, how="left", nulls_equal=True).sort(order)

    def _shown(self, late: pl.DataFrame, nowhere: pl.DataFrame) -> pl.DataFrame:
        """The dropped rows, with the reason."""
        schema = late_schema(self.row, self.row.names())
        reasons = ((late, LATE), (nowhere, NO_WINDOW))
        return pl.concat([with_reason(rows, reason, schema) for rows, reason in reasons])


def touched(
    cells: pl.DataFrame, reached: pl.DataFrame, due: pl.Expr, id: list[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(cells with arrivals, new ones included, or with something due; the other cells)."""
    marks = reached.with_columns(pl.lit(True).alias("__reached"))
    marked = cells.join(marks, on=id, how="left", nulls_equal=True, maintain_order="left")
    active = pl.col("__reached").fill_null(False) | due.fill_null(False)
    found = marked.filter(active).drop("__reached")
    new = reached.join(found, on=id, how="anti", nulls_equal=True, maintain_order="left")
    return pl.concat([found, new], how="diagonal"), marked.filter(~active).drop("__reached")
