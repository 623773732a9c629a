"""The operator of a user's `Process`: calls its methods for rows and timers, and stores the state of each key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import attrs
import polars as pl

from stages.clock import StepClock
from stages.operator import HOLD, Refused
from stages.process.by_cell import ByCell, CellsOutput
from stages.process.call_log import CallLog, CallPlan
from stages.process.cells import NO_SIDES
from stages.process.declarations import Process
from stages.process.executor import Executor, Take
from stages.process.keyed import CELL, TIMED, Result, touched
from stages.process.stateful import SidesOfCells, Stateful
from stages.state_tables import State
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.identity import fields_of, function_of
from windowing.python_rows import Objects, unusable

AsColumns = Callable[[Sequence[Any]], tuple[pl.DataFrame, Mapping[int, str]]]
"""A function that converts emitted items to a frame of the declared columns.

It also returns, by position, the reason for each item that does not fit; its row is null.
"""


def _same(item: Any) -> Any:
    return item


@attrs.frozen(slots=False, eq=False)
class KeyedProcess(ByCell, Stateful):
    """The operator that calls the methods of a user's object. `results` converts emitted items to a frame."""

    process: Process
    results: AsColumns
    objects: Objects | None = attrs.field(default=None, kw_only=True)
    """The objects that `element` receives; by default dicts."""
    taking: Callable[[], Take] = attrs.field(default=lambda: _same, kw_only=True)
    """Makes a function that takes the values of an emitted item, which the method may change afterwards."""
    kind: ClassVar[str] = "process"

    @property
    def does(self) -> object:
        return {"class": function_of(type(self.process)), "with": fields_of(self.process)}

    def usable(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Refused, ...]]:
        """Divides rows into usable ones, and those that the method cannot receive, with the reasons."""
        wrong = unusable(rows, self.objects)
        if not wrong:
            return rows, ()
        numbers = sorted(wrong)
        fits = pl.repeat(True, len(rows), eager=True).scatter(numbers, False)
        if self.sums:
            # The row that such a retraction retracts is a dead letter already.
            numbers = [one for one in numbers if not rows[PANE_RETRACTED][one]]
        return rows.filter(fits), (Refused(rows[numbers], tuple(ValueError(wrong[one]) for one in numbers)),)

    @cached_property
    def emitted(self) -> pl.Schema:
        return self.results([])[0].schema

    def due(self, clock: StepClock) -> pl.Expr:
        return self.layout.due(clock.now.times)

    def process_with(self, state: State, rows: pl.DataFrame, clock: StepClock, sides: SidesOfCells) -> Result:
        loaded = state.load(self.cells, rows.select(self.id).unique(maintain_order=True))
        cells, idle = touched(loaded.rows, loaded.incoming, self.due(clock), self.id)
        parts = [
            self._with_sides(part, rows, clock, values)
            for part, values in (sides.by_content(cells) if len(cells) else [(cells, {})])
        ]
        outputs = [output for output, _ in parts]
        state.write_back(self.cells, pl.concat([idle, *(output.cells for output in outputs)]))
        return Result(
            pl.concat([output.panes.drop(CELL) for output in outputs]),
            tuple(refused for _, each in parts for refused in each),
            sum(output.fired for output in outputs),
            sum(len(output.failed) for output in outputs),
        )

    def _with_sides(
        self, cells: pl.DataFrame, rows: pl.DataFrame, clock: StepClock, sides: Mapping[str, Any]
    ) -> tuple[CellsOutput, tuple[Refused, ...]]:
        """Processes those of the rows that belong to these cells, and returns the result and the dead letters."""
        own = rows.join(cells, on=self.id, how="semi", nulls_equal=True, maintain_order="left")
        ordered = self.by_cell(cells, own)
        output = self.process_cells(cells, ordered, clock, sides)
        return output, self.refused(output, ordered, cells)

    def process_cells(
        self, cells: pl.DataFrame, rows: pl.DataFrame, clock: StepClock, sides: Mapping[str, Any] = NO_SIDES
    ) -> CellsOutput:
        if cells.is_empty():
            return CellsOutput(self._stamped(self.results([])[0], CallLog(), cells), self.cells.table.no_rows)
        log, panes, after = self._until_it_fits(self._plan(cells, rows, sides), clock)
        stored = self.layout.kept(after, clock.now.times)
        return CellsOutput(panes, stored, log.fired, log.refused_rows, log.refused_firings, log.early)

    def _plan(self, cells: pl.DataFrame, ordered: pl.DataFrame, sides: Mapping[str, Any]) -> CallPlan:
        """Prepares the calls of a step: computes where the rows of each cell begin."""
        counts = ordered.group_by(CELL).agg(
            pl.len().cast(pl.Int64).alias("rows"), (pl.col(TIMED) == 0).sum().cast(pl.Int64).alias("at_once")
        )
        numbers = pl.DataFrame({CELL: pl.int_range(len(cells), dtype=pl.UInt32, eager=True)})
        each = numbers.join(counts, on=CELL, how="left", maintain_order="left").fill_null(0)
        ends = each["rows"].cum_sum()
        return CallPlan(
            cells,
            [0, *ends.to_list()],
            (ends - each["rows"] + each["at_once"]).to_list(),
            ordered.select(list(self.schema)),
            ordered[EVENT_TIME].to_list(),
            ordered[PANE_RETRACTED].to_list() if self.retracted else None,
            # A row that has waited for a side arrived before the watermark reached its time, even if it is there now.
            ordered[HOLD].is_null().to_list() if sides else None,
            sides,
        )

    def _until_it_fits(self, plan: CallPlan, clock: StepClock) -> tuple[CallLog, pl.DataFrame, pl.DataFrame]:
        """Runs all cells, and returns the log, the emitted rows and the new cells.

        Cells with values that do not fit their columns are run again, call by call.
        """
        call_by_call, take = frozenset[int](), self.taking()
        while True:
            executor = Executor(
                self.process, self.layout, plan, clock, self._check, call_by_call, take, self.objects
            )
            log = executor.run()
            frame, wrong = self.results(log.items)
            after, misfits = executor.state.after(executor.dead)
            again = misfits | {log.cells[number] for number in wrong}
            if again <= call_by_call:
                return log, self._stamped(frame, log, plan.state), after
            call_by_call |= again

    def _check(self, items: Sequence[Any]) -> Mapping[int, str]:
        return self.results(items)[1]

    def _stamped(self, frame: pl.DataFrame, log: CallLog, cells: pl.DataFrame) -> pl.DataFrame:
        """Adds event times, windows and the positions of cells to emitted rows."""
        places = pl.Series(CELL, log.cells, dtype=pl.UInt32)
        where = cells.select(WINDOW_COLUMNS)[places]
        times = pl.Series(EVENT_TIME, log.times, dtype=pl.Int64)
        return frame.hstack([times]).hstack(where).hstack([places])

    def refused(self, output: CellsOutput, rows: pl.DataFrame, cells: pl.DataFrame) -> tuple[Refused, ...]:
        refused = []
        if output.failed:
            numbers, errors = zip(*output.failed, strict=True)
            refused.append(Refused(rows.select(list(self.schema))[list(numbers)], errors))
        if output.failed_firings:
            places, firings, errors = zip(*output.failed_firings, strict=True)
            names, tags, times = zip(*firings, strict=True)
            keys = cells.select(self.keys)[list(places)]
            families = any(tag is not None for tag in tags)
            tagged = [pl.Series("tag", tags, dtype=pl.String)] if families else []
            time = pl.Series("time", times, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
            told = [pl.Series("timer", names), *tagged, time]
            refused.append(Refused(keys.hstack([self._beside_keys(column) for column in told]), errors))
        return tuple(refused)

    def _beside_keys(self, column: pl.Series) -> pl.Series:
        """Renames a column if a key column has the same name."""
        return column.alias(f"timer_{column.name}") if column.name in self.keys else column
