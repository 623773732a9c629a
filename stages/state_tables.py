"""The tables in which an operator keeps rows: five kinds, and the protocols by which an operator reads and writes them.

kind           arrivals                          a step loads                         example
WindowTable    may wait in a log                 buckets with due or reached rows     windows that fire at their end
TimeTable      may wait in a log                 buckets of due times                 rows that wait for their turn
KeyedTable     are processed at once             rows of reached or due keys          cells of a process, versions
AppendTable    are appended                      rows by key, on a lookup             rows that joins keep for ever
SharedTable    may wait in a log, on all shards  buckets of due or requested times    the content of a side input
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Final, Protocol, TypeVar

import attrs
import polars as pl

from stages.clock import StepClock
from windowing.clocks import Times


@attrs.frozen
class Spread:
    """The column by whose times rows are placed in buckets, if rows of all keys are due at common times.

    Attributes:
        column: The time of a row (us), a multiple of `step` from some origin on.
        live: The approximate time (us) for which a row lives.
    """

    column: str
    step: int
    live: int


@attrs.frozen(slots=False, eq=False, kw_only=True)
class Table:
    """The description of a table. Each row has the columns `PENDING` and `HOLD`.

    Attributes:
        row: The word for a row, such as "window".
        waits: The state of a row with pending elements, such as "has elements that wait for a pane".
        keys: The columns by which rows are placed on shards.
        bounds: The columns of two times (us), from when to when a row is; reports name a row of a key by them.
        name: The name of the table in its operator; it is a part of keys in the store.
        missing: The values of columns that rows of an earlier plan or version may lack.
        said: The description of a row that holds the watermark, if it is not described by its key.
    """

    row: str
    waits: str
    keys: tuple[str, ...]
    bounds: tuple[str, str]
    schema: pl.Schema
    name: str = ""
    missing: Mapping[str, pl.Expr] = attrs.field(factory=dict)
    said: str = ""

    on_all_shards: ClassVar[bool] = False
    """True if each shard has all rows."""

    @cached_property
    def no_rows(self) -> pl.DataFrame:
        """An empty frame of rows. It is cached, since every step needs it several times."""
        return pl.DataFrame(schema=self.schema)

    @property
    def holding_timer(self) -> pl.Expr:
        """The name of the timer by which a row holds the watermark; null if it holds by something else."""
        return pl.lit(None, pl.String)

    @property
    def pending_timers(self) -> pl.Expr:
        """The number of pending timers of a row."""
        return pl.lit(0)


@attrs.frozen(slots=False, eq=False, kw_only=True)
class BucketTable(Table):
    """A table whose rows are in buckets, by time if there is a `spread`, otherwise by key.

    `incoming` has the columns of arrivals.
    """

    incoming: pl.Schema
    spread: Spread | None = None

    patched: ClassVar[bool] = False
    """True if the log of a bucket contains patches, False if it contains waiting arrivals."""

    @cached_property
    def nothing_incoming(self) -> pl.DataFrame:
        """An empty frame of arrivals."""
        return pl.DataFrame(schema=self.incoming)

    def may_wait_until(self, *, percentiles: bool) -> Mapping[str, pl.Expr] | None:
        """The time, by clock, until which an arrival may wait in a log; None if arrivals must be processed at once.

        `percentiles` is true if percentile watermarks are in use.
        """
        return None

    @property
    def has_hot_rows(self) -> bool:
        """True if rows that are due soon are kept apart from their buckets."""
        return False

    @property
    def rows_merge(self) -> bool:
        """True if rows of a key may become one when an arrival reaches them."""
        return False

    @property
    def in_order(self) -> bool:
        """True if an arrival that reaches a row may not be processed before those that wait in the row's bucket."""
        return False


@attrs.frozen(slots=False, eq=False, kw_only=True)
class WindowTable(BucketTable):
    """Rows such as windows, to which arrivals need not be added before a row is due: they wait in a log.

    Attributes:
        waits_until: The time (us), by clock, until which an arrival may wait.
        holds_as_a_whole: The hold of a row depends on all of its arrivals, so the holds of waiting ones are unknown.
        merges: Rows of a key may become one when an arrival reaches them.
        in_turn: No arrival that reaches a row may be processed before those that wait in the row's bucket.
    """

    waits_until: Mapping[str, pl.Expr]
    holds_as_a_whole: bool = False
    merges: bool = False
    in_turn: bool = False

    def may_wait_until(self, *, percentiles: bool) -> Mapping[str, pl.Expr] | None:
        # A hold that is known only of the whole row cannot be in the histogram of holds while an arrival waits.
        return None if percentiles and self.holds_as_a_whole else self.waits_until

    @property
    def has_hot_rows(self) -> bool:
        # Rows with times of their own would make nearly every bucket due in every step.
        return self.spread is None and bool(self.keys)

    @property
    def rows_merge(self) -> bool:
        return self.merges

    @property
    def in_order(self) -> bool:
        return self.in_turn


@attrs.frozen(slots=False, eq=False, kw_only=True)
class TimeTable(BucketTable):
    """Rows that are placed by time, and that change only when due. Arrivals wait in a log until `waits_until` (us)."""

    spread: Spread
    waits_until: Mapping[str, pl.Expr]

    def may_wait_until(self, *, percentiles: bool) -> Mapping[str, pl.Expr] | None:
        return self.waits_until


