"""The operator with side inputs: a row is processed when the window that it reads is ready on each side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, Protocol, Self

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.dropped import LATE, REASON
from stages.operator import MAIN, Input, Operator, Refused, StepOutput
from stages.sides.contents import SideContent, SideContents
from stages.sides.declarations import Side
from stages.sides.gate import SAME, SideGate
from stages.state_tables import State, StateTable, Table
from windowing.clocks import WATERMARK
from windowing.columns import WINDOW_COLUMNS, WINDOW_END
from windowing.lateness import collected_at
from windowing.time import Microseconds
from windowing.windows import GlobalWindows

_HOW: Final = {
    "panes": "in panes",
    "whole": "when it is over",
    "readings": "as it was read last",
    "growing": "as it grows",
}


class Use(Protocol):
    """A computation from rows of the main input and the content of sides."""

    @property
    def python(self) -> bool:
        """True if the computation calls Python functions of the user."""

    @property
    def schema(self) -> pl.Schema:
        """The user's columns of the results, without system columns."""

    def compute(
        self, rows: pl.DataFrame, sides: Mapping[str, SideContent]
    ) -> tuple[pl.DataFrame, Refused | None]:
        """Computes the results of rows, with system columns, and their dead letters, from the contents of `sides`."""


@attrs.frozen(slots=False, eq=False)
class SideInputs(Operator):
    """The operator that processes rows of the main input with the content of side inputs.

    A row reads, of each side, the window that contains the last instant of the row's own window. That window is ready
    when it is over, or when its first content has arrived. Until then the row waits.

    Attributes:
        schema: The schema of arriving rows.
        sides: The side inputs.
        use: The computation from rows and the content of sides.
        allowed_lateness: The allowed lateness of rows (us).
        late: True if dropped rows are returned with the reason.
        title: The name of the rows for people.
    """

    schema: pl.Schema
    sides: tuple[Side, ...]
    use: Use
    allowed_lateness: int = 0
    late: bool = attrs.field(default=False, kw_only=True)
    title: str = attrs.field(default="", kw_only=True)

    @property
    def declared(self) -> Declaration:
        choices = {"sides": self.gate.choices, "allowed lateness": Microseconds(self.allowed_lateness)}
        return Declaration("sides", choices, does=self.use)

    def with_late(self) -> Self:
        return attrs.evolve(self, late=True)

    def facts(self, text: Text) -> dict[str, str]:
        return sides_facts(self.sides, text)

    @property
    def numbered(self) -> tuple[str, ...]:
        return self.gate.numbered

    @property
    def inputs(self) -> dict[str, Input]:
        return {MAIN: Input((), self.schema, "anywhere"), **self.gate.inputs}

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return self.gate.tables

    @property
    def python(self) -> bool:
        return self.use.python

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK, *self.gate.clocks)

    @cached_property
    def gate(self) -> SideGate:
        """The sides, and the rows that wait for them."""
        windows = dict.fromkeys(WINDOW_COLUMNS, pl.Int64())
        schema = pl.Schema({**self.schema, **windows})
        return SideGate(schema, self.sides, self.allowed_lateness, self.title)

    @cached_property
    def nothing(self) -> pl.DataFrame:
        """An empty frame of results."""
        system = {name: dtype for name, dtype in self.schema.items() if name.startswith("__")}
        return pl.DataFrame(schema={**self.use.schema, **system})

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Updates the content of sides, then processes the rows that need not wait any longer."""
        arrived = self._placed(arrivals[MAIN])
        over = self.too_late(clock)
        late, usable = arrived.filter(over), arrived.filter(~over)
        # Sides are updated first, so that a row can read content that arrives in the same step.
        contents = self.gate.updated(state, arrivals, clock)
        waited, ready = self.gate.admitted(state, usable, contents, clock)
        at_once, unused = self._compute(ready, contents)
        later, refused = self._compute(waited, contents)
        lost = sum(len(part.rows) for part in unused)
        released = len(ready) - lost + len(waited)
        lost_later = sum(len(part.rows) for part in refused)
        return StepOutput(
            pl.concat([self.nothing, *later, *at_once]),
            len(arrived) - lost,
            len(arrived) - lost,
            released,
            {LATE: len(late)} if len(late) else {},
            self._shown(late),
            (*refused, *unused),
            used=released - lost_later,
        )

    def too_late(self, clock: StepClock) -> pl.Expr:
        """Returns an expression that is true for rows that are dropped, since the content that they read may be gone.

        The content of a side in the global window is kept until the end, so no row that reads only such sides is late.
        """
        if all(isinstance(side.windows, GlobalWindows) for side in self.sides):
            return pl.lit(False)
        return collected_at(self.allowed_lateness) <= clock.input_before

    def _placed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds the global window to rows, if they have no windows."""
        return rows if WINDOW_END in self.schema else GlobalWindows().assign(rows)

    def _compute(
        self, rows: pl.DataFrame, contents: SideContents, carried: Sequence[str] = ()
    ) -> tuple[list[pl.DataFrame], list[Refused]]:
        """Computes the results and dead letters of ready rows, once for all rows that read the same content.

        Results also have the columns `carried` of their rows.
        """
        given, refused = list[pl.DataFrame](), list[Refused]()
        for part in rows.partition_by(SAME, maintain_order=True):
            sides = dict(self.gate.contents_of(part[WINDOW_END].head(1), contents))
            made, unused = self.use.compute(part.select(*self.schema, *carried), sides)
            given.append(made.select(*self.nothing.columns, *carried))
            refused += [] if unused is None else [unused]
        return given, refused

    def _shown(self, late: pl.DataFrame) -> pl.DataFrame:
        """Adds the reason to dropped late rows; an empty frame if dropped rows are not returned."""
        if not self.late:
            return pl.DataFrame()
        return late.with_columns(pl.lit(LATE).alias(REASON))


def sides_facts(sides: Iterable[Side], text: Text) -> dict[str, str]:
    """Describes sides for people; `text` formats windows."""
    each = [
        f"{side.name} in {text(side.windows)}, {_HOW[side.feed]}, at most {side.limit >> 20} MB a shard"
        for side in sides
    ]
    return {"sides": "; ".join(each)}
