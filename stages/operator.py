"""The inside of a stage: what comes to it, what it keeps, and what it makes of both when its clocks move.

A stage, its state and the runners know an operator by this protocol alone. A windowed grouping is one of them, keyed
state with timers is another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Protocol, Self

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Declaration
from stages.state_tables import State, StateTable, Table
from windowing.identity import fields_of
from windowing.windowing import Windowing

MAIN: Final = "main"
"""The role of an operator's only input, or of the one that others go beside."""

SIDE: Final = "side."
"""The beginning of the role of a side, before its name."""

Text = Callable[[object], str]
"""Writes a value for people, as a user would declare it: a window function, a trigger, an aggregate, a type."""

PENDING: Final = "__pending"
"""Of a row of state: elements in it that are in no output yet."""
HOLD: Final = "__hold"
"""Of a row of state: where these elements hold the output watermark, in microseconds; null: nowhere."""
OUTSTANDING_HOLD: Final = "__outstanding_hold"
"""Of a row of state, if its operator takes back what it gave: where that holds the output watermark; null: nowhere."""


Placed = Literal["by key", "anywhere", "everywhere"]
"""Where rows of an input go: to the shard of their key, to any shard, or to every one."""


@attrs.frozen(eq=False)
class Input:
    """What comes to an operator in one role: `schema` has the columns of its rows, `placed` says on which shards.

    Where that is by key, `keys` are the columns that say so; without any, one shard has them all. `read_fully`: rows of
    the main input wait until this one has ended.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    placed: Placed = "by key"
    read_fully: bool = attrs.field(default=False, kw_only=True)

    @property
    def shared(self) -> bool:
        """Whether several shards can share the work."""
        return bool(self.keys) or self.placed != "by key"

    def no_arrivals(self) -> pl.DataFrame:
        """The arrivals of a bundle in which only the clock moves."""
        return pl.DataFrame(schema=self.schema)


def side_name(role: str) -> str:
    """Returns the name of the side that has this role."""
    return role.removeprefix(SIDE)


@attrs.frozen
class Refused:
    """Rows, arrivals as a rule, and for each what a user's function has raised."""

    rows: pl.DataFrame
    errors: tuple[Exception, ...]


@attrs.frozen
class Given:
    """What a step of an operator gives: its panes, and what became of the arrivals.

    `elements` came in all; `placed` counts each as often as the state does, those that are dropped included. `emitted`
    of them, and of those that waited, are in what is given, or have had their effect, for the first time. How many were
    `dropped`, why, and which, if somebody wants to see them as `late`. Those that were `refused` are in no count.
    `fired`: how many timers. `used`: how many rows the user's function could use, where it is called for rows that may
    have waited; None where all elements count as used.
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
    """The inside of a stage. It keeps nothing itself: its rows are given to it, and are what it leaves.

    Law: what it gives depends on what came and on where the clocks stood, not on how rows lie in buckets. A row that is
    not due, and that no arrival reaches, need not be shown to it.
    """

    @property
    def inputs(self) -> Mapping[str, Input]:
        """What comes to it, by role."""

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        """What it keeps. The rows of the first are those that are counted as live."""

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clocks by which it does something, by name; the watermark is one of them."""

    @property
    def declared(self) -> Declaration:
        """The operator as a checkpoint compares it; by default, all that it was made with."""
        fields = fields_of(self)
        return Declaration(fields.pop("kind"), fields)

    @property
    def numbered(self) -> tuple[str, ...]:
        """The parts of its state whose names depend on the order in which steps are declared."""
        return ()

    def facts(self, text: Text) -> Mapping[str, str]:
        """The operator for people, as in `explain`; the first fact says what it does.

        `text` writes values as a user would declare them.
        """
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
        """The columns of an input on which the state and the results depend."""
        return frozenset(self.inputs[role].schema)

    @property
    def ordered(self) -> bool:
        """Whether what it gives depends on the order in which rows come."""
        return False

    @property
    def python(self) -> bool:
        """Whether its steps call functions of the user's."""
        return False

    def shrunk(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of one task on their way to its shards: fewer, where it needs no more to give the same."""
        return rows

    def together(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The arrivals of a bundle, of which some may have been shrunk, in their order as one frame."""
        return pl.concat(frames) if frames else self.inputs[MAIN].no_arrivals()

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> Given:
        """Processes the arrivals of each input with the watermarks before this step, then moves the clock."""
