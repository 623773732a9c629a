"""The columns of a grouping's state, arrivals and panes. State has one row for each key and window:

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
from stages.aggregates.lists import merged, only
from stages.aggregates.multisets import added
from stages.frames import repeated
from stages.operator import HOLD, OUTSTANDING_HOLD, PENDING
from windowing.columns import (
    ASKED_COLUMNS,
    EVENT_TIME,
    PANE_CAUSE,
    PANE_COLUMNS,
    PANE_COMPLETE,
    PANE_DRAINED,
    PANE_FIRST,
    PANE_LAST,
    PANE_RETRACTED,
    PANE_TIMING,
    WINDOW_COLUMNS,
)
from windowing.lateness import collected_at
from windowing.panes import LAST_TIMING, NEXT_INDEX, NEXT_NONSPECULATIVE, PANE_STATE, Accumulation
from windowing.timestamp_combiners import TimestampCombiner, TimestampOf
from windowing.windowing import Windowing

CLOSED: Final = "__closed"
"""A column of windows: true if the trigger has finished. Further arrivals are dropped until the window is collected."""
OUTSTANDING: Final = "__outstanding"
"""A column of windows in retracting mode: the emitted panes that no later pane has replaced yet.

Their hold is in `OUTSTANDING_HOLD`; the hold of pending elements is in `HOLD`.
"""
EMITTED: Final = "__emitted"
"""An internal column of panes: the number of elements that are in a pane for the first time."""
SILENT: Final = "__silent"
"""An internal column of panes, if elements may be retracted: true if no element remains and the pane is not emitted."""
REMAINING: Final = "__remaining"
"""A column of windows, if elements may be retracted: the number of elements that were not retracted."""
STANDING: Final = "__standing"
"""A column of windows in retracting mode, if panes have the time of an element: the times (us) of the elements.

