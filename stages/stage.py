"""A stage of a pipeline: a pure function `(state, arrivals, clock) -> (state, panes, output watermark)`.

The function is that of the stage's operator. Rows of state are in buckets. A step reads the buckets that have a due row
or an arrival that cannot wait. Other arrivals are appended to the log of their bucket without reading it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs
import polars as pl

from stages.clock import StepClock, Watermarks
from stages.errors import ResultError, StepError
from stages.frames import repeated
from stages.operator import Operator, Refused
from stages.progress.reports import Report
from stages.state.index import HoldOwner
from stages.state.store import StateStore
from stages.state.tables import Tables
from stages.strategies.histogram import Histogram, merge_histograms
from windowing.clocks import Times
from windowing.columns import PANE_DRAINED, PANE_RETRACTED, PANE_TIMING
from windowing.panes import closed_by_drain
from windowing.time import MAX_TIME

if TYPE_CHECKING:
    from stages.completeness import Completeness

_NOT_DRAINED: Final = pl.Series(PANE_DRAINED, [False])


@attrs.frozen(eq=False)
class StageResult:
    """The result of a step of a stage.

    `placed`, `emitted`, `dropped` and `pending` count an element once in each of its windows:
    pending before the step + placed = emitted + dropped + pending after the step.

    Attributes:
        panes: The emitted rows.
        watermarks: The input and output watermark after the step.
        dropped: The number of dropped arrivals by reason.
        holder: The row of state with the least hold; None if no row holds the watermark.
        elements: The number of arrivals, without refused ones.
        placed: The number of arrivals, dropped ones included.
        emitted: The number of elements that are in panes for the first time.
        pending: The number of elements that are in no pane yet.
        live: The number of rows of state.
        keys: The number of keys of these rows.
        bytes: The size of the state in the store.
        late: The dropped arrivals, if the operator returns them.
        percentiles: The percentile watermarks of the input (us), by percentile.
        holds: The histogram of the holds of pending elements; empty if no percentile watermark is in use.
        refused: The rows that became dead letters. They are not among the elements.
        timers: The number of pending timers.
        fired: The number of timers that fired.
        used: The number of rows that the user's function processed without an error.
        completeness: The completeness of windows after the step, if the plan asks for it.
    """

    panes: pl.DataFrame
    watermarks: Watermarks
    dropped: dict[str, int]
    holder: HoldOwner | None
    elements: int
    placed: int
    emitted: int
    pending: int
    live: int
    keys: int
    bytes: int
    late: pl.DataFrame
    percentiles: Mapping[int, int]
    holds: Histogram
    refused: tuple[Refused, ...] = ()
    timers: int = 0
    fired: int = 0
    used: int = 0
    completeness: Completeness | None = None

    def report(self, *, idle: bool) -> Report:
        """Returns the report of the shard to stages downstream. `idle` must be true if everything upstream is idle."""
        return Report(self.watermarks.output, self.percentiles, idle, self.holds)


@attrs.frozen
class Stage:
    """A named operator. The name is also a part of the keys of its state."""

    name: str
    operator: Operator

    def step(
        self,
        store: StateStore,
        arrivals: Mapping[str, pl.DataFrame],
        to: Times,
        *,
        drained: bool = False,
        completeness: Completeness | None = None,
    ) -> StageResult:
        """Processes a bundle with the watermarks of the previous step, then advances the clocks.

        Args:
            store: The store with the state of the stage.
            arrivals: The rows of each input by role, with the columns that the input declares; for a grouping, also
                with window bounds if windows are assigned already.
            to: The new times of the clocks. A clock that is already later does not go back.
            drained: True if the run is drained: it ends although there may be more input. Ignored before the end of
                time.
            completeness: The completeness of windows, if the plan asks for it.
        """
        try:
            return self._step(store, arrivals, to, drained and to.watermark >= MAX_TIME, completeness)
        except ResultError as error:
            # Polars appends the expression that raised the error on further lines.
            raise StepError(self.name, str(error).partition("\n")[0]) from error.__cause__
        except Exception as error:  # for example, an error of a user's CombineFn
            error.add_note(f"in step {self.name!r}")
            raise

    def tables(self, store: StateStore) -> Tables:
        """Opens the state of this stage in a store, for a step that does not advance the clocks."""
        return Tables.open(store, self.name, self.operator.tables)

    def _step(
        self,
        store: StateStore,
        arrivals: Mapping[str, pl.DataFrame],
        to: Times,
        drained: bool,
        completeness: Completeness | None,
    ) -> StageResult:
        state = self.tables(store)
        clock = StepClock(state.watermarks, state.times, state.times.advance(to), completeness, drained)
        state.now = clock.now
        arrived = state.arrived
        output = self.operator.step(state, arrivals, clock)
        holder = state.holder
        watermarks = clock.watermarks.advance([to.watermark], None if holder is None else holder.hold)
        state.save(store, self.name, watermarks, arrived + output.placed)
        indices = list(state.indices.values())
        return StageResult(
            _with_drained(output.panes, clock),
            watermarks,
            dict(output.dropped),
            holder,
            elements=output.elements,
            placed=output.placed,
            emitted=output.emitted,
            pending=sum(index.pending for index in indices),
            live=indices[0].rows,
            keys=indices[0].keys,
            bytes=sum(index.bytes for index in indices),
            late=output.late,
            percentiles=clock.now.percentiles,
            holds=merge_histograms(*(index.pending_holds for index in indices)),
            refused=output.refused,
            timers=sum(index.timers for index in indices),
            fired=output.fired,
            used=output.elements if output.used is None else output.used,
            completeness=completeness,
        )


def _with_drained(panes: pl.DataFrame, clock: StepClock) -> pl.DataFrame:
    """Sets the column `PANE_DRAINED`: true for panes of windows that are closed only because the run is drained.

    It is false for retractions. State does not have this column, because no run follows one that was drained.
    """
    if not {PANE_RETRACTED, PANE_TIMING} <= {*panes.columns} or PANE_DRAINED in panes.columns:
        return panes  # rows of an operator other than a grouping, which may have the columns of earlier panes
    if not clock.drained:
        return panes.hstack([repeated(_NOT_DRAINED, len(panes))])
    closed = closed_by_drain(clock.input_before) & ~pl.col(PANE_RETRACTED)
    return panes.with_columns(closed.alias(PANE_DRAINED))
