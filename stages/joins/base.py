"""The base of joins by time: rows of two sides, each as a struct, with equal keys."""

from __future__ import annotations

from functools import cached_property
from typing import Final, Self

import attrs
import polars as pl

from stages.declared import Declaration, Said
from stages.dropped import LATE, late_schema, with_reason
from stages.operator import MAIN, Input, Operator, Text
from windowing.clocks import WATERMARK
from windowing.columns import EVENT_TIME
from windowing.identity import fields_of
from windowing.time import Microseconds
from windowing.windows import GlobalWindows

LEFT: Final = "left"
RIGHT: Final = "right"
ON_THE_RIGHT: Final = pl.col(RIGHT).is_not_null()
"""True for arrivals of the right side."""


@attrs.frozen(slots=False, eq=False)
class TimeJoin(Operator):
    """Arrivals have the key columns and their row as a struct in "left" or "right"; the other column is null.

    `late`: dropped rows are returned with the reason.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    allowed_lateness: int = attrs.field(default=0, kw_only=True)
    late: bool = attrs.field(default=False, kw_only=True)

    @property
    def text(self) -> str:
        """The kind of the join and its bounds, in words."""
        raise NotImplementedError

    @property
    def declared(self) -> Declaration:
        join = fields_of(self, without=("keys", "schema", "allowed_lateness", "late"))
        choices = {"join": Said(join, self.text), "allowed lateness": Microseconds(self.allowed_lateness)}
        return Declaration(join["kind"], choices)

    @property
    def assigns_windows(self) -> bool:
        return True

    def with_late(self) -> Self:
        return attrs.evolve(self, late=True)

    def facts(self, text: Text) -> dict[str, str]:
        return {"join": self.text, "keys": ", ".join(self.keys)}

    @cached_property
    def inputs(self) -> dict[str, Input]:
        return {MAIN: Input(self.keys, pl.Schema({**self.schema, EVENT_TIME: pl.Int64()}))}

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK,)

    @cached_property
    def given(self) -> pl.Schema:
        """The columns of emitted rows: keys, both sides and the time."""
        columns = {name: self.schema[name] for name in (*self.keys, LEFT, RIGHT)}
        return pl.Schema({**columns, EVENT_TIME: pl.Int64()})

    def columns(self, side: str) -> pl.Schema:
        """The keys and the struct of a side."""
        return pl.Schema({**{key: self.schema[key] for key in self.keys}, side: self.schema[side]})

    def shown(self, late: pl.DataFrame) -> pl.DataFrame:
        """The rows that were too late, with the reason, if they are wanted."""
        if not self.late:
            return pl.DataFrame()
        return with_reason(GlobalWindows().assign(late), LATE, late_schema(self.schema, self.schema.names()))
