"""The inside of a stage: what comes to it, what it keeps, and what it makes of both when its clocks move.

A stage, its state and the runners know an operator by this protocol alone. A windowed grouping is one of them, keyed
state with timers is another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, Protocol, Self

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Declaration
from windowing.clocks import Times
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


@attrs.frozen
class Spread:
    """Rows that are due at the same times for all keys: buckets of state are cut by that time.

    `column` has the time in microseconds, a multiple of `step` from some origin on. Rows live for about `live`
    microseconds of event time.
    """

    column: str
    step: int
    live: int


@attrs.frozen(slots=False, eq=False)
class Table:
    """What is to be known of the rows of a table that an operator keeps. Each has the columns `PENDING` and `HOLD`.

    `row` is what one is called, and `waits` what those with pending elements do: "has elements that wait for a pane".
    `name` tells a table from the others of its operator. `keys` are the columns by which rows are placed; `bounds` are
    two columns of times, in microseconds, from when to when a row is, by which people tell it from others of its key.
    `schema` is that of the rows, `incoming` that of arrivals that have been admitted. `missing` are columns that rows
    of an earlier plan or version may lack.

    Arrivals may wait beside the rows, unread, until a clock reaches its time in `waits_until`, or until
    a row of their bucket is due; where that is None, they are looked at as they come. `holds_as_a_whole`: where
    arrivals that wait hold the watermark is known only together with the rows that they become part of.

    `by_key`: rows are only added, and found by key; nothing is ever due of it, or holds.

    `visited_by_key`: a step needs only the rows of keys that arrivals have, and of keys of which a row is due, in the
    buckets of these arrivals and rows; no arrivals wait. Of a large bucket it is shown no others, and what it leaves is
    put beside them.

    `merges`: rows of a key may become one where arrivals reach them. `in_turn`: no arrival that reaches a row may be
    taken before those of its bucket that wait. `holder` is the column that says of a row which timer of it holds
    the watermark, and `timers` how many it has, where there are any. `copied`: every shard has all of its rows. `said`
    is what is said of a row of it that holds the watermark, where that is not by its key.
    """

    row: str
    waits: str
    keys: tuple[str, ...]
    bounds: tuple[str, str]
    schema: pl.Schema
    incoming: pl.Schema
    missing: Mapping[str, pl.Expr] = attrs.field(factory=dict)
    spread: Spread | None = None
    waits_until: Mapping[str, pl.Expr] | None = None
    holds_as_a_whole: bool = False
    merges: bool = False
    in_turn: bool = False
    by_key: bool = False
    visited_by_key: bool = False
    name: str = ""
    holder: str | None = None
    timers: pl.Expr | None = None
    copied: bool = False
    said: str = ""

    @cached_property
    def no_rows(self) -> pl.DataFrame:
        """State without rows. What is empty is made once: it would be made several times in every step."""
        return pl.DataFrame(schema=self.schema)

    @cached_property
    def nothing_incoming(self) -> pl.DataFrame:
        """Admitted arrivals without rows."""
        return pl.DataFrame(schema=self.incoming)


def side_name(role: str) -> str:
    """Returns the name of the side that has this role."""
    return role.removeprefix(SIDE)


class StateTable(Protocol):
    """A table of an operator, and what its state must know of the rows to find those that a step has to look at."""

    @property
    def table(self) -> Table:
        """What is to be known of its rows."""

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clocks that its rows may wait for, by name; the watermark is one of them."""

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Of each clock the time after `times`, in microseconds, at which a row must be looked at; null: none."""

    def as_rows(self, incoming: pl.DataFrame, now: Times) -> pl.DataFrame:
        """Admitted arrivals as the rows that they would be if there were no others: what is known of those that wait.

        It is asked only where arrivals may wait.
        """
        return incoming

    def matches(self, incoming: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
        """Of each of these admitted arrivals, whether it becomes part of one of these rows."""
        return pl.repeat(False, len(incoming), dtype=pl.Boolean, eager=True)

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        """All rows of the table, arrivals that waited among them; the clock does not move."""
        return pl.concat([loaded.rows, loaded.incoming])


class Loaded(Protocol):
    """What a step looks at of a table: rows, and arrivals for them, of which some may have waited.

    Of the keys in `unmerged`, rows may have to become one although nothing has come.
    """

    @property
    def rows(self) -> pl.DataFrame:
        """Those that are due, and others that lie with them."""

    @property
    def incoming(self) -> pl.DataFrame:
        """Arrivals, in order."""

    @property
    def overlapping(self) -> pl.DataFrame | None:
        """Keys."""

    @property
    def requested(self) -> pl.DataFrame:
        """Rows that were asked for and are not among `rows`: they stay as they are."""


class State(Protocol):
    """What a stage has kept, as a step of its operator finds it. Each table is visited once, and then left."""

    @property
    def arrived(self) -> int:
        """How much was placed in all steps before."""

    def load(
        self,
        kept: StateTable,
        incoming: pl.DataFrame,
        between: tuple[int, int] | None = None,
        requested_keys: pl.DataFrame | None = None,
    ) -> Loaded:
        """What must be looked at of a table when these arrivals, with the columns of `incoming`, have come for it.

        Of one that is spread by time, what lies `between` two times (us), too. Of one that is visited by key and not
        spread, the rows of `requested_keys` are read, too, and stay as they are.
        """

    def scan(
        self, kept: StateTable, between: tuple[int, int], keys: pl.DataFrame | None = None
    ) -> pl.DataFrame:
        """The rows, and what waits, that lie between two times (us) in a table that is spread by time; others may, too.

        Only those of these keys, if any are given. Nothing is changed.
        """

    def lookup(self, kept: StateTable, keys: pl.DataFrame) -> pl.DataFrame:
        """The rows of a table that is `by_key` which have one of these keys; null is none."""

    def append(self, kept: StateTable, rows: pl.DataFrame) -> None:
        """Has these rows, too, in a table that is `by_key`."""

    def write_back(self, kept: StateTable, rows: pl.DataFrame) -> None:
        """Has these rows in place of those that were looked at."""


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
    def tables(self) -> tuple[StateTable, ...]:
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


@attrs.frozen
class Admitted:
    """The arrivals of a bundle: those that may become part of the state are `incoming`.

    The counts are those of `Given`. `aside` is what the operator itself will ask for when it advances.
    """

    incoming: pl.DataFrame
    elements: int = 0
    placed: int = 0
    refused: Refused | None = None
    aside: Any = None


@attrs.frozen
class Advanced:
    """What comes of rows and arrivals: the rows that live on; the others as in `Given`."""

    rows: pl.DataFrame
    panes: pl.DataFrame
    emitted: int
    dropped: Mapping[str, int] = attrs.field(factory=dict)
    late: pl.DataFrame = attrs.field(factory=pl.DataFrame)


class OneTable(Operator, StateTable, Protocol):
    """An operator with one table: arrivals are admitted, meet the rows that they reach, and then the clocks move."""

    @property
    def tables(self) -> tuple[StateTable, ...]:
        """Its own."""
        return (self,)

    def admit(self, arrivals: Mapping[str, pl.DataFrame], clock: StepClock, arrived: int) -> Admitted:
        """Admits the arrivals, by role, that may become part of the state.

        `arrived` is how many rows were placed in all steps before.
        """

    def advance(
        self,
        rows: pl.DataFrame,
        admitted: Admitted,
        clock: StepClock,
        unmerged: pl.DataFrame | None,
    ) -> Advanced:
        """Processes arrivals with the watermarks before this step, then moves the clock.

        Rows of the keys in `unmerged` may have to become one although nothing has arrived for them.
        """

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        """Arrivals that waited have become part of the rows."""
        return self.advance(loaded.rows, Admitted(loaded.incoming), clock, loaded.overlapping).rows

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> Given:
        """Looks once at what is due or reached."""
        admitted = self.admit(arrivals, clock, state.arrived)
        loaded = state.load(self, admitted.incoming)
        reached = attrs.evolve(admitted, incoming=loaded.incoming)
        advanced = self.advance(loaded.rows, reached, clock, loaded.overlapping)
        state.write_back(self, advanced.rows)
        return Given(
            advanced.panes,
            admitted.elements,
            admitted.placed,
            advanced.emitted,
            dict(advanced.dropped),
            advanced.late,
            () if admitted.refused is None else (admitted.refused,),
        )
