"""The state of a grouping as columns: one row per (key, window).

key columns | start end | accumulators | pending | hold | pane numbering | trigger cells | outstanding | closed
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.aggregates.base import Aggregate, Part
from stages.aggregates.combine_fn import PICKLE, Combine
from stages.operator import HOLD, OUTSTANDING_HOLD, PENDING
from windowing.columns import (
    EVENT_TIME,
    PANE_COLUMNS,
    PANE_DRAINED,
    PANE_FIRST,
    PANE_LAST,
    PANE_RETRACTED,
    PANE_TIMING,
    WINDOW_COLUMNS,
)
from windowing.panes import LAST_TIMING, NEXT_INDEX, NEXT_NONSPECULATIVE, PANE_STATE, Accumulation
from windowing.windowing import Windowing

CLOSED: Final = "__closed"
"""Column of a window: true if its trigger has finished. Its arrivals are dropped until the window is collected."""
OUTSTANDING: Final = "__outstanding"
"""Column of a window, if panes are retracted: the emitted panes that no later one has replaced yet.

Their hold is in `OUTSTANDING_HOLD`, that of the pending elements in `HOLD`.
"""
EMITTED: Final = "__emitted"
"""Column of panes, inside of a step only: the number of elements that are in a pane for the first time."""
SILENT: Final = "__silent"
"""Column of panes, inside of a step only, if elements may be retracted: no element is left, and the pane is not
emitted.
"""
REMAINING: Final = "__remaining"
"""Column of a window, if elements may be retracted: the number of elements that were not."""
_UNKNOWN: Final = 2**40
"""The number of remaining elements in state of an earlier version, which lacks it: more than any window has."""
COUNT: Final = "__count"
NEW_HOLD: Final = "__new_hold"
"""Columns of arrivals only: the number of elements for this window, and the hold that they place."""


def _accumulator(name: str, part: str) -> str:
    return f"__acc.{name}.{part}"


def _mark(name: str) -> str:
    return f"__where.{name}"


@attrs.frozen(slots=False)
class Layout:
    """The columns of the rows of a grouping, and the expressions that fill and fold them."""

    keys: tuple[str, ...]
    windowing: Windowing
    aggregates: Mapping[str, Aggregate]
    schema: pl.Schema
    retractions: bool = False

    @cached_property
    def parts(self) -> dict[str, Part]:
        """Accumulator column -> its part."""
        of_results = {
            _accumulator(name, part): spec
            for name, aggregate in self.aggregates.items()
            for part, spec in aggregate.parts(self.schema).items()
        }
        return of_results | ({REMAINING: Part(pl.Int64(), 0)} if self.retractions else {})

    @cached_property
    def combines(self) -> dict[str, Combine]:
        """Accumulator column -> the user's own aggregate that it belongs to."""
        return {
            _accumulator(name, PICKLE): aggregate
            for name, aggregate in self.aggregates.items()
            if isinstance(aggregate, Combine)
        }

    @property
    def numbered(self) -> bool:
        """True if some aggregate reads the numbers of elements."""
        return any(aggregate.numbered for aggregate in self.aggregates.values())

    @property
    def retracts(self) -> bool:
        """True if a pane retracts those that it replaces."""
        return self.windowing.accumulation is Accumulation.RETRACTING

    @cached_property
    def outstanding(self) -> pl.List:
        """The type of OUTSTANDING: panes without their key, which is that of the row."""
        return pl.List(
            pl.Struct({name: dtype for name, dtype in self.panes.items() if name not in self.keys})
        )

    @cached_property
    def state(self) -> pl.Schema:
        """The schema of the state rows."""
        return pl.Schema(
            {
                **{key: self.schema[key] for key in self.keys},
                **{column: pl.Int64() for column in WINDOW_COLUMNS},
                **{name: part.dtype for name, part in self.parts.items()},
                PENDING: pl.Int64(),
                HOLD: pl.Int64(),
                **{name: dtype for name, (dtype, _) in PANE_STATE.items()},
                **{name: cell.dtype for name, cell in self.windowing.trigger.cells().items()},
                **({OUTSTANDING: self.outstanding, OUTSTANDING_HOLD: pl.Int64()} if self.retracts else {}),
                CLOSED: pl.Boolean(),
            }
        )

    @cached_property
    def incoming(self) -> pl.Schema:
        """The schema of arrivals that have been reduced to one row per (key, window)."""
        return pl.Schema({**self.state, COUNT: pl.Int64(), NEW_HOLD: pl.Int64()})

    @cached_property
    def panes(self) -> pl.Schema:
        """The schema of emitted panes, system columns included."""
        results = {name: aggregate.dtype(self.schema) for name, aggregate in self.aggregates.items()}
        times = {column: pl.Int64() for column in (EVENT_TIME, *WINDOW_COLUMNS)}
        numbering: dict[str, pl.DataType] = {
            column: pl.Int64() for column in PANE_COLUMNS if column != PANE_DRAINED
        }
        numbering |= {column: pl.Boolean() for column in (PANE_FIRST, PANE_LAST, PANE_RETRACTED)}
        numbering[PANE_TIMING] = pl.String()
        return pl.Schema({**{key: self.schema[key] for key in self.keys}, **results, **times, **numbering})

    @cached_property
    def no_panes(self) -> pl.DataFrame:
        """A frame of panes, inside of a step, without rows; made once, not in every step."""
        silent = {SILENT: pl.Boolean()} if self.retractions else {}
        return pl.DataFrame(schema={**self.panes, EMITTED: pl.Int64(), **silent})

    def accumulators(self, name: str) -> dict[str, pl.Expr]:
        """The accumulator columns of one result, as its aggregate names them."""
        parts = self.aggregates[name].parts(self.schema)
        return {part: pl.col(_accumulator(name, part)) for part in parts}

    def lift(self, retractions: bool) -> dict[str, pl.Expr]:
        """The accumulators of single elements, which are `marked`.

        `retractions`: some elements are retracted, and subtracted. Those of users' own aggregates are made before, in
        `refuse`.
        """
        lifts = {name: pl.col(name) for name in self.combines}
        for name, aggregate in self.aggregates.items():
            for part, lifted in self._lifted(aggregate, retractions).items():
                column = _accumulator(name, part)
                if aggregate.where is not None:
                    lifted = pl.when(_mark(name)).then(lifted).otherwise(self.parts[column].literal())
                lifts[column] = lifted
        if self.retractions:
            one = pl.lit(1, pl.Int64)
            lifts[REMAINING] = pl.when(PANE_RETRACTED).then(-one).otherwise(one) if retractions else one
        return lifts

    def _lifted(self, aggregate: Aggregate, retractions: bool) -> dict[str, pl.Expr]:
        lifted = aggregate.lift(self.schema)
        if not retractions:
            return lifted
        undone = aggregate.taken_back(lifted, self.schema)
        return {
            part: pl.when(PANE_RETRACTED).then(undone[part]).otherwise(value)
            for part, value in lifted.items()
        }

    def marked(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds a column for each aggregate with a condition, true for elements that it accepts; `lift` reads it."""
        marks = [
            aggregate.takes(rows).alias(_mark(name))
            for name, aggregate in self.aggregates.items()
            if aggregate.where is not None
        ]
        return rows.with_columns(marks) if marks else rows

    @cached_property
    def merge(self) -> dict[str, pl.Expr]:
        """The accumulators of a group of rows, as aggregations."""
        of_results = {
            _accumulator(name, part): merged
            for name, aggregate in self.aggregates.items()
            for part, merged in aggregate.merge(self.accumulators(name)).items()
        }
        return of_results | ({REMAINING: pl.col(REMAINING).sum()} if self.retractions else {})

    def extract(self) -> dict[str, pl.Expr]:
        """The results of rows."""
        return {
            name: aggregate.extract(self.accumulators(name), self.schema).cast(self.panes[name])
            for name, aggregate in self.aggregates.items()
        }

    def merge_outstanding(self) -> dict[str, pl.Expr]:
        """The outstanding panes of a group of rows."""
        if not self.retracts:
            return {}
        return {
            OUTSTANDING: pl.col(OUTSTANDING).list.explode(keep_nulls=False, empty_as_null=False),
            OUTSTANDING_HOLD: pl.col(OUTSTANDING_HOLD).min(),
        }

    def nothing_outstanding(self) -> dict[str, pl.Expr]:
        """The columns of a window without panes to retract."""
        if not self.retracts:
            return {}
        return {OUTSTANDING: pl.lit([], self.outstanding), OUTSTANDING_HOLD: pl.lit(None, pl.Int64)}

    def empty(self) -> dict[str, pl.Expr]:
        """The accumulators of no elements."""
        return {name: part.literal() for name, part in self.parts.items()}

    def missing(self) -> dict[str, pl.Expr]:
        """The values of columns that state of an earlier plan or version may lack.

        An aggregate that was added since then has no elements of these windows.
        """
        remaining = {REMAINING: pl.lit(_UNKNOWN, pl.Int64)} if self.retractions else {}
        outstanding = {OUTSTANDING_HOLD: pl.lit(None, pl.Int64)} if self.retracts else {}
        return self.empty() | remaining | outstanding

    def emptied(self, mask: pl.Expr) -> dict[str, pl.Expr]:
        """The accumulators, set to those of no elements where the mask holds."""
        return {
            name: pl.when(mask).then(part.literal()).otherwise(pl.col(name))
            for name, part in self.parts.items()
        }

    @cached_property
    def folds(self) -> dict[str, pl.Expr]:
        """The aggregation of each column when rows of one window become one row."""
        combiner = self.windowing.timestamp_combiner
        cells = self.windowing.trigger.cells().items()
        fold = {"any": pl.Expr.any, "sum": pl.Expr.sum, "min": pl.Expr.min}
        return {
            **self.merge,
            PENDING: pl.col(PENDING).sum(),
            HOLD: combiner.fold(pl.col(HOLD)),
            NEXT_INDEX: pl.col(NEXT_INDEX).max(),
            NEXT_NONSPECULATIVE: pl.col(NEXT_NONSPECULATIVE).max(),
            LAST_TIMING: pl.col(LAST_TIMING).max(),
            **{name: fold[cell.fold](pl.col(name)) for name, cell in cells},
            **self.merge_outstanding(),
            CLOSED: pl.col(CLOSED).any(),
            COUNT: pl.col(COUNT).sum(),
            NEW_HOLD: combiner.fold(pl.col(NEW_HOLD)),
        }

    @cached_property
    def fresh(self) -> dict[str, pl.Expr]:
        """The values of a new window beside key, bounds and accumulators."""
        cells = self.windowing.trigger.cells()
        return {
            PENDING: pl.lit(0, pl.Int64),
            HOLD: pl.lit(None, pl.Int64),
            **{name: pl.lit(default, dtype) for name, (dtype, default) in PANE_STATE.items()},
            **{name: cell.literal() for name, cell in cells.items()},
            **self.nothing_outstanding(),
            CLOSED: pl.lit(False),
        }
