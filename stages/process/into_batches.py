"""The operator of `group_into_batches`: collects the rows of a key until there are enough or the first is too old."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Final

import attrs
import numpy as np
import polars as pl

from stages.clock import StepClock
from stages.declared import Text
from stages.operator import HOLD, PENDING
from stages.pending_rows import NUMBER
from stages.process.keyed import CELL, Keyed, Result
from stages.state_tables import KeyedTable, State, StateTable
from windowing.clocks import PROCESSING_TIME, WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS, WINDOW_END
from windowing.time import MAX_TIME, format_duration

ROWS: Final = "rows"
"""The output column with the rows of a batch, a list of structs."""

UNTIL: Final = "__until"
"""A column of each collected row: the processing time (us) at which its batch is emitted at the latest."""
SIZE: Final = "__bytes"
"""A column of each collected row: its size in bytes; 0 if batches have no limit of bytes."""
_BATCH: Final = "__batch"
"""A column of rows during a step: the number of their batch; null if they are not emitted in this step."""

Numbers = np.ndarray[tuple[int], np.dtype[Any]]


@attrs.frozen
class Limits:
    """The limits of a batch: the number of rows, the bytes, and the time (us) for which its first row may wait."""

    size: int | None
    bytes: int | None
    max_wait: int | None

    def __str__(self) -> str:
        full = [f"{self.size} rows"] * (self.size is not None)
        full += [f"{self.bytes} bytes"] * (self.bytes is not None)
        wait = "" if self.max_wait is None else f", at most {format_duration(self.max_wait)}"
        return " or ".join(full) + wait


@attrs.frozen(slots=False, eq=False)
class Collected(StateTable[KeyedTable]):
    """The state table of the rows that are in no emitted batch yet. `timed` is true if they wait for a limited time."""

    keys: tuple[str, ...]
    schema: pl.Schema
    timed: bool

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clocks at which a batch is due: the watermark, and processing time if rows wait for a limited time."""
        return (WATERMARK, PROCESSING_TIME) if self.timed else (WATERMARK,)

    @cached_property
    def rows(self) -> pl.Schema:
        """The schema of this state table: the collected row, its window, number, limits and hold."""
        own = (EVENT_TIME, *WINDOW_COLUMNS, NUMBER, UNTIL, SIZE, PENDING, HOLD)
        return pl.Schema({**self.schema, **dict.fromkeys(own, pl.Int64())})

    @cached_property
    def table(self) -> KeyedTable:
        return KeyedTable(
            row="row",
            waits="waits for its batch",
            keys=self.keys,
            bounds=WINDOW_COLUMNS,
            schema=self.rows,
            incoming=self.rows,
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns the deadline of each row: it is due when its window ends, or when it has waited for the maximum
        time.
        """
        over = {WATERMARK: pl.col(WINDOW_END)}
        return {**over, PROCESSING_TIME: pl.col(UNTIL)} if self.timed else over


@attrs.frozen(slots=False, eq=False)
class IntoBatches(Keyed):
    """The operator that emits one row for each batch: the keys, and the column `ROWS` with the batch in arrival order.

    A batch is emitted when it is full, when its first row has waited for the maximum time, or when its window ends. Its
    event time is that of its earliest row, at which the batch holds the watermark until it is emitted.
    """

    limits: Limits
    kind: ClassVar[str] = "group_into_batches"

    @property
    def does(self) -> object:
        return self.limits

    @cached_property
    def cells(self) -> Collected:
        return Collected(self.keys, self.schema, self.limits.max_wait is not None)

    @property
    def clocks(self) -> tuple[str, ...]:
        return self.cells.clocks

    @property
    def kept(self) -> Mapping[str, object]:
        return {ROWS: "collected"}

    @property
    def content(self) -> pl.Schema:
        return self.schema

    def own_facts(self, text: Text) -> dict[str, str]:
        return {"batches": str(self.limits)}

    def process_rows(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Result:
        arrived = rows.with_columns(
            self._until(clock).alias(UNTIL),
            (pl.lit(0, pl.Int64) if self.limits.bytes is None else _bytes_of(self.schema)).alias(SIZE),
            pl.lit(0, pl.Int64).alias(PENDING),
        )
        loaded = state.load(self.cells, arrived.select(list(self.cells.rows)))
        both = pl.concat([loaded.rows, loaded.incoming])
        numbers = both.select(self.id).unique(maintain_order=True).with_row_index(CELL)
        ordered = both.join(numbers, on=self.id, nulls_equal=True, maintain_order="left").sort(CELL, NUMBER)
        batched = self._batched(ordered, self._due(clock))
        state.write_back(self.cells, batched.filter(pl.col(_BATCH).is_null()).select(list(self.cells.rows)))
        return Result(self._given(batched.filter(pl.col(_BATCH).is_not_null())))

    def _until(self, clock: StepClock) -> pl.Expr:
        wait = self.limits.max_wait
        return pl.lit(None if wait is None else min(clock.processing_time, MAX_TIME - wait) + wait, pl.Int64)

    def _due(self, clock: StepClock) -> pl.Expr:
        """Returns an expression that is true for rows that are due: a batch whose first row is due is emitted now."""
        deadlines = self.cells.deadlines(Times()).items()
        return pl.any_horizontal(
            (deadline <= clock.now.times[name]).fill_null(False) for name, deadline in deadlines
        )

    def _batched(self, rows: pl.DataFrame, due: pl.Expr) -> pl.DataFrame:
        """Adds the column `_BATCH`, the number of the batch, to rows, which must be sorted by cell and arrival."""
        if rows.is_empty():
            return rows.with_columns(pl.lit(None, pl.UInt32).alias(_BATCH))
        cells = rows[CELL].to_numpy()
        sizes = np.concatenate([[0], np.cumsum(rows[SIZE].to_numpy())])
        starts, ends = self._ranges(cells, sizes)
        complete = rows.select(due).to_series().to_numpy()[starts]
        if self.limits.size is not None:
            complete |= ends - starts >= self.limits.size
        if self.limits.bytes is not None:
            complete |= sizes[ends] - sizes[starts] >= self.limits.bytes
        # A batch that is followed by another one of the same cell is full: the next row did not fit.
        complete[:-1] |= cells[starts[1:]] == cells[starts[:-1]]
        numbers = pl.Series(_BATCH, np.repeat(np.arange(len(starts)), ends - starts), dtype=pl.UInt32)
        given = pl.Series(np.repeat(complete, ends - starts))
        return rows.with_columns(pl.when(given).then(numbers).alias(_BATCH))

    def _ranges(self, cells: Numbers, sizes: Numbers) -> tuple[Numbers, Numbers]:
        """Returns the positions of the rows at which batches start and end, in order. `sizes` are the cumulative
        bytes.
        """
        count = len(cells)
        places = np.arange(count)
        # For each position: the start of the next batch, if a batch started at this position.
        following = np.searchsorted(cells, cells, "right")  # at the latest, at the first row of the next cell
        if self.limits.size is not None:
            following = np.minimum(following, places + self.limits.size)
        if self.limits.bytes is not None:
            # A batch has at least one row, even if this row alone exceeds the limit of bytes.
            fits = np.searchsorted(sizes, sizes[:-1] + self.limits.bytes, "right") - 1
            following = np.minimum(following, np.maximum(fits, places + 1))
        starts = np.concatenate([_reachable(following), [count]])
        return starts[:-1], starts[1:]

    def _given(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Converts rows with a batch number to one output row for each batch."""
        first = [pl.col(name).first() for name in (*self.keys, *WINDOW_COLUMNS)]
        batches = rows.group_by(_BATCH, maintain_order=True).agg(
            *first, pl.struct(self.schema.names()).alias(ROWS), pl.col(EVENT_TIME).min()
        )
        return batches.select(*self.keys, ROWS, EVENT_TIME, *WINDOW_COLUMNS)


def _reachable(following: Numbers) -> Numbers:
    """Returns the positions on the path that begins at position 0 and continues from each position p at `following[p]`.

    Each round doubles the length of the jumps, so the number of rounds is logarithmic in the number of rows.
    """
    count = len(following)
    reached = np.zeros(count + 1, dtype=bool)
    reached[0] = True
    jump = np.append(following, count)
    steps = 1
    while steps <= count:
        reached[jump[reached]] = True
        jump = jump[jump]
        steps *= 2
    return np.flatnonzero(reached[:-1])


def _bytes_of(schema: pl.Schema) -> pl.Expr:
    """Returns an expression for the bytes of a row: the length of text and binary, of nested values as JSON, 8 for
    others.
    """
    sizes = []
    for name, dtype in schema.items():
        column = pl.col(name)
        if dtype == pl.String:
            size = column.str.len_bytes()
        elif dtype == pl.Binary:
            size = column.bin.size()
        elif dtype.is_nested():
            size = pl.struct(name).struct.json_encode().str.len_bytes()
        else:
            size = pl.lit(8)
        sizes.append(size.cast(pl.Int64).fill_null(0))
    return pl.sum_horizontal(sizes)
