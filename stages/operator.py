"""The protocol of an operator, the computation of a stage: its inputs, its state tables, and its step.

A stage, its state and the runners use an operator only through this protocol. Examples are a windowed grouping, and
keyed state with timers.

    arrivals by input, clock  -->  Operator.step  -->  StepOutput: panes, counts, dropped rows, dead letters
                                     |       ^
              load, scan, lookup     |       |    write_back, append
                                     v       |
                              State: the operator's tables
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, Literal, Protocol, Self

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.state_tables import State, StateTable, Table
from windowing.columns import PANE_RETRACTED
from windowing.identity import fields_of
from windowing.windowing import Windowing

MAIN: Final = "main"
"""The role of the input that is no side input, if an operator has one such input."""

PENDING: Final = "__pending"
"""A column of each row of state: the number of the row's elements that are in no output yet."""
HOLD: Final = "__hold"
"""A column of each row of state: the time (us) at which its pending elements hold the output watermark, or null."""
OUTSTANDING_HOLD: Final = "__outstanding_hold"
"""A column of rows of state: the time (us) at which a pane that may be retracted holds the watermark, or null."""


Placed = Literal["by key", "anywhere", "everywhere"]
"""The shards to which a row of an input is sent: the shard of its key, any one shard, or all shards."""


@attrs.frozen(slots=False, eq=False)
class Input:
    """An input of an operator.

    Attributes:
        keys: The columns that determine the shard of a row if it is placed "by key". Without keys, one shard has all
            rows.
        schema: The columns of its rows.
        placed: The shards to which a row is sent: "by key", "anywhere" (any one shard) or "everywhere" (all shards).
        side: True for a side input. Its watermark is a clock named by the role of the input, and does not limit the
            input watermark of the stage.
        read_fully: True if rows of the main input wait until this input has ended.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    placed: Placed = "by key"
    side: bool = attrs.field(default=False, kw_only=True)
    read_fully: bool = attrs.field(default=False, kw_only=True)

    @property
    def shared(self) -> bool:
        """True if the rows of this input can be processed on several shards."""
        return bool(self.keys) or self.placed != "by key"

    def no_arrivals(self) -> pl.DataFrame:
        """Returns an empty frame of arrivals."""
        return self._nothing

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.schema)


@attrs.frozen(eq=False)
class Refused:
    """Rows that became dead letters, usually arrivals, and for each the error that a user's function raised."""

    rows: pl.DataFrame
    errors: tuple[Exception, ...]


@attrs.frozen(eq=False)
class StepOutput:
    """The output of a step of an operator: its panes, and the counts of arrivals.

    Args:
        panes: The emitted rows.
        elements: The number of arrivals, without refused ones.
        placed: The number of arrivals, dropped ones included. An arrival in several windows counts once in each.
        emitted: The number of elements, from this and earlier steps, that are in output for the first time or have
            changed the state for good.
        dropped: The number of dropped arrivals by reason.
        late: The dropped arrivals, if the plan uses them.
        refused: The rows that became dead letters; they are in no count.
        fired: The number of timers that fired.
        used: The number of rows, pending ones included, that the user's function processed without an error; None if
            it is the number of elements.
    """

    panes: pl.DataFrame
    elements: int
    placed: int
    emitted: int
    dropped: Mapping[str, int] = attrs.field(factory=dict)
    late: pl.DataFrame = attrs.field(factory=pl.DataFrame)
    refused: tuple[Refused, ...] = ()
    fired: int = 0
    used: int | None = None


class Operator(Protocol):
    """The computation of a stage. The object has no state: a step loads rows of its tables, and writes rows back.

    Law: The output depends on the arrivals and the clocks, not on which further rows are loaded. A row that is not due
    and matches no arrival need not be loaded.
    """

    @property
    def inputs(self) -> Mapping[str, Input]:
        """The inputs of the operator by role."""

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        """The state tables of the operator. Rows of the first table are counted as live."""

    @property
    def clocks(self) -> tuple[str, ...]:
        """The names of the clocks that the operator depends on, including the watermark."""

    @property
    def declared(self) -> Declaration:
        """The description of the operator that a checkpoint stores and compares; by default, all of its attributes."""
        fields = fields_of(self)
        return Declaration(fields.pop("kind"), fields, exact=True)

    @property
    def numbered(self) -> tuple[str, ...]:
        """The names of parts of the state that depend on the order in which steps are declared."""
        return ()

    def facts(self, text: Text) -> Mapping[str, str]:
        """Describes the operator for people, as in `explain`; `text` formats values. The first fact is its purpose."""
        return {"operator": text(self)}

    @property
    def panes(self) -> Windowing | None:
        """The windowing of the panes that the operator emits; None if its rows of state are no windows."""
        return None

    @property
    def timers(self) -> Mapping[str, str]:
        """The kind, "event" or "processing", of each timer of the operator by name."""
        return {}

    @property
    def gives_changes(self) -> bool:
        """True if a row that it emits may retract an earlier one: its rows have the flag `PANE_RETRACTED`."""
        return False

    def accepts_changes(self, role: str) -> bool:
        """True if rows of an input may retract earlier ones, which the flag `PANE_RETRACTED` of its rows shows."""
        return PANE_RETRACTED in self.inputs[role].schema

    @property
    def assigns_windows(self) -> bool:
        """True if the operator itself assigns windows to rows that arrive without them."""
        return False

    def with_late(self) -> Self | None:
        """Returns a copy whose steps also return the rows that they drop; None if the operator drops no rows."""
        return None

    def needed(self, role: str) -> frozenset[str]:
        """Returns the columns of an input that the operator uses. Other columns are not sent to it."""
        return frozenset(self.inputs[role].schema)

    @property
    def ordered(self) -> bool:
        """True if the output depends on the order in which rows arrive."""
        return False

    @property
    def python(self) -> bool:
        """True if a step calls Python functions of the user."""
        return False

    def pre_aggregated(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Reduces the rows of a task before they are sent to the shards, without a change of the output.

        By default, returns all rows.
        """
        return rows

    def concat_arrivals(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Concatenates frames of arrivals in order; some may be the output of `pre_aggregated`."""
        return pl.concat(frames) if frames else self.inputs[MAIN].no_arrivals()

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Processes the arrivals of each input with the watermarks before this step, then advances the clocks."""
