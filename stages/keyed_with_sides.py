"""The operator of keyed state and timers with side inputs: a row is processed when its window is ready on each side.

    arrivals -> in their windows -> wait for the sides -> wait for the watermark -> the user's function, with the sides
                                    sides.waiting         waiting                   cells; sides, side.<name>

A key and window reads the content of one window of each side: that which contains the last instant of its own. No row
of it is processed before this is ready, so it has no state and no timer until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Protocol, Self

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.operator import MAIN, Input, Operator, StepOutput
from stages.process.keyed import TIMED
from stages.process.stateful import Stateful
from stages.sides.contents import SideContent, SideContents
from stages.sides.declarations import Side
from stages.sides.gate import SAME, SideGate
from stages.sides.operator import sides_facts
from stages.state_tables import State, StateTable, Table
from windowing.clocks import Times
from windowing.columns import WINDOW_END
from windowing.identity import identity_of


class Views(Protocol):
    """The forms in which a user's function reads sides."""

    def values(self, sides: Mapping[str, SideContent]) -> Mapping[str, Any]:
        """Returns the value of each side by its keyword; an `Unavailable` if it could not be made."""


@attrs.frozen(eq=False)
class SeenByCells:
    """The content of sides in a step, as the cells read it."""

    gate: SideGate
    views: Views
    contents: SideContents
    now: Times

    def by_content(self, cells: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, Mapping[str, Any]]]:
        """Divides cells into parts that read the same content. Yields each with the values of the sides by keyword."""
        ends = self.gate.with_readiness(cells.select(WINDOW_END).unique(), self.contents, self.now)
        marked = cells.join(ends.select(WINDOW_END, SAME), on=WINDOW_END, how="left", maintain_order="left")
        for part in marked.partition_by(SAME, maintain_order=True):
            found = dict(self.gate.contents_of(part[WINDOW_END].head(1), self.contents))
            yield part.drop(SAME), self.views.values(found)


@attrs.frozen(slots=False, eq=False)
class KeyedWithSides(Operator):
    """The operator that runs a keyed operator whose function reads side inputs.

    Attributes:
        keyed: The operator of the keyed state and timers.
        sides: The side inputs.
        views: The forms in which the function reads them.
        title: The name of the rows for people.
    """

    keyed: Stateful
    sides: tuple[Side, ...]
    views: Views
    title: str

    @cached_property
    def gate(self) -> SideGate:
        """The sides, and the rows that wait for them."""
        lateness = self.keyed.windowing.allowed_lateness
        return SideGate(self.keyed.pending.schema, self.sides, lateness, self.title, self.keyed.keys)

    @property
    def declared(self) -> Declaration:
        own = self.keyed.declared
        choices = {**own.choices, "sides": self.gate.choices}
        does = {"process": own.does, "views": identity_of(self.views)}
        return attrs.evolve(own, kind=f"{own.kind} with sides", choices=choices, does=does)

    def with_late(self) -> Self:
        return attrs.evolve(self, keyed=self.keyed.with_late())

    def facts(self, text: Text) -> dict[str, str]:
        return {**self.keyed.facts(text), **sides_facts(self.sides, text)}

    @property
    def numbered(self) -> tuple[str, ...]:
        return self.gate.numbered

    @cached_property
    def inputs(self) -> dict[str, Input]:
        return {**self.keyed.inputs, **self.gate.inputs}

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (*self.keyed.tables, *self.gate.tables)

    @property
    def clocks(self) -> tuple[str, ...]:
        return (*self.keyed.clocks, *self.gate.clocks)

    @property
    def timers(self) -> Mapping[str, str]:
        return self.keyed.timers

    @property
    def assigns_windows(self) -> bool:
        return self.keyed.assigns_windows

    @property
    def ordered(self) -> bool:
        return self.keyed.ordered

    @property
    def python(self) -> bool:
        return True

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Updates the content of sides, then processes the rows that need not wait any longer, and cells that are
        due.
        """
        # Sides are updated first, so that a row can read content that arrives in the same step.
        contents = self.gate.updated(state, arrivals, clock)
        accepted = self.keyed.accepted(state, arrivals[MAIN], clock)
        waited, at_once = self.gate.admitted(state, accepted.rows, contents, clock)
        columns = accepted.rows.columns
        ready = pl.concat([waited.select(columns), at_once.select(columns)])
        rows, unmatched = self.keyed.in_order(state, self._with_turn(ready, waited), clock)
        seen = SeenByCells(self.gate, self.views, contents, clock.now)
        return self.keyed.step_output(
            accepted, rows, unmatched, self.keyed.process_with(state, rows, clock, seen)
        )

    def _with_turn(self, rows: pl.DataFrame, waited: pl.DataFrame) -> pl.DataFrame:
        """Adds the column TIMED to rows that are ready; `waited` are those of them that have waited for a side."""
        own = self.keyed.with_turn(rows)
        if self.keyed.order == "arrival" or waited.is_empty():
            return own
        # No row of these keys and windows has been processed, so late rows have their place in the order of time, too.
        begin = waited.select(self.keyed.id).unique().with_columns(pl.lit(1, pl.Int32).alias("__begins"))
        joined = own.join(begin, on=self.keyed.id, how="left", nulls_equal=True, maintain_order="left")
        return joined.with_columns(pl.max_horizontal(TIMED, "__begins").alias(TIMED)).drop("__begins")