For rows, it is the combined time of all elements that were not late. If elements may be retracted, it is a list of the
times of all elements that were late by at most the allowed lateness, with the number of each.
"""
_TIMES: Final = pl.List(pl.Struct({"value": pl.Int64(), "count": pl.Int64()}))
_UNKNOWN: Final = 2**40
"""The value of REMAINING in state of an earlier version, which lacks the column: more than any window has."""
COUNT: Final = "__count"
"""A column of arrivals: the number of elements in the row."""
NEW_HOLD: Final = "__new_hold"
"""A column of arrivals: the time (us) at which the elements of the row hold the watermark; null if they do not."""
_NO_HOLD: Final = pl.Series(NEW_HOLD, [None], pl.Int64)


def _accumulator(name: str, part: str) -> str:
    return f"__acc.{name}.{part}"


def _is_counted(dtype: pl.DataType) -> bool:
    inner = dtype.inner if isinstance(dtype, pl.List) else None
    return isinstance(inner, pl.Struct) and [field.name for field in inner.fields] == ["value", "count"]


def _mark(name: str) -> str:
    return f"__where.{name}"


@attrs.frozen(slots=False)
class WindowLayout:
    """The columns of a grouping's state, arrivals and panes, and the expressions to compute, merge and reset them."""

    keys: tuple[str, ...]
    windowing: Windowing
    aggregates: Mapping[str, Aggregate]
    schema: pl.Schema
    retractions: bool = False
    asked: tuple[str, ...] = ()

    @cached_property
    def parts(self) -> dict[str, Part]:
        """The accumulator columns by name, each with its type and empty value."""
        of_results = {
            _accumulator(name, part): spec
            for name, aggregate in self.aggregates.items()
            for part, spec in aggregate.parts(self.schema).items()
        }
        # Columns that count like accumulators, so every fold of accumulators keeps them.
        remaining = {REMAINING: Part(pl.Int64(), 0)} if self.retractions else {}
        times = Part(_TIMES, ()) if self.retractions else Part(pl.Int64())
        return of_results | remaining | ({STANDING: times} if self.stands else {})

    @cached_property
    def combines(self) -> dict[str, Combine]:
        """The user's `CombineFn` for each accumulator column that belongs to one."""
        return {
            _accumulator(name, PICKLE): aggregate
            for name, aggregate in self.aggregates.items()
            if isinstance(aggregate, Combine)
        }

    @cached_property
    def counted(self) -> tuple[str, ...]:
        """The accumulator columns that are lists of distinct values, each value with the number of its occurrences."""
        return tuple(
            name for name, part in self.parts.items() if name != STANDING and _is_counted(part.dtype)
        )

    @property
    def numbered(self) -> bool:
        """True if an aggregate needs the arrival numbers of elements."""
        return any(aggregate.numbered for aggregate in self.aggregates.values())

    @property
    def retracts(self) -> bool:
        """True in retracting mode: a pane retracts the panes that it replaces."""
        return self.windowing.accumulation is Accumulation.RETRACTING

    @property
    def stands(self) -> bool:
        """True if the time of a pane depends on all elements of its window, not only on those since the last pane."""
        return self.windowing.may_retract() and not self.windowing.timestamp_combiner.depends_on_window

    @property
    def counts_times(self) -> bool:
        """True if the state counts the elements of each event time, since elements may be retracted."""
        return self.stands and self.retractions

    @property
    def hold_combiner(self) -> TimestampCombiner | TimestampOf:
        """The timestamp combiner of holds. If elements may be retracted, it is EARLIEST: a retraction of the element
        that decides the pane's time can give the pane the time of any other element.
        """
        if self.counts_times:
            return TimestampCombiner.EARLIEST
        return self.windowing.timestamp_combiner

    @cached_property
    def outstanding(self) -> pl.List:
        """The type of the column OUTSTANDING: a list of panes without their key, which the row has."""
        return pl.List(
            pl.Struct({name: dtype for name, dtype in self.panes.items() if name not in self.keys})
        )

    @cached_property
    def state(self) -> pl.Schema:
        """The schema of the state table, which has a row for each key and window."""
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
        """The schema of arrivals after they were reduced to one row for each key and window."""
        return pl.Schema({**self.state, COUNT: pl.Int64(), NEW_HOLD: pl.Int64()})

    @cached_property
    def panes(self) -> pl.Schema:
        """The schema of emitted panes, system columns included."""
        results = {name: aggregate.dtype(self.schema) for name, aggregate in self.aggregates.items()}
        times = {column: pl.Int64() for column in (EVENT_TIME, *WINDOW_COLUMNS)}
        numbering: dict[str, pl.DataType] = {
            column: pl.Int64()
            for column in PANE_COLUMNS
            if column != PANE_DRAINED and (column in self.asked or column not in ASKED_COLUMNS)
        }
        numbering |= {column: pl.Boolean() for column in (PANE_FIRST, PANE_LAST, PANE_RETRACTED)}
        types = {PANE_TIMING: pl.String(), PANE_CAUSE: pl.String(), PANE_COMPLETE: pl.Float64()}
        numbering |= {column: dtype for column, dtype in types.items() if column in numbering}
        return pl.Schema({**{key: self.schema[key] for key in self.keys}, **results, **times, **numbering})

    @cached_property
    def no_panes(self) -> pl.DataFrame:
        """An empty frame of panes with internal columns."""
        # Cached, since every step needs it.
        silent = {SILENT: pl.Boolean()} if self.retractions else {}
        return pl.DataFrame(schema={**self.panes, EMITTED: pl.Int64(), **silent})

    def accumulators(self, name: str) -> dict[str, pl.Expr]:
        """Returns the accumulator columns of the result `name`, by the names that its aggregate uses."""
        parts = self.aggregates[name].parts(self.schema)
        return {part: pl.col(_accumulator(name, part)) for part in parts}

    def lift(self, retractions: bool) -> dict[str, pl.Expr]:
        """Returns expressions for the accumulators of single elements, in rows that `marked` returned.

        If `retractions`, elements with the flag of a retraction are subtracted. The accumulators of a `CombineFn` are
        columns of the rows already (`refuse`).
        """
        return self._lifted_changes if retractions else self._lifted_elements

    @cached_property
    def _lifted_elements(self) -> dict[str, pl.Expr]:
        return self._lift(retractions=False)

    @cached_property
    def _lifted_changes(self) -> dict[str, pl.Expr]:
        return self._lift(retractions=True)

    def _lift(self, *, retractions: bool) -> dict[str, pl.Expr]:
        lifts = {name: pl.col(name) for name in self.combines}
        for name, aggregate in self.aggregates.items():
            for part, lifted in self._lifted(aggregate, retractions).items():
                column = _accumulator(name, part)
                # An element for which `where=` is false has empty accumulators, which change nothing in a merge.
                if aggregate.where is not None:
                    lifted = pl.when(_mark(name)).then(lifted).otherwise(self.parts[column].literal())
                lifts[column] = lifted
        if self.retractions:
            one = pl.lit(1, pl.Int64)
            lifts[REMAINING] = pl.when(PANE_RETRACTED).then(-one).otherwise(one) if retractions else one
        if self.stands:
            lifts[STANDING] = self.parts[STANDING].literal()  # until `standing` knows which elements are late
        return lifts

    def lifted_alone(self, placed: pl.DataFrame) -> pl.DataFrame:
        """Returns the key, window, accumulators and hold of single elements. The hold is null, since their window alone
        determines it.
        """
        constants, computed = self._lifted_alone
        columns = [repeated(one, len(placed)) for one in (_NO_HOLD, *constants)]
        if computed:
            columns += self.marked(placed).select(computed).get_columns()
        return placed[:, [*self.keys, *WINDOW_COLUMNS]].hstack(columns)

    @cached_property
    def _lifted_alone(self) -> tuple[list[pl.Series], list[pl.Expr]]:
        """The accumulators of single elements: constants, such as that of a count, and those that are computed."""
        lifted = [value.alias(name) for name, value in self._lifted_elements.items()]
        computed = [value for value in lifted if not value.meta.is_literal(allow_aliasing=True)]
        constants = (value for value in lifted if value.meta.is_literal(allow_aliasing=True))
        return pl.select(constants).get_columns(), computed

    def standing(self, time: pl.Expr, watermark: int, *, retractions: bool) -> pl.Expr:
        """Returns an expression for the pane time that a single element determines; null, or an empty list, for a late
        element.

        `time` is the time (us) that a pane with only this element has, and `watermark` the input watermark (us).
        `retractions`: some elements are retractions, which count -1.
        """
        if not self.retractions:
            return pl.when(time >= watermark).then(time)
        in_time = collected_at(self.windowing.allowed_lateness, time) >= watermark
        count = pl.when(PANE_RETRACTED).then(-1).otherwise(1) if retractions else pl.lit(1)
        item = pl.struct(time.alias("value"), count.cast(pl.Int64).alias("count"))
        return only(item, in_time.fill_null(False), _TIMES)

    def pane_time(self) -> pl.Expr:
        """Returns an expression for the event time (us) of a window's next pane; null if all its elements were late."""
        if not self.stands:
            return pl.col(HOLD)
        return self._of_times(self.windowing.timestamp_combiner) if self.retractions else pl.col(STANDING)

    def earliest(self) -> pl.Expr:
        """Returns an expression for the earliest event time (us) of an element of the window; null if elements cannot
        be retracted. If all other elements are retracted, the next pane has this time.
        """
        if not self.counts_times:
            return pl.lit(None, pl.Int64)
        return self._of_times(TimestampCombiner.EARLIEST)

    def _of_times(self, combiner: TimestampCombiner | TimestampOf) -> pl.Expr:
        there = pl.element().struct.field("value").filter(pl.element().struct.field("count") > 0)
        return pl.col(STANDING).list.eval(combiner.fold(there)).list.first()

    def _lifted(self, aggregate: Aggregate, retractions: bool) -> dict[str, pl.Expr]:
        lifted = aggregate.lift(self.schema)
        if not retractions:
            return lifted
        negated = aggregate.negated(lifted, self.schema)
        return {
            part: pl.when(PANE_RETRACTED).then(negated[part]).otherwise(value)
            for part, value in lifted.items()
        }

    def marked(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds a Boolean column for each aggregate with `where=`, true for elements that meet the condition."""
        marks = [
            aggregate.accepted(rows).alias(_mark(name))
            for name, aggregate in self.aggregates.items()
            if aggregate.where is not None
        ]
        return rows.with_columns(marks) if marks else rows

    @cached_property
    def merge(self) -> dict[str, pl.Expr]:
        """Aggregations that merge the accumulators of a group of rows, by column."""
        of_results = {
            _accumulator(name, part): merged
            for name, aggregate in self.aggregates.items()
            for part, merged in aggregate.merge(self.accumulators(name)).items()
        }
        remaining = {REMAINING: pl.col(REMAINING).sum()} if self.retractions else {}
        return of_results | remaining | ({STANDING: self._merge_standing()} if self.stands else {})

    def _merge_standing(self) -> pl.Expr:
        if self.retractions:
            return merged(pl.col(STANDING), added)
        return self.windowing.timestamp_combiner.fold(pl.col(STANDING))

    @cached_property
    def extract(self) -> dict[str, pl.Expr]:
        """Expressions for the results, by name, over accumulator columns."""
        return {
            name: aggregate.extract(self.accumulators(name), self.schema).cast(self.panes[name])
            for name, aggregate in self.aggregates.items()
        }

    def merge_outstanding(self) -> dict[str, pl.Expr]:
        """Returns aggregations, by column, that merge the outstanding panes (those that may be retracted) of windows
        that merge.
        """
        if not self.retracts:
            return {}
        return {
            OUTSTANDING: pl.col(OUTSTANDING).list.explode(keep_nulls=False, empty_as_null=False),
            OUTSTANDING_HOLD: pl.col(OUTSTANDING_HOLD).min(),
        }

    def nothing_outstanding(self) -> dict[str, pl.Expr]:
        """Returns expressions, by column, for a window without outstanding panes (those that may be retracted)."""
        if not self.retracts:
            return {}
        return {OUTSTANDING: pl.lit([], self.outstanding), OUTSTANDING_HOLD: pl.lit(None, pl.Int64)}

    def empty(self) -> dict[str, pl.Expr]:
        """Returns expressions, by column, for the accumulators of a window without elements."""
        return {name: part.literal() for name, part in self.parts.items()}

    def missing(self) -> dict[str, pl.Expr]:
        """Returns expressions for columns that a state of an earlier plan or version may lack.

        For an aggregate that was added later, a window that existed before has no elements.
        """
        remaining = {REMAINING: pl.lit(_UNKNOWN, pl.Int64)} if self.retractions else {}
        outstanding = {OUTSTANDING_HOLD: pl.lit(None, pl.Int64)} if self.retracts else {}
        return self.empty() | remaining | outstanding

    def emptied(self, mask: pl.Expr) -> dict[str, pl.Expr]:
        """Returns expressions that reset the accumulators, by column, in the rows for which `mask` is true."""
        return {
            name: pl.when(mask).then(part.literal()).otherwise(pl.col(name))
            for name, part in self.parts.items()
        }

    @cached_property
    def folds(self) -> dict[str, pl.Expr]:
        """Aggregations that merge several rows of one window into one row, by column."""
        combiner = self.hold_combiner
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
    def fresh_row(self) -> pl.DataFrame:
        """A row with the columns of a new window, except for its key, bounds and accumulators."""
        values = {
            PENDING: pl.lit(0, pl.Int64),
            HOLD: pl.lit(None, pl.Int64),
            **{name: pl.lit(default, dtype) for name, (dtype, default) in PANE_STATE.items()},
            **{name: cell.literal() for name, cell in self.windowing.trigger.cells().items()},
            **self.nothing_outstanding(),
            CLOSED: pl.lit(False),
        }
        return pl.select(value.alias(name) for name, value in values.items())
