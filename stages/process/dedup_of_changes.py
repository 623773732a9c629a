"""The operator of `dedup` and `distinct` for changes: of the rows that are left, emits those that no other row covers.

Rows of an id are considered in order of time, and of equal times in order of their values. A row that is emitted
*covers* later rows of its id, as in `dedup`. Each change that arrives may change which rows are emitted: rows that no
longer are, are retracted.

    within 15 s      3 s      9 s      21 s
    all are left     emitted  covered  emitted
    3 s retracted             emitted  covered      retracts the rows of 3 s and 21 s, emits that of 9 s
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

import attrs
import polars as pl

from stages.changes import WEIGHT, repeated, weight
from stages.clock import StepClock
from stages.declared import Text
from stages.frames import at, concat_nonempty, partition, split
from stages.operator import HOLD, PENDING
from stages.packed import packed
from stages.pending_rows import NUMBER, by_values
from stages.process.dedup import SINCE_TIME, first_and_uncovered
from stages.process.keyed import CELL, Keyed, Result
from stages.state_tables import KeyedTable, Loaded, State, StateTable
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.lateness import collected_at, in_time
from windowing.time import MAX_TIME, Microseconds, format_duration
from windowing.windows import GlobalWindows

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MANY: Final = 2
"""The number of state rows per arrival above which rows of ids without arrivals are left out."""
EMITTED: Final = "__emitted"
"""A column of each row of state: true if the row is emitted, and not retracted."""


@attrs.frozen(slots=False, eq=False)
class RowsLeft(StateTable[KeyedTable]):
    """The state table of the rows that are not retracted, each with its weight.

    A row is removed when it is final, since neither the row nor an earlier one can be retracted then, and covers no row
    that may still arrive. `schema` has the columns of a row, with its event time and window.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    allowed_lateness: int
    within: int | None
    clocks = (WATERMARK,)

    @cached_property
    def rows(self) -> pl.Schema:
        """The schema of this state table."""
        own = {WEIGHT: pl.Int64(), EMITTED: pl.Boolean(), PENDING: pl.Int64(), HOLD: pl.Int64()}
        return pl.Schema({**self.schema, **own})

    @cached_property
    def table(self) -> KeyedTable:
        return KeyedTable(
            row="row",
            waits="may be retracted",
            keys=self.keys,
            bounds=WINDOW_COLUMNS,
            schema=self.rows,
            incoming=self.rows,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        over = collected_at(self.allowed_lateness)
        if self.within is None:
            return {WATERMARK: over}
        longest = self.within + self.allowed_lateness
        since = pl.col(EVENT_TIME).clip(upper_bound=MAX_TIME - longest)
        final = pl.when(EMITTED).then(since + longest).otherwise(since + (self.allowed_lateness + 1))
        return {WATERMARK: pl.min_horizontal(over, final)}

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows


@attrs.frozen(slots=False, eq=False)
class DedupOfChanges(Keyed):
    """The operator that emits the rows that no other row of the same keys covers, and retracts those that one covers.

    Attributes:
        within: The time (us) for which a row covers others: a row of time t covers the times [t, t + within). If None,
            the earliest row of a window covers all others.
    """

    within: int | None
    kind: ClassVar[str] = "dedup of changes"

    @cached_property
    def cells(self) -> RowsLeft:
        return RowsLeft(self.keys, self.content, self.windowing.allowed_lateness, self.within)

    @property
    def gives_changes(self) -> bool:
        return True

    @property
    def kept(self) -> Mapping[str, object]:
        return {"event": "window" if self.within is None else Microseconds(self.within)}

    @cached_property
    def content(self) -> pl.Schema:
        return pl.Schema({**self.schema, **dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS), pl.Int64())})

    @property
    def _windows(self) -> tuple[str, ...]:
        # Comparing windows is slow, so it is left out if there is only the global window.
        return () if isinstance(self.windowing.windows, GlobalWindows) else WINDOW_COLUMNS

    def own_facts(self, text: Text) -> dict[str, str]:
        covers = "its window" if self.within is None else f"{format_duration(self.within)} of event time"
        return {"covers": covers, "changes": "keeps the rows that are left"}

    def process_rows(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Result:
        weighed = rows.with_columns(
            weight(),
            pl.lit(False).alias(EMITTED),
            pl.lit(0, pl.Int64).alias(PENDING),
            pl.lit(None, pl.Int64).alias(HOLD),
        )
        loaded = state.load(self.cells, weighed.select(list(self.cells.rows)))
        before, others = self._divided(loaded)
        found = self._summed(pl.concat([before, loaded.incoming]))
        left = self._emitted(found.filter(pl.col(WEIGHT) > 0))
        over = self.cells.deadlines(clock.now)[WATERMARK] <= clock.watermark
        kept = concat_nonempty(others, left.select(list(self.cells.rows)))
        state.write_back(self.cells, partition(kept, over)[1])
        return Result(self._changes(found, left), unmatched=self._unmatched(found))

    def _divided(self, loaded: Loaded) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Divides rows of state into (rows whose ids have arrivals, other rows)."""
        # Rows without arrivals change nothing. If they are few, processing them takes less time than finding them.
        if len(loaded.rows) <= MANY * len(loaded.incoming):
            return loaded.rows, loaded.rows.clear()
        id = [*self.keys, *self._windows]
        return split(loaded.rows, loaded.incoming.select(id), id)

    def _split_late(self, rows: pl.DataFrame, watermark: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        timely, late = super()._split_late(rows, watermark)
        if self.within is None:
            return timely, late
        # Rows of such times were removed, so nothing tells which of them are emitted.
        final = ~in_time(watermark, self.windowing.allowed_lateness)
        return timely.filter(~final), pl.concat([late, timely.filter(final)])

    def _summed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Sums up equal rows. The result is in order of time and values, with the numbers of the rows."""
        columns = [EVENT_TIME, *self.schema, *self._windows]
        key = packed(rows.select(columns))
        ordered = self._by_columns(rows, columns) if key is None else _by_key(rows, key)
        return ordered.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(NUMBER))

    def _by_columns(self, rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        first = [name for name in self.cells.rows if name not in {*columns, WEIGHT, EMITTED}]
        folds = (pl.col(WEIGHT).sum(), pl.col(EMITTED).any(), pl.col(first).first())
        return rows.group_by(columns).agg(folds).sort(EVENT_TIME, *by_values(self.schema), *WINDOW_COLUMNS)

    def _emitted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Computes EMITTED of rows in order of time."""
        cells = self._cells_of(rows)
        if self.within is None:
            return rows.with_columns(cells.is_first_distinct().alias(EMITTED))
        candidates = rows.select(cells, NUMBER, pl.col(EVENT_TIME).alias(SINCE_TIME))
        numbers = first_and_uncovered(candidates, self.within)[NUMBER]
        return rows.with_columns(pl.col(NUMBER).is_in(numbers.implode()).alias(EMITTED))

    def _cells_of(self, rows: pl.DataFrame) -> pl.Series:
        """Returns an integer for each row in the column CELL, the same for rows with the same keys and window."""
        id = [*self.keys, *self._windows]
        if (key := packed(rows.select(id))) is not None:
            return pl.Series(CELL, key)
        cells = rows.select(id).unique().with_row_index(CELL)
        return rows.select(id).join(cells, on=id, how="left", nulls_equal=True, maintain_order="left")[CELL]

    def _changes(self, found: pl.DataFrame, left: pl.DataFrame) -> pl.DataFrame:
        """Returns the rows that are not emitted any more, as retractions, and then those that are newly emitted."""
        now = left.filter(EMITTED).select(NUMBER, pl.lit(True).alias("__now"))
        both = found.join(now, on=NUMBER, how="left", maintain_order="left").with_columns(
            pl.col("__now").fill_null(False)
        )
        changed = both.filter(pl.col(EMITTED) != pl.col("__now")).sort("__now", maintain_order=True)
        return changed.select(*self.content, (~pl.col("__now")).alias(PANE_RETRACTED))

    def _unmatched(self, found: pl.DataFrame) -> pl.DataFrame:
        """Returns the retractions of rows that are not there."""
        wrong = found.filter(pl.col(WEIGHT) < 0)
        each = repeated(wrong, -wrong[WEIGHT])
        return each.select(*self.content, pl.lit(True).alias(PANE_RETRACTED))


def _by_key(rows: pl.DataFrame, key: npt.NDArray[np.int64]) -> pl.DataFrame:
    """Sums up rows with the same key, and sorts them by it."""
    import numpy as np  # slow to import

    order = np.argsort(key)
    ordered = key[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    if len(first) == len(rows):
        return at(rows, order)
    weights = np.add.reduceat(rows[WEIGHT].to_numpy()[order], first)
    emitted = np.logical_or.reduceat(rows[EMITTED].to_numpy()[order], first)
    sums = (pl.Series(WEIGHT, weights), pl.Series(EMITTED, emitted))
    return at(rows, order[first]).with_columns(sums)
