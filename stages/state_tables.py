"""The five kinds of state tables, and the protocols by which an operator reads and writes them.

kind           arrivals                          a step loads                         example
WindowTable    may wait in a log                 buckets with due or matching rows    windows that fire at their end
TimeTable      may wait in a log                 buckets of due times                 rows to process in order of time
KeyedTable     are processed at once             rows of arriving or due keys         cells of a process, versions
AppendTable    are appended                      rows by key, on a lookup             rows that joins keep for ever
SharedTable    may wait in a log, on all shards  buckets of due or requested times    the content of a side input
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Final, NotRequired, Protocol, TypedDict, TypeVar

import attrs
import polars as pl

from stages.clock import StepClock
from windowing.clocks import Times


@attrs.frozen
class Spread:
    """The placement of rows in buckets by the times of a column, for tables in which all keys are due at common times.

    Attributes:
        column: The column with the time of a row (us).
        step: The interval (us) between possible times.
        live: The approximate time (us) for which a row stays in the table.
    """

    column: str
    step: int
    live: int


@attrs.frozen(slots=False, eq=False, kw_only=True)
class Table:
    """The description of a state table. Each row has the columns `PENDING` and `HOLD`.

    Attributes:
        row: The word for a row in reports, such as "window".
        waits: The description of a row with pending elements, such as "has elements that wait for a pane".
        keys: The columns that determine the shard of a row.
        bounds: The two columns of a row's first and last time (us), by which reports name it, such as window bounds.
        schema: The columns of a row.
        name: The name of the table, unique in its operator; a part of its keys in the store.
        missing: An expression for each column that rows of an earlier plan or version may lack.
        said: The description of a row that holds the watermark, if its key does not describe it.
        may_be_new: True if state of earlier versions lacks the table, and continues with an empty one.
        pickled: Descriptions of the columns with pickled objects of users. Loading one runs code that its writer chose.
    """

    row: str
    waits: str
    keys: tuple[str, ...]
    bounds: tuple[str, str]
    schema: pl.Schema
    name: str = ""
    missing: Mapping[str, pl.Expr] = attrs.field(factory=dict)
    said: str = ""
    may_be_new: bool = False
    pickled: tuple[str, ...] = ()

    on_all_shards: ClassVar[bool] = False
    """True if each shard has a copy of all rows."""

    @cached_property
    def no_rows(self) -> pl.DataFrame:
        """An empty frame with the columns of a row."""
        # Cached, since every step needs it several times.
        return pl.DataFrame(schema=self.schema)

    @property
    def has_timers(self) -> bool:
        """True if rows may have pending timers."""
        return False

    @property
    def holding_timer(self) -> pl.Expr:
        """An expression for the name of the timer by which a row holds the watermark; null if no timer holds it."""
        return pl.lit(None, pl.String)

    @property
    def pending_timers(self) -> pl.Expr:
        """An expression for the number of pending timers of a row."""
        return pl.lit(0)


@attrs.frozen(slots=False, eq=False, kw_only=True)
class BucketTable(Table):
    """A table whose rows are placed in buckets: by time if there is a `spread`, otherwise by key.

    Attributes:
        incoming: The columns of arrivals.
        spread: The placement of rows by time, if any.
        ends_silently: True if nothing is emitted for a row that is due, and each row is due at the end of input. Then
            rows are removed without being read.
    """

    incoming: pl.Schema
    spread: Spread | None = None
    ends_silently: bool = False

    patched: ClassVar[bool] = False
    """True if the log of a bucket contains patches; false if it contains waiting arrivals."""

    @cached_property
    def nothing_incoming(self) -> pl.DataFrame:
        """An empty frame with the columns of arrivals."""
        return pl.DataFrame(schema=self.incoming)

    def may_wait_until(self, *, percentiles: bool) -> Mapping[str, pl.Expr] | None:
        """Returns expressions, by clock, for the time (us) until which an arrival may wait in a log. None if none may
        wait.

        `percentiles` is true if percentile watermarks are in use.
        """
        return None

    @property
    def has_due_soon_buffer(self) -> bool:
        """True if rows that are due soon are stored in a buffer, apart from their buckets."""
        return False

    @property
    def rows_merge(self) -> bool:
        """True if an arrival may merge several rows of its key into one, as it may merge sessions."""
        return False

    @property
    def in_order(self) -> bool:
        """True if arrivals for a row must be processed in order of arrival, waiting ones before new ones."""
        return False


class BucketFacts(TypedDict):
    """The arguments that each kind of table in buckets needs, for an operator that chooses the kind."""

    row: str
    waits: str
    keys: tuple[str, ...]
    bounds: tuple[str, str]
    schema: pl.Schema
    incoming: pl.Schema
    missing: NotRequired[Mapping[str, pl.Expr]]
    ends_silently: NotRequired[bool]
    pickled: NotRequired[tuple[str, ...]]


@attrs.frozen(slots=False, eq=False, kw_only=True)
class WindowTable(BucketTable):
    """A table of rows, such as windows, that need their arrivals only when they are due. Until then arrivals wait.

    Attributes:
        waits_until: Expressions, by clock, for the time (us) until which an arrival may wait in a log; None if it may
            not wait.
        holds_as_a_whole: True if the hold of a row depends on all of its arrivals, so that the hold of a waiting
            arrival is unknown.
        merges: True if an arrival may merge several rows of its key into one.
        in_turn: True if arrivals for a row must be processed in order of arrival, waiting ones before new ones.
    """

    waits_until: Mapping[str, pl.Expr] | None
    holds_as_a_whole: bool = False
    merges: bool = False
    in_turn: bool = False

    def may_wait_until(self, *, percentiles: bool) -> Mapping[str, pl.Expr] | None:
        # The histogram of holds needs the hold of each waiting arrival, which is unknown if rows hold as a whole.
        return None if percentiles and self.holds_as_a_whole else self.waits_until

    @property
    def has_due_soon_buffer(self) -> bool:
        # If each row is due at a time of its own, nearly every bucket would be due in every step.
        return self.spread is None and bool(self.keys)

    @property
    def rows_merge(self) -> bool:
        return self.merges

    @property
    def in_order(self) -> bool:
        return self.in_turn


@attrs.frozen(slots=False, eq=False, kw_only=True)
class TimeTable(BucketTable):
    """A table of rows that are placed by time and change only when due.

    Arrivals wait in a log until `waits_until`: expressions, by clock, for a time (us).

    Attributes:
        overstay: The time (us) for which a large bucket may keep overdue rows, to remove many together; readers leave
            them out. 0 if nothing may be kept, since the removal of a row has effects. It should be at most the time
            for which a row is live.
    """

    spread: Spread
    waits_until: Mapping[str, pl.Expr]
    overstay: int = 0

    def may_wait_until(self, *, percentiles: bool) -> Mapping[str, pl.Expr] | None:
        return self.waits_until


@attrs.frozen(slots=False, eq=False, kw_only=True)
class KeyedTable(BucketTable):
    """A table of which a step loads only the rows of keys that have an arrival or a due row.

    From a large bucket a step loads only these rows, and their new versions are stored as a patch. A small bucket is
    loaded whole.

    Attributes:
        holder: The column with the name of the timer by which a row holds the watermark, if there are timers.
        timers: An expression for the number of pending timers of a row, if there are timers.
    """

    holder: str | None = None
    timers: pl.Expr | None = None

    patched: ClassVar[bool] = True

    @property
    def has_timers(self) -> bool:
        return self.timers is not None or self.holder is not None

    @property
    def holding_timer(self) -> pl.Expr:
        return super().holding_timer if self.holder is None else pl.col(self.holder)

    @property
    def pending_timers(self) -> pl.Expr:
        return super().pending_timers if self.timers is None else self.timers


@attrs.frozen(slots=False, eq=False, kw_only=True)
class SharedTable(BucketTable):
    """A table of which every shard has a copy.

    If `waits_until` is set, arrivals wait in a log until then: expressions, by clock, for a time (us).
    """

    waits_until: Mapping[str, pl.Expr] | None = None

    on_all_shards: ClassVar[bool] = True

    def may_wait_until(self, *, percentiles: bool) -> Mapping[str, pl.Expr] | None:
        return self.waits_until


@attrs.frozen(slots=False, eq=False, kw_only=True)
class AppendTable(Table):
    """A table whose rows are only appended, and looked up by key. They are never due and never hold the watermark."""


KINDS: Final = (AppendTable, KeyedTable, SharedTable, TimeTable, WindowTable)
"""The classes of tables that an operator may have."""

Kind = TypeVar("Kind", bound=Table, covariant=True)


class StateTable(Protocol[Kind]):
    """A state table with the functions that depend on the operator: deadlines of rows, and matches of arrivals."""

    @property
    def table(self) -> Kind:
        """The description of the table: its kind, columns and keys."""

    @property
    def clocks(self) -> tuple[str, ...]:
        """The names of the clocks that rows may wait for, including the watermark."""

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns expressions, by clock, for the next time (us) after `times` at which a row must be loaded; null for
        never.
        """

    @cached_property
    def timing(self) -> tuple[bytes, ...]:
        """The encoded expressions of the deadlines. If two tables have the same, equal rows have equal deadlines."""
        deadlines = self.deadlines(Times())
        return tuple(deadlines[clock].meta.serialize() for clock in sorted(deadlines))

    def as_rows(self, incoming: pl.DataFrame, now: Times) -> pl.DataFrame:
        """Converts each waiting arrival to a row of its own, for the index. Called only if arrivals may wait."""
        return incoming

    def matches(self, incoming: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
        """Returns a flag for each arrival: true if it becomes part of one of `rows`."""
        return pl.repeat(False, len(incoming), dtype=pl.Boolean, eager=True)

    def merged(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Leaves out rows that cancel each other, where several runs of an append-only table become one."""
        return rows

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        """Merges waiting arrivals into rows, with all of the table loaded. The clock does not move."""
        return pl.concat([loaded.rows, loaded.incoming])


class Loaded(Protocol):
    """The rows and arrivals that a step has loaded from a table."""

    @property
    def rows(self) -> pl.DataFrame:
        """The rows that are due or match an arrival, and possibly other rows of their buckets."""

    @property
    def incoming(self) -> pl.DataFrame:
        """The arrivals to process, in order of arrival; the first ones may have waited."""

    @property
    def overlapping(self) -> pl.DataFrame | None:
        """Keys whose rows may need a merge although they have no arrival in this step; None if there are none."""

    @property
    def requested(self) -> pl.DataFrame:
        """The rows of the requested keys, except those that are among `rows`. They stay in the table."""


class State(Protocol):
    """The state of a stage during a step. A table is loaded at most once, and must be written back once if loaded."""

    @property
    def arrived(self) -> int:
        """The number of elements that the stage received in all previous steps, each counted once in every window."""

    def load(self, state_table: StateTable[BucketTable], incoming: pl.DataFrame) -> Loaded:
        """Loads the due rows of a table, and the rows that these arrivals need. Arrivals that may wait are stored."""

    def load_between(
        self,
        state_table: StateTable[TimeTable | SharedTable],
        incoming: pl.DataFrame,
        between: tuple[int, int] | None,
    ) -> Loaded:
        """Like `load`, but loads all rows with times in `between` (us, inclusive), too, and possibly further rows."""

    def load_with(
        self, state_table: StateTable[KeyedTable], incoming: pl.DataFrame, requested_keys: pl.DataFrame
    ) -> Loaded:
        """Like `load`, but reads the rows of `requested_keys`, too, as `Loaded.requested`.

        The table must not be spread by time.
        """

    def write_back(self, state_table: StateTable[BucketTable], rows: pl.DataFrame) -> None:
        """Replaces all loaded rows of a table by `rows`."""

    def scan(
        self,
        state_table: StateTable[BucketTable],
        between: tuple[int, int],
        keys: pl.DataFrame | None = None,
    ) -> pl.DataFrame:
        """Reads rows and waiting arrivals with times in `between` (us, inclusive), without loading the table.

        Rows with other times may be returned, too: all rows if the table is not spread by time. With `keys`, only rows
        of these keys are returned.
        """

    def lookup(self, state_table: StateTable[AppendTable], keys: pl.DataFrame) -> pl.DataFrame:
        """Reads the rows that have one of these keys. A null key matches no row."""

    def append(self, state_table: StateTable[AppendTable], rows: pl.DataFrame) -> None:
        """Appends rows to a table."""
