"""The columns of keyed state: each key and window has a row, its cell, with its fields and its pending timers.

key columns | start end | fields, and when they were written | timers and their output timestamps | hold and holder
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import attrs
import polars as pl

from stages.declared import Text
from stages.operator import HOLD, PENDING
from stages.process.fields import FieldColumn
from stages.process.timer_fields import Timer
from windowing.clocks import PROCESSING_TIME, WATERMARK
from windowing.columns import WINDOW_COLUMNS
from windowing.lateness import collected_at
from windowing.time import GLOBAL_WINDOW_END, MAX_TIME

HOLDER: Final = "__holder"
"""A column of each cell: the name of the timer with the least hold; null if no timer holds the watermark."""
UNTIL: Final = "__until"
"""A column of each cell: the time (us) at which the timer in `HOLDER` fires."""


@attrs.frozen(slots=False, eq=False)
class CellLayout:
    """The columns of cells, and expressions over them. A cell is the row of state of one key and window.

    Attributes:
        keys: The key columns.
        schema: The schema of arriving rows, keys included.
        fields: The state fields.
        timers: The timers by name.
        allowed_lateness: The allowed lateness of the windowing (us).
        expires: True if a method is called when a window is collected. Cells are then stored until that time, even
            empty ones.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    fields: tuple[FieldColumn, ...]
    timers: Mapping[str, Timer]
    allowed_lateness: int = 0
    expires: bool = False

    window = WINDOW_COLUMNS

    @property
    def id(self) -> list[str]:
        """The names of the columns that identify a cell: the key and the window."""
        return [*self.keys, *self.window]

    @property
    def key_type(self) -> Any:
        """The named tuple of a key. A column whose name is no valid Python name is named by its position."""
        return namedtuple("Key", self.keys, rename=True)

    def timer_columns(self, name: str) -> list[str]:
        """Returns the names of a timer's columns: time and output timestamp; for a family, before them its tags."""
        tags = [f"__g.{name}"] if self.timers[name].family else []
        return [*tags, f"__t.{name}", f"__o.{name}"]

    def hold_columns(self, name: str) -> list[str]:
        """Returns a list with the name of a processing-time timer's hold column; an empty list for an event timer."""
        return [f"__h.{name}"] if self.timers[name].domain == "processing" else []

    @cached_property
    def content(self) -> pl.Schema:
        """The columns of fields and timers. A cell in which all of them are null is empty."""
        columns: dict[str, pl.DataType] = {}
        for field in self.fields:
            columns[field.column] = field.dtype
            if field.ttl is not None:
                columns[field.written] = pl.Int64()
        for name, timer in self.timers.items():
            tags, times, outputs = pl.List(pl.String), pl.List(pl.Int64), pl.List(pl.Int64)
            single = (pl.Int64(), pl.Int64())
            types = (tags, times, outputs) if timer.family else single
            columns.update(zip(self.timer_columns(name), types, strict=True))
        return pl.Schema(columns)

    @cached_property
    def holding(self) -> pl.Schema:
        """The columns of holds, one for each processing-time timer. State of earlier versions lacks them."""
        return pl.Schema(
            {
                column: pl.List(pl.Int64()) if timer.family else pl.Int64()
                for name, timer in self.timers.items()
                for column in self.hold_columns(name)
            }
        )

    @cached_property
    def id_schema(self) -> pl.Schema:
        """The schema of the columns that identify a cell."""
        return pl.Schema(
            {**{key: self.schema[key] for key in self.keys}, **dict.fromkeys(self.window, pl.Int64())}
        )

    @cached_property
    def cells(self) -> pl.Schema:
        """The schema of the cells: key, window, fields, timers and hold."""
        held = {PENDING: pl.Int64(), HOLD: pl.Int64(), HOLDER: pl.String(), UNTIL: pl.Int64()}
        return pl.Schema({**self.id_schema, **self.content, **self.holding, **held})

    @property
    def expiry(self) -> pl.Expr:
        """An expression for the time (us) at which the window of a cell is collected."""
        return collected_at(self.allowed_lateness)

    @property
    def latest(self) -> pl.Expr:
        """An expression for the latest possible time of a timer (us), usually that at which the window is collected."""
        # Before the end of the global window, so that rows emitted at this time are not late downstream.
        return pl.min_horizontal(self.expiry, pl.lit(GLOBAL_WINDOW_END - 1, pl.Int64))

    def due(self, now: Mapping[str, int]) -> pl.Expr:
        """Returns an expression that is true for cells that are due when the clocks are at these times (us)."""
        return pl.any_horizontal(deadline <= now[clock] for clock, deadline in self.deadlines().items())

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each field and timer by name."""
        fields = {field.name: f"{field.kind}({field.dtype})" for field in self.fields}
        return {**fields, **{name: type(timer).__name__ for name, timer in self.timers.items()}}

    def facts(self, text: Text) -> dict[str, str]:
        """Describes the state fields and timers for people; `text` formats types."""
        state = [f"{field.name} {text(field.dtype)}" for field in self.fields]
        timers = [f"{name} {timer.domain}" for name, timer in self.timers.items()]
        return {"state": ", ".join(state) or "none", "timers": ", ".join(timers) or "none"}

    def kept(self, cells: pl.DataFrame, now: Mapping[str, int]) -> pl.DataFrame:
        """Returns the cells to store: removes expired fields and empty cells, and computes holds.

        `now` are the times (us) of the clocks.
        """
        # State of earlier versions has no columns of holds.
        lacks = [pl.lit(None, dtype).alias(name) for name, dtype in self.holding.items() if name not in cells]
        cells = cells.with_columns(*self._live_fields(now), *lacks)
        if not self.expires:
            something = [pl.col(name).is_not_null() for name in self.content]
            cells = cells.filter(pl.any_horizontal(False, *something))
        return cells.with_columns(pl.lit(0, pl.Int64).alias(PENDING), *self._least_hold()).select(
            list(self.cells)
        )

    def _live_fields(self, now: Mapping[str, int]) -> list[pl.Expr]:
        """Returns expressions for the fields, null for a value that equals the default or that no row can read any
        more.
        """
        columns = []
        for field in self.fields:
            nothing = pl.lit(False)
            if field.plain and field.default is not None:
                nothing = pl.col(field.column).eq_missing(
                    pl.lit(pl.Series([field.default], dtype=field.dtype))
                )
            if field.ttl is not None:
                nothing |= pl.col(field.column).is_null()
                clock = WATERMARK if field.by_event else PROCESSING_TIME
                nothing |= (self._unreadable_from(field) <= now[clock]).fill_null(True)
                columns.append(pl.when(~nothing).then(field.written).alias(field.written))
            columns.append(pl.when(~nothing).then(field.column).alias(field.column))
        return columns

    def _unreadable_from(self, field: FieldColumn) -> pl.Expr:
        """Returns an expression for the time (us) from which no row, not even a late one, can read the value of a
        field.
        """
        assert field.ttl is not None
        # A value expires by the event time of the row that reads it, which may be behind by the allowed lateness.
        late = self.allowed_lateness if field.by_event else 0
        latest = MAX_TIME - field.ttl - late
        return pl.min_horizontal(field.written, latest) + (field.ttl + late)

    def _least_hold(self) -> list[pl.Expr]:
        """Returns expressions for the columns HOLD, HOLDER and UNTIL: the least hold of a cell, and the timer that has
        it.
        """
        # The index of the state reads these columns only, never those of timers.
        found = list(self._holds())
        nothing = pl.lit(None, pl.Int64)
        if not found:
            return [nothing.alias(HOLD), pl.lit(None, pl.String).alias(HOLDER), nothing.alias(UNTIL)]
        least = pl.min_horizontal(hold for _, hold, _ in found)
        who = pl.coalesce(pl.when(hold == least).then(pl.lit(name)) for name, hold, _ in found)
        until = pl.coalesce(pl.when(hold == least).then(time) for _, hold, time in found)
        return [least.alias(HOLD), who.alias(HOLDER), until.alias(UNTIL)]

    def _holds(self) -> Iterator[tuple[str, pl.Expr, pl.Expr]]:
        """Yields the name of each timer, an expression for its hold, and one for the time at which it fires."""
        for name, timer in self.timers.items():
            # Only a family has a further column, its tags, before these two.
            *_, time, output = (pl.col(column) for column in self.timer_columns(name))
            if timer.domain == "processing" and not timer.holds:
                output = pl.col(*self.hold_columns(name))
                hold = _least(output, time) if timer.family else (output, time)
                yield name, *hold
            elif timer.family:
                yield name, *_least(output, time)
            else:
                yield name, pl.when(time.is_not_null()).then(pl.coalesce(output, time)), time

    @property
    def pending(self) -> pl.Expr:
        """An expression for the number of pending timers of a cell."""
        times = {name: pl.col(self.timer_columns(name)[-2]) for name in self.timers}
        counts = [
            time.list.len().fill_null(0) if self.timers[name].family else time.is_not_null()
            for name, time in times.items()
        ]
        return pl.sum_horizontal(0, *counts)

    def deadlines(self) -> dict[str, pl.Expr]:
        """Returns expressions, by clock, for the time (us) at which a cell is due.

        It is due when a timer fires, when a field expires, or when its window is collected.
        """
        due: dict[str, list[pl.Expr]] = {WATERMARK: [self.expiry], PROCESSING_TIME: []}
        for name, timer in self.timers.items():
            clock = WATERMARK if timer.domain == "event" else PROCESSING_TIME
            time = pl.col(self.timer_columns(name)[-2])
            due[clock].append(time.list.min() if timer.family else time)
        for field in self.fields:
            if field.ttl is not None:
                due[WATERMARK if field.by_event else PROCESSING_TIME].append(self._unreadable_from(field))
        return {clock: pl.min_horizontal(times) for clock, times in due.items() if times}


def _least(outputs: pl.Expr, times: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Returns expressions for the least output timestamp of a family of timers, and for the time at which that timer
    fires.
    """
    first = outputs.list.arg_min()
    return outputs.list.get(first), times.list.get(first)
