"""Operators in order of time over changes with allowed lateness: corrects what was emitted, by processing rows again.

    allowed lateness 5 s, running total   emitted          watermark 20 s
    rows of 9 s: 3, of 19 s: 1            (3, 3), (1, 4)
    correction: 19 s has 6 in place of 1  retracts (1, 4), emits (6, 9)

A step has two phases, of which only the second may be corrected later. So only this one has snapshots:

    phase    rows and timers up to watermark - allowed lateness  |  rows and timers up to the watermark
    stored   the cells, at the end                               |  snapshots, with the state at the bar
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

import attrs
import polars as pl

from stages.changes import difference
from stages.clock import StepClock, Watermarks
from stages.declared import Text
from stages.operator import HOLD, PENDING, Refused
from stages.pending_rows import left_of
from stages.process.by_cell import ByCell, CellsOutput
from stages.process.keyed import CELL, TIMED, Result, touched
from stages.process.operator import KeyedProcess
from stages.process.running import Running
from stages.process.snapshots import (
    BEFORE,
    EMITTED,
    ENDS,
    FAILED,
    FIRING,
    FIRINGS,
    ORDINAL,
    REPLACES,
    ROWS,
    Past,
    Snapshots,
)
from stages.state_tables import State, StateTable, Table
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.time import MIN_TIME, format_duration

_AGAIN: Final = "__again"
"""A column of emitted rows during a step: true if their cell is processed again."""


@attrs.frozen(eq=False)
class Phase:
    """The rows and cells of one phase, and its results.

    Attributes:
        cells: The cells that have rows or are due, before the phase.
        rows: The rows, sorted by cell and time.
        output: The results.
        after: All cells after the phase.
    """

    cells: pl.DataFrame
    rows: pl.DataFrame
    output: CellsOutput
    after: pl.DataFrame


@attrs.frozen(slots=False, eq=False)
class Replayed(ByCell):
    """The base class of operators in order of time that correct what they emitted, within the allowed lateness."""

    @cached_property
    def snapshots(self) -> Snapshots:
        """The state table of snapshots."""
        cell = self.cells.table.schema
        return Snapshots(self.keys, self.schema, cell, self.emitted, self.windowing.allowed_lateness)

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self.cells, self.pending, self.snapshots)

    @property
    def gives_changes(self) -> bool:
        return True

    def facts(self, text: Text) -> dict[str, str]:
        lateness = format_duration(self.windowing.allowed_lateness)
        return {**super().facts(text), "changes": f"corrects what it emitted in the last {lateness}"}

    def remaining(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        return rows, rows.clear()  # a retraction may be of a row that was processed in an earlier step

    def process_rows(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Result:
        """Processes new rows, and corrected cells again from the earliest correction on."""
        corrected = (
            rows.filter(pl.col(TIMED) == 0).group_by(self.id).agg(pl.col(EVENT_TIME).min().alias(REPLACES))
        )
        past = self.snapshots.find(state, corrected, clock.input_before)
        left, unmatched = self._left(past, rows)
        ids = pl.concat([corrected.select(self.id), left.select(self.id)]).unique(maintain_order=True)
        loaded = state.load(self.cells, ids.select(list(self.cells.table.incoming)))
        cells = pl.concat([_without(loaded.rows, past.ids), past.cells])
        phases = self._phases(cells, left, clock, corrected)
        last = phases[-1]
        state.write_back(self.cells, last.after)
        self._store(state, last, corrected, clock)
        refused = [self._refused(phase, past) for phase in phases]
        emitted = pl.concat(self._panes(phase, past.ids) for phase in phases)
        return Result(
            self._changes(past, emitted),
            tuple(one for each, _ in refused for one in each),
            sum(phase.output.fired for phase in phases),
            sum(count for _, count in refused),
            unmatched,
        )

    def _left(self, past: Past, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Divides rows and those of snapshots into (rows that are left, retractions without a row)."""
        again = past.rows.with_columns(pl.lit(False).alias(PANE_RETRACTED))
        arrived = rows.with_columns(pl.lit(False).alias(FAILED)).select(again.columns)
        left, unmatched = left_of(pl.concat([again, arrived]), list(self.schema))
        return left.with_columns(pl.lit(1).alias(TIMED)), unmatched

    def _phases(
        self, cells: pl.DataFrame, rows: pl.DataFrame, clock: StepClock, corrected: pl.DataFrame
    ) -> list[Phase]:
        """Processes rows and timers that are final, then those that may be corrected."""
        final = max(clock.watermark - self.windowing.allowed_lateness, MIN_TIME)
        is_final = pl.col(EVENT_TIME) < final
        # Cells that are processed again need a new snapshot, since otherwise corrections would reach ever further back.
        # Others have one phase, as methods can see its watermark, which must not depend on the rows of other cells.
        both = pl.concat([corrected.select(self.id), rows.filter(is_final).select(self.id)]).unique()
        if clock.at_end or both.is_empty():
            return [self._phase(cells, rows, _until(clock, clock.watermark))]
        divided = cells.join(both, on=self.id, how="semi", nulls_equal=True, maintain_order="left")
        first = self._phase(divided, rows.filter(is_final), _until(clock, final))
        cells = pl.concat([_without(cells, both), first.after])
        return [first, self._phase(cells, rows.filter(~is_final), _until(clock, clock.watermark))]

    def _phase(self, cells: pl.DataFrame, rows: pl.DataFrame, clock: StepClock) -> Phase:
        ids = rows.select(self.id).unique(maintain_order=True)
        active, idle = touched(cells, ids, self.due(clock), self.id)
        ordered = self.by_cell(active, rows)
        output = self.process_cells(active, ordered, clock)
        return Phase(active, ordered, output, pl.concat([idle, output.cells]))

    def _panes(self, phase: Phase, again: pl.DataFrame) -> pl.DataFrame:
        """Returns the emitted rows of a phase, with a flag for cells that are processed `again`."""
        panes = phase.output.panes
        flags = _among(phase.cells, again, self.id)
        return panes.with_columns(flags.gather(panes[CELL]).alias(_AGAIN)).drop(CELL)

    def _changes(self, past: Past, emitted: pl.DataFrame) -> pl.DataFrame:
        """Returns new rows, after the differences for cells that are processed again."""
        again, new = emitted.filter(_AGAIN).drop(_AGAIN), emitted.filter(~pl.col(_AGAIN)).drop(_AGAIN)
        before = past.emitted.select(again.columns)
        return pl.concat([difference(before, again), new.with_columns(pl.lit(False).alias(PANE_RETRACTED))])

    def _refused(self, phase: Phase, past: Past) -> tuple[tuple[Refused, ...], int]:
        """Returns the dead letters of a phase, and the number of their rows, without those that are known already."""
        known = phase.rows[FAILED]
        rows = [failure for failure in phase.output.failed if not known[failure[0]]]
        ids = phase.cells.select(self.id)
        firings = [
            (cell, firing, error)
            for cell, firing, error in phase.output.failed_firings
            if (*ids.row(cell), *firing) not in past.firings
        ]
        new = attrs.evolve(phase.output, failed=rows, failed_firings=firings)
        return self.refused(new, phase.rows, phase.cells), len(rows)

    def _store(self, state: State, phase: Phase, corrected: pl.DataFrame, clock: StepClock) -> None:
        """Stores snapshots of the last phase, and removes those whose rows cannot be corrected any more."""
        new = self.snapshots.table.no_rows
        if not clock.at_end:
            new = self._snapshots_of(phase, corrected).with_columns(
                pl.lit(state.arrived + bool(len(corrected)), pl.Int64).alias(ORDINAL),
                pl.lit(clock.watermark, pl.Int64).alias(ENDS),
                pl.lit(0, pl.Int64).alias(PENDING),
            )
        loaded = state.load(self.snapshots, new.select(list(self.snapshots.schema)))
        over = self.snapshots.deadlines(clock.now)[WATERMARK] <= clock.watermark
        state.write_back(self.snapshots, pl.concat([loaded.rows, loaded.incoming]).filter(~over))

    def _snapshots_of(self, phase: Phase, corrected: pl.DataFrame) -> pl.DataFrame:
        """Returns a snapshot of each cell that has rows or is due in the phase, or is processed again."""
        to_id: dict[str, Any] = {"on": self.id, "how": "left", "nulls_equal": True, "maintain_order": "left"}
        active = phase.cells.select(self.id).with_row_index(CELL)
        others = _without(corrected.select(self.id), active)
        known = phase.cells.filter(pl.col(PENDING).is_not_null())
        unchanged = phase.after.join(others, on=self.id, how="semi", nulls_equal=True)
        before = pl.concat([known, unchanged]).select(*self.id, pl.struct(pl.exclude(self.id)).alias(BEFORE))
        snapshots = pl.concat([active, others], how="diagonal").join(before, **to_id).join(corrected, **to_id)
        for content in self._contents(phase):
            snapshots = snapshots.join(content, on=CELL, how="left", maintain_order="left")
        return snapshots

    def _contents(self, phase: Phase) -> Iterator[pl.DataFrame]:
        """Yields columns of snapshots, each with the column CELL: rows, emitted rows, failed firings, and holds."""
        output, lateness = phase.output, self.windowing.allowed_lateness
        failed = pl.Series(FAILED, [False]).new_from_index(0, len(phase.rows))
        failed = failed.scatter([place for place, _ in output.failed], True)
        rows = phase.rows.with_columns(pl.col(FAILED) | failed)
        yield _lists(rows, ROWS, [*self.schema, EVENT_TIME, FAILED])
        yield _lists(output.panes, EMITTED, [*self.emitted, EVENT_TIME])
        firings = [(cell, *firing) for cell, firing, _ in output.failed_firings]
        yield _lists(pl.DataFrame(firings, {CELL: pl.UInt32(), **FIRING}, orient="row"), FIRINGS, [*FIRING])
        # A row that was emitted with an earlier time than its call could be too late downstream when it is retracted.
        early = output.panes[list(output.early)].group_by(CELL)
        yield early.agg((pl.col(EVENT_TIME).min() + lateness).alias(HOLD))


