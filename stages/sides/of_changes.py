"""The operator with side inputs, for rows that may be retracted.

A retraction takes back what its row has given, whatever the content of the sides is by then. If that cannot have
changed, the results of a retraction are computed again, and otherwise the results of rows are stored:

    side    7 ---------- 8
    row        x     x retracted
    given      x,7   x,7 retracted
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.changes import content, summed
from stages.clock import StepClock
from stages.declared import Declaration, Text
from stages.dropped import LATE, REASON, UNMATCHED
from stages.operator import HOLD, MAIN, PENDING, Input, Refused, StepOutput
from stages.sides.contents import SideContents
from stages.sides.gate import SideGate
from stages.sides.operator import SideInputs
from stages.state_tables import KeyedTable, Loaded, State, StateTable, Table
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED, RESERVED_PREFIX, WINDOW_COLUMNS
from windowing.lateness import collected_at, in_time
from windowing.time import MAX_TIME

_RESULTS: Final = "__results"
"""A column of rows that were processed: the list of their results."""
_ROW: Final = "__given"
"""A column with the number of a row in a step."""


@attrs.frozen(slots=False, eq=False)
class GivenResults(StateTable[KeyedTable]):
    """The state table of rows that were processed, with their results, until no retraction of them can arrive.

    `schema` has the columns of a row, with its window. `timed` is true if rows are final by their time, and not by the
    end of their window.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    results: pl.Schema
    allowed_lateness: int
    timed: bool
    clocks = (WATERMARK,)

    @cached_property
    def rows(self) -> pl.Schema:
        """The schema of this state table."""
        own = {_RESULTS: pl.List(pl.Struct(self.results)), PENDING: pl.Int64(), HOLD: pl.Int64()}
        return pl.Schema({**self.schema, **own})

    @cached_property
    def table(self) -> KeyedTable:
        return KeyedTable(
            row="row",
            waits="may be retracted",
            keys=self.keys,
            bounds=WINDOW_COLUMNS,
            schema=self.rows,
            incoming=self.rows,
            name="sides.given",
        )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        final = collected_at(self.allowed_lateness)
        if self.timed:
            longest = self.allowed_lateness + 1
            final = pl.min_horizontal(
                final, pl.col(EVENT_TIME).clip(upper_bound=MAX_TIME - longest) + longest
            )
        return {WATERMARK: final}

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return loaded.rows


