"""The columns of keyed state: a row per key and window (a cell), with its fields and its pending timers.

key columns | start end | fields, and when they were written | timers and their output timestamps | hold and holder
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import attrs
import polars as pl

from stages.operator import HOLD, PENDING, Text
from stages.process.declarations import EventTimer, ProcessingTimer, Timer
from stages.process.fields import FieldColumn
from windowing.clocks import PROCESSING_TIME, WATERMARK
from windowing.columns import WINDOW_COLUMNS
from windowing.lateness import collected_at
from windowing.time import GLOBAL_WINDOW_END, MAX_TIME

HOLDER: Final = "__holder"
"""Column of a cell: the timer with the least hold."""
UNTIL: Final = "__until"
"""Column of a cell: the time (us) at which that timer fires."""


@attrs.frozen(slots=False, eq=False)
class Layout:
    """The columns of cells. `schema` contains the types of the columns of arrivals, keys included.

    `expires`: a method is called when a window is collected, so a cell is kept until then, even an empty one.
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
        """The columns that identify a cell."""
        return [*self.keys, *self.window]

    @property
    def key_type(self) -> Any:
        """The named tuple of a key. A column that is no valid Python name is called by its number."""
        return namedtuple("Key", self.keys, rename=True)

    def timer_columns(self, name: str) -> list[str]:
        """The columns of a timer: tags, for a family, then times and output timestamps."""
        tags = [f"__g.{name}"] if self.timers[name].family else []
        return [*tags, f"__t.{name}", f"__o.{name}"]

    def hold_columns(self, name: str) -> list[str]:
        """The column with the holds of a processing-time timer that was set with an output timestamp."""
        return [f"__h.{name}"] if isinstance(self.timers[name], ProcessingTimer) else []

    @cached_property
    def content(self) -> pl.Schema:
        """The columns of fields and timers. A cell in which all of these are null need not be kept."""
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
        """The columns of `hold_columns`. State of earlier versions lacks them, and then nothing holds."""
        return pl.Schema(
            {
                column: pl.List(pl.Int64()) if timer.family else pl.Int64()
                for name, timer in self.timers.items()
                for column in self.hold_columns(name)
            }
        )

    @cached_property
    def id_schema(self) -> pl.Schema:
        """The columns of `id` with their types."""
        return pl.Schema(
            {**{key: self.schema[key] for key in self.keys}, **dict.fromkeys(self.window, pl.Int64())}
        )

    @cached_property
    def cells(self) -> pl.Schema:
        """All columns of a cell."""
        held = {PENDING: pl.Int64(), HOLD: pl.Int64(), HOLDER: pl.String(), UNTIL: pl.Int64()}
        return pl.Schema({**self.id_schema, **self.content, **self.holding, **held})

    @property
    def expiry(self) -> pl.Expr:
        """The time at which a window is collected (us)."""
        return collected_at(self.allowed_lateness)

    @property
    def latest(self) -> pl.Expr:
        """The latest time of a timer (us).

        Rows emitted at the end of the global window are still in time downstream.
        """
        return pl.min_horizontal(self.expiry, pl.lit(GLOBAL_WINDOW_END - 1, pl.Int64))

    def due(self, now: Mapping[str, int]) -> pl.Expr:
        """True for cells that must be processed at these times of the clocks."""
        return pl.any_horizontal(deadline <= now[clock] for clock, deadline in self.deadlines().items())

    @property
    def kinds(self) -> dict[str, str]:
        """The fields and timers by name, with their kind."""
        fields = {field.name: f"{field.kind}({field.dtype})" for field in self.fields}
        return {**fields, **{name: type(timer).__name__ for name, timer in self.timers.items()}}

    def facts(self, text: Text) -> dict[str, str]:
        """Returns the state fields and timers for people."""
        state = [f"{field.name} {text(field.dtype)}" for field in self.fields]
        timers = [f"{name} {timer.domain}" for name, timer in self.timers.items()]
        return {"state": ", ".join(state) or "none", "timers": ", ".join(timers) or "none"}

    def kept(self, cells: pl.DataFrame, now: Mapping[str, int]) -> pl.DataFrame:
        """The cells to store at these times of the clocks: those that are not empty, with their holds."""
        lacks = [pl.lit(None, dtype).alias(name) for name, dtype in self.holding.items() if name not in cells]
        cells = cells.with_columns(*self._forgotten(now), *lacks)
        if not self.expires:
            something = [pl.col(name).is_not_null() for name in self.content]
            cells = cells.filter(pl.any_horizontal(False, *something))
        return cells.with_columns(pl.lit(0, pl.Int64).alias(PENDING), *self._held()).select(list(self.cells))

    def _forgotten(self, now: Mapping[str, int]) -> list[pl.Expr]:
        """The fields, with null for a value equal to its default, and for one that has expired."""
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
                nothing |= (self._gone(field) <= now[clock]).fill_null(True)
                columns.append(pl.when(~nothing).then(field.written).alias(field.written))
            columns.append(pl.when(~nothing).then(field.column).alias(field.column))
        return columns

    def _gone(self, field: FieldColumn) -> pl.Expr:
        """The time (us) from which on no row, not even a late one, can read the value of a field."""
        assert field.ttl is not None
        late = self.allowed_lateness if field.by_event else 0
        latest = MAX_TIME - field.ttl - late
        return pl.min_horizontal(field.written, latest) + (field.ttl + late)

    def _held(self) -> list[pl.Expr]:
        """The least output timestamp of timers that hold, with the name of the timer and its time."""
        found = list(self._holds())
        nothing = pl.lit(None, pl.Int64)
        if not found:
            return [nothing.alias(HOLD), pl.lit(None, pl.String).alias(HOLDER), nothing.alias(UNTIL)]
        least = pl.min_horizontal(hold for _, hold, _ in found)
        who = pl.coalesce(pl.when(hold == least).then(pl.lit(name)) for name, hold, _ in found)
        until = pl.coalesce(pl.when(hold == least).then(time) for _, hold, time in found)
        return [least.alias(HOLD), who.alias(HOLDER), until.alias(UNTIL)]

    def _holds(self) -> Iterator[tuple[str, pl.Expr, pl.Expr]]:
        """Yields for each timer that holds: its name, its least output timestamp, and the time at which that fires."""
        for name, timer in self.timers.items():
            *_, time, output = (pl.col(column) for column in self.timer_columns(name))
            if isinstance(timer, ProcessingTimer) and not timer.hold:
                output = pl.col(*self.hold_columns(name))
                hold = _least(output, time) if timer.family else (output, time)
                yield name, *hold
            elif timer.family:
                yield name, *_least(output, time)
            else:
                yield name, pl.when(time.is_not_null()).then(pl.coalesce(output, time)), time

    @property
    def pending(self) -> pl.Expr:
        """The number of pending timers of a cell."""
        times = {name: pl.col(self.timer_columns(name)[-2]) for name in self.timers}
        counts = [
            time.list.len().fill_null(0) if self.timers[name].family else time.is_not_null()
            for name, time in times.items()
        ]
        return pl.sum_horizontal(0, *counts)

    def deadlines(self) -> dict[str, pl.Expr]:
        """The time (us) on each clock at which a cell is due, for a timer, an expiring field or its window's end."""
        due: dict[str, list[pl.Expr]] = {WATERMARK: [self.expiry], PROCESSING_TIME: []}
        for name, timer in self.timers.items():
            clock = WATERMARK if isinstance(timer, EventTimer) else PROCESSING_TIME
            time = pl.col(self.timer_columns(name)[-2])
            due[clock].append(time.list.min() if timer.family else time)
        for field in self.fields:
            if field.ttl is not None:
                due[WATERMARK if field.by_event else PROCESSING_TIME].append(self._gone(field))
        return {clock: pl.min_horizontal(times) for clock, times in due.items() if times}


def _least(outputs: pl.Expr, times: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """(the least output timestamp of a family, the time at which that timer fires)."""
    first = outputs.list.arg_min()
    return outputs.list.get(first), times.list.get(first)
