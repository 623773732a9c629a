"""The operator of a user's `Process`: calls its methods for rows and timers, and stores the cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import polars as pl

from stages.clock import StepClock
from stages.operator import Refused, State
from stages.process.declarations import Process
from stages.process.executor import CallLog, CallPlan, Executor
from stages.process.keyed import CELL, TIMED, Result, touched
from stages.process.stateful import Stateful
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.identity import fields_of, function_of
from windowing.python_rows import BEYOND, python_has

AsColumns = Callable[[Sequence[Any]], tuple[pl.DataFrame, Mapping[int, str]]]
"""Converts results to rows of the declared columns, null where one does not fit, and the reasons by number."""


@attrs.frozen(slots=False, eq=False)
class KeyedProcess(Stateful):
    """Runs the methods of a user's object for rows and timers; `results` converts their results to columns."""

    process: Process
    results: AsColumns
    kind: ClassVar[str] = "process"

    @property
    def does(self) -> object:
        """The user's class, and the attributes of its object."""
        return {"class": function_of(type(self.process)), "with": fields_of(self.process)}

    def usable(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Refused, ...]]:
        """Refuses rows with values that Python cannot hold."""
        fits = python_has(rows)
        if fits is None:
            return rows, ()
        beyond = rows.filter(~fits)
        return rows.filter(fits), (Refused(beyond, tuple(ValueError(BEYOND) for _ in range(len(beyond)))),)

    def process_rows(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Result:
        layout = self.layout
        loaded = state.load(self.cells, rows.select(self.id).unique(maintain_order=True))
        cells, idle = touched(loaded.rows, loaded.incoming, layout.due(clock.now.times), self.id)
        if cells.is_empty():
            state.write_back(self.cells, idle)
            return Result(self._stamped(self.results([])[0], CallLog(), cells))
        plan = self._plan(cells, rows)
        log, panes, after = self._until_it_fits(plan, clock)
        state.write_back(self.cells, pl.concat([idle, layout.kept(after, clock.now.times)]))
        return Result(panes, self._refused(log, plan), log.fired, len(log.refused_rows))

    def _plan(self, cells: pl.DataFrame, rows: pl.DataFrame) -> CallPlan:
        """The rows by cell, in the order in which the cells process them."""
        ordered = self.by_cell(cells, rows)
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
        )

    def _until_it_fits(self, plan: CallPlan, clock: StepClock) -> tuple[CallLog, pl.DataFrame, pl.DataFrame]:
        """(the call log, the emitted rows, the cells afterwards).

        Cells with values that do not fit their columns are run again, call by call.
        """
        call_by_call: frozenset[int] = frozenset()
        while True:
            executor = Executor(self.process, self.layout, plan, clock, self._check, call_by_call)
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
        """The rows with their event time and window."""
        where = cells.select(WINDOW_COLUMNS)[pl.Series(log.cells, dtype=pl.UInt32)]
        return frame.hstack([pl.Series(EVENT_TIME, log.times, dtype=pl.Int64)]).hstack(where)

    def _refused(self, log: CallLog, plan: CallPlan) -> tuple[Refused, ...]:
        """The refused rows as they arrived, and the refused firings by key, timer and time."""
        refused = []
        if log.refused_rows:
            numbers, errors = zip(*log.refused_rows, strict=True)
            refused.append(Refused(plan.rows[list(numbers)], errors))
        if log.refused_firings:
            cells, firings, errors = zip(*log.refused_firings, strict=True)
            names, tags, times = zip(*firings, strict=True)
            keys = plan.state.select(self.keys)[list(cells)]
            families = any(tag is not None for tag in tags)
            tagged = [pl.Series("tag", tags, dtype=pl.String)] if families else []
            time = pl.Series("time", times, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
            told = [pl.Series("timer", names), *tagged, time]
            refused.append(Refused(keys.hstack([self._beside_keys(column) for column in told]), errors))
        return tuple(refused)

    def _beside_keys(self, column: pl.Series) -> pl.Series:
        """The column, renamed if a key column has its name."""
        return column.alias(f"timer_{column.name}") if column.name in self.keys else column
