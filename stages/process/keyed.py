"""The base class of operators by key and window: assigns rows to windows, drops late rows, and sorts rows by time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import ClassVar, Final, Literal, Self

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.dropped import LATE, NO_WINDOW, UNMATCHED, late_schema, with_reason
from stages.operator import HOLD, MAIN, PENDING, Input, Operator, Refused, StepOutput
from stages.packed import sorted_by
from stages.pending_rows import NUMBER, PendingRows, left_of
from stages.state_tables import BucketTable, State, StateTable, Table
from windowing.clocks import WATERMARK
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.lateness import collected_at, in_time
from windowing.placing import place
from windowing.time import Microseconds
from windowing.windowing import Windowing
from windowing.windows import GlobalWindows

Order = Literal["time", "arrival"]

CELL: Final = "__cell"
"""A column of rows during a step: the number of their cell (the state of their key and window)."""
TIMED: Final = "__timed"
"""A column of rows during a step: 0 if they are processed in order of arrival, 1 if in order of time."""


@attrs.frozen(eq=False)
class Result:
    """The result of processing rows in a step.

    Attributes:
        panes: The emitted rows.
        refused: The rows and timer firings that became dead letters.
        fired: The number of timers that fired.
        refused_rows: The number of rows that became dead letters.
        unmatched: The retractions of rows that are not there.
    """

    panes: pl.DataFrame
    refused: tuple[Refused, ...] = ()
    fired: int = 0
    refused_rows: int = 0
    unmatched: pl.DataFrame | None = None


@attrs.frozen(eq=False)
class Accepted:
    """The arrivals of a step: rows to process, in their windows and numbered, and rows that are left out.

    `usable` is the number of arrivals without refused ones. Rows `nowhere` are in no window.
    """

    rows: pl.DataFrame
    usable: int
    late: pl.DataFrame
    nowhere: pl.DataFrame
    refused: tuple[Refused, ...]


@attrs.frozen(slots=False, eq=False)
class Keyed(Operator):
    """The base class of operators that process the rows of each key and window.

    Attributes:
        keys: The key columns.
        schema: The schema of arriving rows, keys included.
        windowing: The windowing that assigns rows to windows.
        order: "time" if rows wait for the watermark and are processed in order of time; "arrival" if they are
            processed at once.
        title: The name of the operator for people.
        late: True if dropped rows are returned with the reason.
        retracted: True if rows may retract earlier ones.
        sums: True if waiting rows and their retractions cancel out, so that only the remaining rows are processed. Rows
            with equal times are then sorted by their values.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    windowing: Windowing
    order: Order = attrs.field(kw_only=True)
    title: str = attrs.field(kw_only=True)
    late: bool = attrs.field(default=False, kw_only=True)
    retracted: bool = attrs.field(default=False, kw_only=True)
    sums: bool = attrs.field(default=False, kw_only=True)

    @property
    def id(self) -> list[str]:
        """The columns that identify a cell: the key and the window."""
        return [*self.keys, *WINDOW_COLUMNS]

    @property
    def ordered(self) -> bool:
        return True  # rows with equal times are processed in order of arrival

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK,)

    @cached_property
    def inputs(self) -> dict[str, Input]:
        times = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS), pl.Int64())
        return {MAIN: Input(self.keys, pl.Schema({**self.row, **times}))}

    @property
    def cells(self) -> StateTable[BucketTable]:
        """The state table of cells: a row with the state of each key and window."""
        raise NotImplementedError

    @cached_property
    def pending(self) -> PendingRows:
        """The state table of rows that wait for the watermark, to be processed in order of time."""
        return PendingRows(self.keys, self.row)

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.cells, self.pending) if self.order == "time" else (self.cells,)

    @property
    def row(self) -> pl.Schema:
        """The schema of a row, with a flag for retractions if there may be any."""
        flag = {PANE_RETRACTED: pl.Boolean()} if self.retracted or self.sums else {}
        return pl.Schema({**self.schema, **flag})

    kind: ClassVar[str]
    """The kind of the operator in a checkpoint."""

    @property
    def declared(self) -> Declaration:
        lateness = Microseconds(self.windowing.allowed_lateness)
        choices = {"order": self.order, "windows": self.windowing.windows, "allowed lateness": lateness}
        return Declaration(self.kind, choices, fields=self.kept, accumulators=self.content, does=self.does)

    @property
    def does(self) -> object:
        """The user's code or other options that state does not depend on, for the operator's declaration."""
        return None

    @property
    def kept(self) -> Mapping[str, object]:
        """The kind of each state field, by the name that the user chose."""
        raise NotImplementedError

    @property
    def content(self) -> pl.Schema:
        """The schema of the operator's state columns, without key, window and holds."""
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
        """Describes for people the options that only this kind of operator has; `text` formats values."""
        raise NotImplementedError

    def usable(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Refused, ...]]:
        """Divides arrivals into rows that can be processed, and dead letters."""
        return rows, ()

    def process_rows(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Result:
        """Processes rows, which have their window, and the cells that are due; writes the new state."""
        raise NotImplementedError

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Processes rows that do not wait, then rows whose time the watermark has passed, and cells that are due."""
        accepted = self.accepted(state, arrivals[MAIN], clock)
        rows, unmatched = self.in_order(state, self.with_turn(accepted.rows), clock)
        return self.step_output(accepted, rows, unmatched, self.process_rows(state, rows, clock))

    def accepted(self, state: State, arrivals: pl.DataFrame, clock: StepClock) -> Accepted:
        """Assigns arrivals to windows and numbers them, without those that are refused or dropped."""
        usable, refused = self.usable(arrivals)
        placed, nowhere = place(usable, self.windowing.windows)
        timely, late = self._split_late(placed, clock.input_before)
        # Numbers continue from step to step, so they order all rows by arrival. A late row does not hold the watermark.
        numbered = timely.with_columns(
            (state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER),
            pl.lit(1, pl.Int64).alias(PENDING),
            pl.when(pl.col(EVENT_TIME) >= clock.input_before).then(EVENT_TIME).alias(HOLD),
        ).select(list(self.pending.schema))
        return Accepted(numbered, len(usable), late, nowhere, refused)

    def with_turn(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds the column TIMED to accepted rows: 1 for those that are processed in order of time, 0 for others."""
        # Rows with later times than a late row have been processed already, so it is processed at once.
        timed = pl.col(HOLD).is_not_null() if self.order == "time" else pl.lit(False)
        return rows.with_columns(timed.cast(pl.Int32).alias(TIMED))

    def in_order(
        self, state: State, rows: pl.DataFrame, clock: StepClock
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Returns the rows to process, and retractions of rows that are not there. Stores the rows that wait.

        `rows` have the column TIMED.
        """
        return self.remaining(pl.concat(self._in_order(state, rows, clock)))

    def step_output(
        self, accepted: Accepted, rows: pl.DataFrame, unmatched: pl.DataFrame, result: Result
    ) -> StepOutput:
        """Returns the output of a step that has accepted these arrivals, and processed `rows` with this result."""
        late, nowhere = accepted.late, accepted.nowhere
        unmatched = unmatched if result.unmatched is None else result.unmatched
        dropped = {LATE: len(late), NO_WINDOW: len(nowhere), UNMATCHED: len(unmatched)}
        return StepOutput(
            result.panes,
            accepted.usable,
            len(accepted.rows) + len(late) + len(nowhere),
            len(rows),
            {reason: count for reason, count in dropped.items() if count},
            self._shown(late, nowhere, unmatched) if self.late else pl.DataFrame(),
            (*accepted.refused, *result.refused),
            result.fired,
            len(rows) - result.refused_rows,
        )

    def remaining(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Divides rows whose turn has come into (rows to process, retractions without a row to retract)."""
        return left_of(rows, list(self.schema)) if self.sums else (rows, rows.clear())

    def _split_late(self, rows: pl.DataFrame, watermark: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Divides rows into (rows to process, rows that are dropped because they are too late)."""
        lateness = self.windowing.allowed_lateness
        timely = collected_at(lateness) > watermark
        if self.order == "time":
            timely &= in_time(watermark, lateness)
        return rows.filter(timely), rows.filter(~timely)

    def _in_order(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Iterator[pl.DataFrame]:
        """Yields rows to process in order of arrival, then rows to process in order of time. Stores all other rows."""
        at_once = pl.col(TIMED) == 0
        yield rows.filter(at_once)
        if self.order == "arrival":
            return
        loaded = state.load(self.pending, rows.filter(~at_once).drop(TIMED))
        pool = pl.concat([loaded.rows, loaded.incoming])
        ready = pl.col(EVENT_TIME) < clock.watermark
        state.write_back(self.pending, pool.filter(~ready))
        yield pool.filter(ready).with_columns(pl.lit(1).alias(TIMED))

    def by_cell(self, cells: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds the column CELL to rows, the position of their cell in `cells`, and sorts them in processing order."""
        numbers = cells.select(self.id).with_row_index(CELL)
        found = rows.join(numbers, on=self.id, how="left", nulls_equal=True)
        return sorted_by(found, [CELL, TIMED, pl.when(pl.col(TIMED) == 1).then(EVENT_TIME), NUMBER])

    def _shown(self, late: pl.DataFrame, nowhere: pl.DataFrame, unmatched: pl.DataFrame) -> pl.DataFrame:
        """Adds the reasons to dropped rows, and concatenates them. Rows `nowhere` are in no window."""
        schema = late_schema(self.row, self.row.names())
        reasons = [(late, LATE), (nowhere, NO_WINDOW)]
        if self.sums or self.retracted:
            reasons.append((unmatched, UNMATCHED))
        return pl.concat([with_reason(rows, reason, schema) for rows, reason in reasons])


def touched(
    cells: pl.DataFrame, reached: pl.DataFrame, due: pl.Expr, id: list[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divides cells into (cells with an arrival or due, new cells included; other cells).

    `reached` has the keys and windows of arrivals, the columns `id`; `due` is true for cells that are due.
    """
    # Keys may be null, so a column of the right side, not a key, shows whether the join found a match.
    marks = reached.with_columns(pl.lit(True).alias("__reached"))
    marked = cells.join(marks, on=id, how="left", nulls_equal=True, maintain_order="left")
    active = pl.col("__reached").fill_null(False) | due.fill_null(False)
    found = marked.filter(active).drop("__reached")
    new = reached.join(found, on=id, how="anti", nulls_equal=True, maintain_order="left")
    return pl.concat([found, new], how="diagonal"), marked.filter(~active).drop("__reached")
