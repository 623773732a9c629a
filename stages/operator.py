"""The protocol of an operator, the inside of a stage: its inputs, its state tables, and its step.

A stage, its state and the runners know an operator by this protocol only. A windowed grouping is one, keyed state
with timers is another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol, Self

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.state_tables import State, StateTable, Table
from windowing.identity import fields_of
from windowing.windowing import Windowing

MAIN: Final = "main"
"""The role of an operator's only input, or of the one beside its side inputs."""

PENDING: Final = "__pending"
"""Column of a row of state: the number of its elements that are in no output yet."""
HOLD: Final = "__hold"
"""Column of a row of state: the time (us) at which these elements hold the output watermark; null if they do not."""
OUTSTANDING_HOLD: Final = "__outstanding_hold"
"""Column of a row of state with output that may be retracted: the time (us) of its hold; null if it does not hold."""


Placed = Literal["by key", "anywhere", "everywhere"]
"""The shards of the rows of an input: that of their key, any shard, or every one."""


@attrs.frozen(eq=False)
class Input:
    """An input of an operator: `schema` contains the columns of its rows, `placed` determines their shards.

    Rows placed "by key" are sent to the shard of their columns `keys`; without any, one shard has all rows.
    `side`: its watermark is a clock of its own, named by the role, and does not count for the stage. `read_fully`: rows
    of the main input wait until this one has ended.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    placed: Placed = "by key"
    side: bool = attrs.field(default=False, kw_only=True)
    read_fully: bool = attrs.field(default=False, kw_only=True)

    @property
    def shared(self) -> bool:
        """True if several shards can share the work."""
        return bool(self.keys) or self.placed != "by key"

    def no_arrivals(self) -> pl.DataFrame:
        """Returns the arrivals of a bundle in which only the clock moves."""
        return pl.DataFrame(schema=self.schema)


@attrs.frozen(eq=False)
class Refused:
    """Rows, usually arrivals, and for each the error of a user's function."""

    rows: pl.DataFrame
    errors: tuple[Exception, ...]


@attrs.frozen(eq=False)
class StepOutput:
    """The output of a step of an operator: its panes, and the counts of arrivals.

    Args:
        panes: The rows that are emitted.
        elements: The number of arrivals, without refused ones.
        placed: The number of arrivals as the state counts them, in each of their windows, dropped ones included.
        emitted: The number of elements, pending ones among them, that are in the output, or took effect, for the first
            time.
        dropped: The number of dropped arrivals by reason.
        late: The dropped arrivals, if they are wanted.
        refused: The rows that could not be used; they are in no count.
        fired: The number of timers that fired.
        used: The number of rows that the user's function could use, if it is called for pending rows as well; None if
            all elements count as used.
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
    """The inside of a stage. It has no state of its own: a step loads rows of its tables and writes rows back.

    Law: its output depends on the arrivals and on the clocks, not on the buckets of rows. A row that is
    not due, and that no arrival reaches, need not be loaded.
    """

    @property
    def inputs(self) -> Mapping[str, Input]:
        """The inputs by role."""

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        """The tables of its state. The rows of the first table are counted as live."""

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clocks that it depends on, by name; the watermark is one of them."""

    @property
    def declared(self) -> Declaration:
        """The operator as a checkpoint compares it; by default, all attributes that it was made with."""
        fields = fields_of(self)
        return Declaration(fields.pop("kind"), fields, exact=True)

    @property
    def numbered(self) -> tuple[str, ...]:
        """The parts of the state whose names depend on the order in which steps are declared."""
        return ()

    def facts(self, text: Text) -> Mapping[str, str]:
        """Describes the operator for people, as in `explain`, by `text`. The first fact says what it does."""
        return {"operator": text(self)}

    @property
    def panes(self) -> Windowing | None:
        """The windowing whose panes the operator emits; None if its rows of state are no windows."""
        return None

    @property
    def timers(self) -> Mapping[str, str]:
        """The timers of the operator by name, each "event" or "processing"."""
        return {}

    @property
    def assigns_windows(self) -> bool:
        """True if rows may arrive without windows, which the operator then assigns."""
        return False

    def with_late(self) -> Self | None:
        """Returns the operator that also returns the rows that it drops; None if there is none."""
        return None

    def needed(self, role: str) -> frozenset[str]:
        """Returns the columns of an input on which the state and the output depend."""
        return frozenset(self.inputs[role].schema)

    @property
    def ordered(self) -> bool:
        """True if its output depends on the order in which rows arrive."""
        return False

    @property
    def python(self) -> bool:
        """True if its steps call functions of the user's."""
        return False

    def pre_aggregated(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Reduces the rows of a task on their way to the shards, if the output stays the same; by default, not."""
        return rows

    def concat_arrivals(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Concatenates the arrivals of a bundle in their order; some may be pre-aggregated."""
        return pl.concat(frames) if frames else self.inputs[MAIN].no_arrivals()

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Processes the arrivals of each input with the watermarks before this step, then moves the clock."""