def _lists(rows: pl.DataFrame, name: str, columns: Sequence[str]) -> pl.DataFrame:
    """Returns a list of structs of these columns for each cell."""
    return rows.group_by(CELL).agg(pl.struct(columns).alias(name))


def _until(clock: StepClock, watermark: int) -> StepClock:
    """Returns the clock of a phase, in which no row is late."""
    now = Times({**clock.now.times, WATERMARK: watermark})
    return StepClock(Watermarks(), clock.previous, now)


def _without(rows: pl.DataFrame, ids: pl.DataFrame) -> pl.DataFrame:
    """Leaves out the rows that have one of these keys and windows."""
    on = [name for name in ids.columns if name != CELL]
    return rows.join(ids, on=on, how="anti", nulls_equal=True, maintain_order="left")


def _among(rows: pl.DataFrame, ids: pl.DataFrame, on: list[str]) -> pl.Series:
    """Returns a mask of the rows that have one of these keys and windows."""
    marks = ids.select(on).with_columns(pl.lit(True).alias(_AGAIN))
    joined = rows.select(on).join(marks, on=on, how="left", nulls_equal=True, maintain_order="left")
    return joined[_AGAIN].fill_null(False)


@attrs.frozen(slots=False, eq=False)
class RunningOfChanges(Replayed, Running):
    """The operator of running aggregates that corrects its results."""

    kind: ClassVar[str] = "running of changes"


@attrs.frozen(slots=False, eq=False)
class ProcessOfChanges(Replayed, KeyedProcess):
    """The operator of a user's `Process` that corrects what its methods emitted, by calling them again."""

    kind: ClassVar[str] = "process of changes"
