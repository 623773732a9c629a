"""The base class of joins by time. Both sides arrive through one input, each row as a struct in the column of its
side.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final, Self

import attrs
import polars as pl

from stages.declared import Declaration, Said, Text
from stages.dropped import LATE, late_schema, with_reason
from stages.operator import MAIN, Input, Operator
from windowing.clocks import WATERMARK
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.identity import fields_of
from windowing.time import Microseconds
from windowing.windows import GlobalWindows

LEFT: Final = "left"
RIGHT: Final = "right"
ON_THE_RIGHT: Final = pl.col(RIGHT).is_not_null()
"""An expression that is true for arrivals of the right side."""


@attrs.frozen(slots=False, eq=False)
class TimeJoin(Operator):
    """The base class of joins by time.

    An arrival has the key columns, and its row as a struct in the column "left" or "right"; the other column is null.

    Attributes:
        keys: The key columns.
        schema: The schema of arrivals.
        allowed_lateness: The time (us) for which a late row is still joined.
        late: True if dropped rows are returned with the reason.
        changes: True if rows of some side may retract earlier ones.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    allowed_lateness: int = attrs.field(default=0, kw_only=True)
    late: bool = attrs.field(default=False, kw_only=True)
    changes: bool = attrs.field(default=False, kw_only=True)

    @property
    def text(self) -> str:
        """The kind of the join and its bounds, as text for people."""
        raise NotImplementedError

    @property
    def declared(self) -> Declaration:
        join = fields_of(self, without=("keys", "schema", "allowed_lateness", "late", "changes"))
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
        return {MAIN: Input(self.keys, pl.Schema({**self.row, EVENT_TIME: pl.Int64()}))}

    @property
    def row(self) -> pl.Schema:
        """The schema of an arrival, with a flag for retractions if there may be any."""
        flag = {PANE_RETRACTED: pl.Boolean()} if self.changes else {}
        return pl.Schema({**self.schema, **flag})

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK,)

    @cached_property
    def given(self) -> pl.Schema:
        """The schema of emitted rows: the keys, the structs of both sides, and the event time."""
        columns = {name: self.schema[name] for name in (*self.keys, LEFT, RIGHT)}
        return pl.Schema({**columns, EVENT_TIME: pl.Int64()})

    def columns(self, side: str) -> pl.Schema:
        """Returns the schema of the rows of one side: the keys and the struct."""
        return pl.Schema({**{key: self.schema[key] for key in self.keys}, side: self.schema[side]})

    def shown(self, late: pl.DataFrame, reason: str = LATE) -> pl.DataFrame:
        """Adds the reason to dropped rows; an empty frame if dropped rows are not returned."""
        if not self.late:
            return pl.DataFrame()
        return with_reason(GlobalWindows().assign(late), reason, late_schema(self.row, self.row.names()))
