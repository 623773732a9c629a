"""The operator with side inputs: a row is processed when the window that it sees is ready on each side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final, Protocol, Self

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Declaration
from stages.dropped import LATE, REASON
from stages.operator import HOLD, MAIN, PENDING, Given, Input, Operator, Refused, State, StateTable, Text
from stages.sides.contents import Contents, Seen
from stages.sides.declarations import Side
from stages.sides.tables import UNTIL, Content, Versions, Waits
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS, WINDOW_END
from windowing.lateness import collected_at
from windowing.time import Microseconds
from windowing.windows import GlobalWindows

_READY: Final = "__ready"
_HOW: Final = {"panes": "in panes", "whole": "when it is over", "readings": "as it was read last"}
_SAME: Final = "__same"
"""Column of rows: a number that rows with the same content of all sides share."""


class Use(Protocol):
    """A computation of rows and of the content that they see. `python`: it calls a function of the user's."""

    @property
    def python(self) -> bool: ...

    @property
    def schema(self) -> pl.Schema:
        """The columns of the results, without those of the engine."""

    def give(self, rows: pl.DataFrame, sides: Mapping[str, Seen]) -> tuple[pl.DataFrame, Refused | None]:
        """Computes (the results of rows that see the same content, with the engine's columns; the refused rows)."""