@attrs.frozen(slots=False, eq=False, kw_only=True)
class KeyedTable(BucketTable):
    """Rows of which a step needs those of keys that arrivals have, and of keys with a row that is due.

    It needs them only in the buckets of these arrivals and due rows. Of a large bucket a step loads no other rows, and
    what it writes back is stored as a patch.

    Attributes:
        holder: The column with the name of the timer by which a row holds the watermark.
        timers: The number of pending timers of a row.
    """

    holder: str | None = None
    timers: pl.Expr | None = None

    patched: ClassVar[bool] = True

    @property
    def holding_timer(self) -> pl.Expr:
        return super().holding_timer if self.holder is None else pl.col(self.holder)

    @property
    def pending_timers(self) -> pl.Expr:
        return super().pending_timers if self.timers is None else self.timers


@attrs.frozen(slots=False, eq=False, kw_only=True)
class SharedTable(BucketTable):
    """Rows of which every shard has a copy. Arrivals wait in a log until `waits_until` (us), if that is set."""

    waits_until: Mapping[str, pl.Expr] | None = None

    on_all_shards: ClassVar[bool] = True

    def may_wait_until(self, *, percentiles: bool) -> Mapping[str, pl.Expr] | None:
        return self.waits_until


@attrs.frozen(slots=False, eq=False, kw_only=True)
class AppendTable(Table):
    """Rows that are only appended, and looked up by key. They are never due, and hold nothing."""


KINDS: Final = (AppendTable, KeyedTable, SharedTable, TimeTable, WindowTable)
"""The kinds of tables."""

Kind = TypeVar("Kind", bound=Table, covariant=True)


class StateTable(Protocol[Kind]):
    """A table of an operator, and the facts about its rows by which the state finds those that a step needs."""

    @property
    def table(self) -> Kind:
        """The description of the table."""

    @property
    def clocks(self) -> tuple[str, ...]:
        """The names of the clocks that rows may wait for; the watermark is one of them."""

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """The time (us) after `times`, by clock, at which a row must be loaded; null for never."""

    def as_rows(self, incoming: pl.DataFrame, now: Times) -> pl.DataFrame:
        """Converts each waiting arrival to the row that it would be if no other row matched it, as the index needs it.

        Called only for tables whose arrivals may wait.
        """
        return incoming

    def matches(self, incoming: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
        """True for each arrival that becomes part of one of these rows."""
        return pl.repeat(False, len(incoming), dtype=pl.Boolean, eager=True)

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        """Adds waiting arrivals to all rows of the table, which were loaded. The clock does not move."""
        return pl.concat([loaded.rows, loaded.incoming])


class Loaded(Protocol):
    """The rows and arrivals of a table that a step has loaded."""

    @property
    def rows(self) -> pl.DataFrame:
        """The rows that are due or reached, and others that are stored beside them."""

    @property
    def incoming(self) -> pl.DataFrame:
        """The arrivals to process, in order; some have waited."""

    @property
    def overlapping(self) -> pl.DataFrame | None:
        """The keys of which rows may have to become one although no arrival reached them; None if there are none."""

    @property
    def requested(self) -> pl.DataFrame:
        """The rows of requested keys that are not among `rows`. They stay in the table."""


class State(Protocol):
    """The state of a stage in a step of its operator. Each table is loaded at most once, and then written back."""

    @property
    def arrived(self) -> int:
        """The number of elements placed in all previous steps."""

    def load(self, kept: StateTable[BucketTable], incoming: pl.DataFrame) -> Loaded:
        """Loads what a step must process of a table for which these arrivals have come.

        Other arrivals wait in the table.
        """

    def load_between(
        self,
        kept: StateTable[TimeTable | SharedTable],
        incoming: pl.DataFrame,
        between: tuple[int, int] | None,
    ) -> Loaded:
        """Loads, besides, all rows whose times are between these two (us, inclusive); others may be loaded, too."""

    def load_with(
        self, kept: StateTable[KeyedTable], incoming: pl.DataFrame, requested_keys: pl.DataFrame
    ) -> Loaded:
        """Loads, besides, the rows of these keys as `Loaded.requested`. The table must not be spread by time."""

    def write_back(self, kept: StateTable[BucketTable], rows: pl.DataFrame) -> None:
        """Writes rows in place of those that were loaded."""

    def scan(
        self,
        kept: StateTable[BucketTable],
        between: tuple[int, int],
        keys: pl.DataFrame | None = None,
    ) -> pl.DataFrame:
        """Reads rows and waiting arrivals whose times are between these two (us, inclusive), and changes nothing.

        Rows of other times may be returned, too: all rows if the table is not spread by time. With `keys`, only rows
        of these keys are returned.
        """

    def lookup(self, kept: StateTable[AppendTable], keys: pl.DataFrame) -> pl.DataFrame:
        """Reads the rows that have one of these keys; a null matches nothing."""

    def append(self, kept: StateTable[AppendTable], rows: pl.DataFrame) -> None:
        """Appends rows."""