@attrs.frozen(slots=False, eq=False)
class SideInputsOfChanges(SideInputs):
    """The operator that processes changes with the content of side inputs."""

    @property
    def declared(self) -> Declaration:
        return attrs.evolve(super().declared, kind="sides of changes")

    @property
    def gives_changes(self) -> bool:
        return True

    def facts(self, text: Text) -> dict[str, str]:
        how = "stores the results of rows" if self.remembers else "computes the results again"
        return {**super().facts(text), "changes": how}

    @property
    def remembers(self) -> bool:
        """True if a row and its retraction may read different contents of a side."""
        return any(side.several for side in self.sides)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns by which a row and its retraction are placed on the same shard."""
        return tuple(
            name
            for name, dtype in self.schema.items()
            if not (name.startswith(RESERVED_PREFIX) or dtype.is_nested() or dtype.is_float())
            and dtype not in (pl.Duration, pl.Object, pl.Null)
        )

    @property
    def inputs(self) -> dict[str, Input]:
        return {**super().inputs, MAIN: Input(self.keys, self.schema)}

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (*super().tables, *((self.given,) if self.remembers else ()))

    @cached_property
    def gate(self) -> SideGate:
        return attrs.evolve(super().gate, keys=self.keys)

    @cached_property
    def given(self) -> GivenResults:
        """The state table of rows that were processed, with their results."""
        return GivenResults(
            self.keys, self.gate.schema, self.use.schema, self.allowed_lateness, timed=not self._in_windows
        )

    @property
    def _in_windows(self) -> bool:
        return {*WINDOW_COLUMNS} <= {*self.schema}

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        """Updates the content of sides, then processes the changes that need not wait any longer."""
        arrived = self._placed(arrivals[MAIN])
        over = self.too_late(clock)
        late, usable = arrived.filter(over), arrived.filter(~over)
        gate = self.gate
        contents = gate.updated(state, arrivals, clock)
        waited, at_once = gate.admitted(state, usable, contents, clock)
        columns = list(gate.schema)
        ready = pl.concat([waited.select(columns), at_once.select(columns)])
        net = gate.with_readiness(summed(ready, content(ready)), contents, clock.now)
        new, back = net.filter(~pl.col(PANE_RETRACTED)), net.filter(PANE_RETRACTED)
        if self.remembers:
            panes, refused, unmatched = self._remembered(state, new, back, contents, clock)
        else:
            (gone, _), (panes, refused) = self._compute(back, contents), self._compute(new, contents)
            panes, unmatched = [*gone, *panes], back.clear()
        lost = sum(len(part.rows) for part in refused)
        dropped = {LATE: len(late), UNMATCHED: len(unmatched)}
        return StepOutput(
            pl.concat([self.nothing, *panes]),
            len(arrived),
            len(arrived),
            len(ready) - lost,
            {reason: count for reason, count in dropped.items() if count},
            self._shown_for(late, unmatched),
            tuple(refused),
            used=len(ready) - lost,
        )

    def too_late(self, clock: StepClock) -> pl.Expr:
        if not self.remembers:
            return super().too_late(clock)
        # The results of a row are stored until it is final, so a later retraction would not find them.
        over = collected_at(self.allowed_lateness) <= clock.input_before
        return over if self._in_windows else over | ~in_time(clock.input_before, self.allowed_lateness)

    def _remembered(
        self, state: State, new: pl.DataFrame, back: pl.DataFrame, contents: SideContents, clock: StepClock
    ) -> tuple[list[pl.DataFrame], list[Refused], pl.DataFrame]:
        """Returns the results of changes, the dead letters, and the retractions of rows that are not there.

        Stores the results of new rows, and removes those of retracted rows.
        """
        table = self.given
        numbered = new.with_row_index(_ROW)
        made, refused = self._compute(numbered, contents, [_ROW])
        arrived = pl.concat([self._as_given(numbered, made), self._as_given(back.with_row_index(_ROW), [])])
        loaded = state.load(table, arrived)
        stored = loaded.rows.with_row_index(_ROW).with_columns(pl.lit(False).alias(PANE_RETRACTED))
        gone = loaded.incoming.filter(PANE_RETRACTED)
        without_number = gone.with_columns(pl.lit(None, pl.get_index_type()).alias(_ROW)).select(
            stored.columns
        )
        net = summed(pl.concat([stored, without_number]), content(arrived))
        left = net.filter(~pl.col(PANE_RETRACTED)).drop(_ROW)
        taken = stored.join(net, on=_ROW, how="anti")
        kept = pl.concat([left, loaded.incoming.filter(~pl.col(PANE_RETRACTED))])
        over = table.deadlines(clock.now)[WATERMARK] <= clock.watermark
        state.write_back(table, kept.select(list(table.rows)).filter(~over))
        panes = [self._retracted(taken), *(part.drop(_ROW) for part in made)]
        return panes, refused, net.filter(PANE_RETRACTED)

    def _as_given(self, rows: pl.DataFrame, made: list[pl.DataFrame]) -> pl.DataFrame:
        """Returns rows with their results, as rows of the state table. A row without results has an empty list."""
        one = pl.struct(list(self.use.schema)).alias(_RESULTS)
        parts = [part.group_by(_ROW, maintain_order=True).agg(one) for part in made]
        schema = {_ROW: pl.get_index_type(), _RESULTS: self.given.rows[_RESULTS]}
        found = pl.concat([pl.DataFrame(schema=schema), *parts])
        nothing = [pl.lit(0, pl.Int64).alias(PENDING), pl.lit(None, pl.Int64).alias(HOLD)]
        with_results = rows.join(found, on=_ROW, how="left", maintain_order="left")
        results = pl.col(_RESULTS).fill_null(pl.lit([], self.given.rows[_RESULTS]))
        return with_results.with_columns(results, *nothing).select(list(self.given.rows))

    def _retracted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns the results of processed rows, as retractions."""
        each = rows.explode(_RESULTS, empty_as_null=False, keep_nulls=False)
        results = [pl.col(_RESULTS).struct.field(name) for name in self.use.schema]
        system = [name for name in self.nothing.columns if name not in self.use.schema]
        retracted = each.with_columns(pl.lit(True).alias(PANE_RETRACTED))
        return retracted.select(*results, *system).select(self.nothing.columns)

    def _shown_for(self, late: pl.DataFrame, unmatched: pl.DataFrame) -> pl.DataFrame:
        """Adds their reasons to dropped rows; an empty frame if dropped rows are not returned."""
        shown = self._shown(late)
        if not self.late:
            return shown
        others = unmatched.with_columns(pl.lit(UNMATCHED).alias(REASON)).select(shown.columns)
        return pl.concat([shown, others])