@attrs.frozen(slots=False, eq=False)
class SideInputs(Operator):
    """Rows of the columns `schema`, processed by `use` with the content that they see of `sides`.

    A row sees the window of a side that contains the last instant of its own. That is ready when it is over, or has had
    a first pane. `late`: dropped rows are returned with the reason. `title`: the name of the rows for people.
    """

    schema: pl.Schema
    sides: tuple[Side, ...]
    use: Use
    allowed_lateness: int = 0
    late: bool = attrs.field(default=False, kw_only=True)
    title: str = attrs.field(default="", kw_only=True)

    @property
    def declared(self) -> Declaration:
        sides = {side.name: {"windows": side.windows, "feed": side.feed} for side in self.sides}
        choices = {"sides": sides, "allowed lateness": Microseconds(self.allowed_lateness)}
        return Declaration("sides", choices, does=self.use)

    def with_late(self) -> Self:
        return attrs.evolve(self, late=True)

    def facts(self, text: Text) -> dict[str, str]:
        sides = [
            f"{side.name} in {text(side.windows)}, {_HOW[side.feed]}, at most {side.limit >> 20} MB a shard"
            for side in self.sides
        ]
        return {"sides": "; ".join(sides)}

    @property
    def numbered(self) -> tuple[str, ...]:
        return tuple(side.name for side in self.sides if side.numbered)

    @property
    def inputs(self) -> dict[str, Input]:
        main = Input((), self.schema, "anywhere")
        return {MAIN: main, **{side.clock: side.input for side in self.sides}}

    @property
    def tables(self) -> tuple[StateTable, ...]:
        return (self.waits, self.versions, *self.contents.values())

    @property
    def python(self) -> bool:
        return self.use.python

    @property
    def clocks(self) -> tuple[str, ...]:
        return (WATERMARK, *(side.clock for side in self.sides))

    @cached_property
    def waits(self) -> Waits:
        """The table of rows that wait."""
        windows = dict.fromkeys(WINDOW_COLUMNS, pl.Int64())
        return Waits(pl.Schema({**self.schema, **windows}), self.sides, self.title)

    @cached_property
    def versions(self) -> Versions:
        """The table of the windows of all sides."""
        return Versions()

    @cached_property
    def contents(self) -> dict[str, Content]:
        """The tables of the rows of each side."""
        return {side.name: Content(side) for side in self.sides}

    @cached_property
    def nothing(self) -> pl.DataFrame:
        """A frame of results without rows."""
        system = {name: dtype for name, dtype in self.schema.items() if name.startswith("__")}
        return pl.DataFrame(schema={**self.use.schema, **system})

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> Given:
        """Updates the sides first, then processes the rows that no longer wait."""
        came = self._placed(arrivals[MAIN])
        over = collected_at(self.allowed_lateness) <= clock.input_before
        late, usable = came.filter(over), came.filter(~over)
        contents = Contents.after(state, self.versions, self.contents, arrivals, clock, self.allowed_lateness)
        fresh = self._looked_at(usable, contents, clock.now)
        waited = self._waited(state, fresh.filter(~pl.col(_READY)), contents, clock)
        at_once, unused = self._give(fresh.filter(_READY), contents)
        later, refused = self._give(waited, contents)
        lost = sum(len(part.rows) for part in unused)
        released = int(fresh[_READY].sum()) - lost + len(waited)
        lost_later = sum(len(part.rows) for part in refused)
        return Given(
            pl.concat([self.nothing, *later, *at_once]),
            len(came) - lost,
            len(came) - lost,
            released,
            {LATE: len(late)} if len(late) else {},
            self._shown(late),
            (*refused, *unused),
            used=released - lost_later,
        )

    def _placed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with their window; the global window for rows without one."""
        return rows if WINDOW_END in self.schema else GlobalWindows().assign(rows)

    def _looked_at(self, rows: pl.DataFrame, contents: Contents, now: Times) -> pl.DataFrame:
        """Adds columns to rows: a flag if they are ready, the time until which they wait for each side, and `_SAME`."""
        ends = rows[WINDOW_END].unique().sort()
        found: dict[str, list[int | None]] = {WINDOW_END: ends.to_list()}
        tokens: list[list[str]] = [[] for _ in ends]
        for side in self.sides:
            windows = side.windows_of(ends)
            until: list[int | None] = []
            for end, own in zip(ends, tokens, strict=True):
                _, stop = windows.get(end, (0, None))
                own.append(contents.seen(side, stop).token)
                until.append(None if self._is_ready(side, stop, contents, now) else stop)
            found[self.waits.until(side)] = until
        numbers: dict[tuple[str, ...], int] = {}
        same = [numbers.setdefault(tuple(own), len(numbers)) for own in tokens]
        looked = pl.DataFrame({**found, _SAME: same}, dict.fromkeys((*found, _SAME), pl.Int64()))
        waits = [pl.col(self.waits.until(side)) for side in self.sides]
        looked = looked.with_columns(pl.min_horizontal(waits).alias(UNTIL)).with_columns(
            pl.col(UNTIL).is_null().alias(_READY)
        )
        asked = rows.drop(UNTIL, *(self.waits.until(side) for side in self.sides), strict=False)
        return asked.join(looked, on=WINDOW_END, how="left", maintain_order="left")

    def _is_ready(self, side: Side, end: int | None, contents: Contents, now: Times) -> bool:
        """True if the window of a side with this end is over, has had a pane, or does not exist."""
        if end is None or now.time(side.clock) >= end:
            return True
        return side.feed != "whole" and (side.name, end) in contents.versions

    def _waited(self, state: State, rows: pl.DataFrame, contents: Contents, clock: StepClock) -> pl.DataFrame:
        """Returns the waiting rows that are ready now; `rows` are added to those that wait."""
        hold = pl.when(pl.col(EVENT_TIME) >= clock.input_before).then(EVENT_TIME).alias(HOLD)
        wait = rows.with_columns(pl.lit(1, pl.Int64).alias(PENDING), hold).select(list(self.waits.rows))
        # The first pane of a window lets the rows pass that wait for it, before it is over.
        first = [
            (one.start + 1, one.end) for one in contents.new if self.contents[one.side].side.feed != "whole"
        ]
        between = (min(start for start, _ in first), max(end for _, end in first)) if first else None
        loaded = state.load(self.waits, wait, between)
        pool = self._looked_at(pl.concat([loaded.rows, loaded.incoming]), contents, clock.now)
        state.write_back(self.waits, pool.filter(~pl.col(_READY)).select(list(self.waits.rows)))
        return pool.filter(_READY)

    def _give(self, rows: pl.DataFrame, contents: Contents) -> tuple[list[pl.DataFrame], list[Refused]]:
        """The results of ready rows, computed once for all rows that see the same content."""
        given, refused = list[pl.DataFrame](), list[Refused]()
        for part in rows.partition_by(_SAME, maintain_order=True):
            sides = dict(self._seen(part, contents))
            made, unused = self.use.give(part.select(list(self.schema)), sides)
            given.append(made.select(self.nothing.columns))
            refused += [] if unused is None else [unused]
        return given, refused

    def _seen(self, rows: pl.DataFrame, contents: Contents) -> Iterator[tuple[str, Seen]]:
        end = rows[WINDOW_END].head(1)
        for side in self.sides:
            _, stop = side.windows_of(end).get(end.item(), (0, None))
            yield side.name, contents.seen(side, stop)

    def _shown(self, late: pl.DataFrame) -> pl.DataFrame:
        """The rows that were too late, with the reason, if they are wanted."""
        if not self.late:
            return pl.DataFrame()
        return late.with_columns(pl.lit(LATE).alias(REASON))
