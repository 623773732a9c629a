"""The gate of rows that read sides: the content of each side, and the rows that wait until their window is ready."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import attrs
import polars as pl

from stages.clock import StepClock
from stages.operator import HOLD, PENDING, Input
from stages.sides.contents import SideContent, SideContents, is_over
from stages.sides.declarations import Side
from stages.sides.tables import UNTIL, ContentVersions, SideRows, WaitingRows
from stages.state_tables import State, StateTable, Table
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, WINDOW_END
from windowing.windows import GlobalWindows

READY: Final = "__ready"
SAME: Final = "__same"
"""The column with a number that is equal for rows that read the same content of all sides."""


@attrs.frozen(slots=False, eq=False)
class SideGate:
    """The sides of an operator, and the rows of its main input that wait for them.

    A row reads, of each side, the window that contains the last instant of the row's own window. That window is ready
    when it is over, or when its first content has arrived. Until then the row waits.

    Attributes:
        schema: The schema of rows with their window, as they wait.
        sides: The side inputs.
        allowed_lateness: The allowed lateness of rows (us).
        title: The name of the rows for people.
        keys: The columns by which rows are placed on shards, if they are not on any shard.
        window: The column that identifies the window of a row, from which the sides find the window that it reads.
    """

    schema: pl.Schema
    sides: tuple[Side, ...]
    allowed_lateness: int
    title: str
    keys: tuple[str, ...] = ()
    window: str = WINDOW_END

    @property
    def inputs(self) -> dict[str, Input]:
        """The inputs of the sides by role."""
        return {side.clock: side.input for side in self.sides}

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        """The state tables: of waiting rows, of versions, and of the rows of each side."""
        return (self.waits, self.versions, *self.contents.values())

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clocks of the sides."""
        return tuple(side.clock for side in self.sides)

    @property
    def numbered(self) -> tuple[str, ...]:
        """The names of sides that depend on the order in which steps are declared."""
        return tuple(side.name for side in self.sides if side.numbered)

    @property
    def choices(self) -> dict[str, object]:
        """The description of each side that a checkpoint compares, by name."""
        return {
            side.name: {
                "windows": side.windows,
                "feed": side.feed,
                **({"newest of": side.newest_of} if side.newest_of else {}),
                **({"firing": side.firing} if side.firing else {}),
            }
            for side in self.sides
        }

    @cached_property
    def waits(self) -> WaitingRows:
        """The state table of rows that wait for a side."""
        return WaitingRows(self.schema, self.sides, self.title, self.keys)

    @cached_property
    def versions(self) -> ContentVersions:
        """The state table with a description of each window's content, for all sides."""
        return ContentVersions()

    @cached_property
    def contents(self) -> dict[str, SideRows]:
        """The state table of rows of each side, by its name."""
        return {side.name: SideRows(side) for side in self.sides}

    def updated(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> SideContents:
        """Returns the content of the sides after the arrivals of this step, and stores it."""
        return SideContents.after(state, self.versions, self.contents, arrivals, clock, self.allowed_lateness)

    def with_readiness(self, rows: pl.DataFrame, contents: SideContents, now: Times) -> pl.DataFrame:
        """Adds columns to rows: whether they are ready, the window end that they wait for on each side, and `SAME`."""
        # All rows of one window read the same content, so this is computed once for each window.
        ends = rows[self.window].unique().sort()
        found: dict[str, list[Any]] = {self.window: ends.to_list()}
        # Tokens identify content, so windows of equal tokens on all sides can be computed together.
        tokens: list[list[str]] = [[] for _ in ends]
        for side in self.sides:
            windows = side.windows_of(ends)
            until: list[int | None] = []
            for end, own in zip(ends, tokens, strict=True):
                _, stop = windows.get(end, (0, None))
                own.append(contents.content(side, stop).token)
                until.append(None if self._is_ready(side, stop, contents, now) else stop)
            found[self.waits.until(side)] = until
        numbers: dict[tuple[str, ...], int] = {}
        same = [numbers.setdefault(tuple(own), len(numbers)) for own in tokens]
        schema = {**dict.fromkeys((*found, SAME), pl.Int64()), self.window: ends.dtype}
        readiness = pl.DataFrame({**found, SAME: same}, schema)
        waits = [pl.col(self.waits.until(side)) for side in self.sides]
        readiness = readiness.with_columns(pl.min_horizontal(waits).alias(UNTIL)).with_columns(
            pl.col(UNTIL).is_null().alias(READY)
        )
        asked = rows.drop(UNTIL, *(self.waits.until(side) for side in self.sides), strict=False)
        return asked.join(readiness, on=self.window, how="left", nulls_equal=True, maintain_order="left")

    def _is_ready(self, side: Side, end: int | None, contents: SideContents, now: Times) -> bool:
        """True if the window of a side with this end is over, has content already, or does not exist."""
        if end is None or now.time(side.clock) >= end:
            return True
        return side.feed != "whole" and (side.name, end) in contents.versions

    def is_gone(self, rows: pl.DataFrame, clock: StepClock) -> pl.Series:
        """Returns a flag for each row: true if it reads a window of a side whose content an earlier step removed."""
        windows = rows[self.window].unique()
        gone = [
            window
            for side in self.sides
            if not isinstance(side.windows, GlobalWindows)
            for window, (_, end) in side.windows_of(windows).items()
            if is_over(end, side, clock.previous, self.allowed_lateness)
        ]
        return rows[self.window].is_in(pl.Series(gone, dtype=windows.dtype).implode()).fill_null(False)

    def admitted(
        self, state: State, rows: pl.DataFrame, contents: SideContents, clock: StepClock
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Returns the rows that have waited and are ready now, and those among `rows` that need not wait."""
        fresh = self.with_readiness(rows, contents, clock.now)
        waited = self.released(state, fresh.filter(~pl.col(READY)), contents, clock)
        return waited, fresh.filter(READY)

    def released(
        self, state: State, rows: pl.DataFrame, contents: SideContents, clock: StepClock
    ) -> pl.DataFrame:
        """Returns the waiting rows that are ready now. Adds `rows` to those that wait."""
        hold = pl.when(pl.col(EVENT_TIME) >= clock.input_before).then(EVENT_TIME).alias(HOLD)
        wait = rows.with_columns(pl.lit(1, pl.Int64).alias(PENDING), hold).select(list(self.waits.rows))
        # Rows may wait for windows that are not over and whose first content has arrived in this step.
        sides = {name: table.side for name, table in self.contents.items()}
        first = [
            sides[one.side].readers_of(one.start, one.end)
            for one in contents.new
            if sides[one.side].feed != "whole"
        ]
        between = (min(start for start, _ in first), max(end for _, end in first)) if first else None
        loaded = state.load_between(self.waits, wait, between)
        pool = self.with_readiness(pl.concat([loaded.rows, loaded.incoming]), contents, clock.now)
        state.write_back(self.waits, pool.filter(~pl.col(READY)).select(list(self.waits.rows)))
        return pool.filter(READY)

    def contents_of(self, window: pl.Series, contents: SideContents) -> Iterator[tuple[str, SideContent]]:
        """Yields the content of each side, by name, that rows of this window read."""
        for side in self.sides:
            _, stop = side.windows_of(window).get(window.item(), (0, None))
            yield side.name, contents.content(side, stop)
