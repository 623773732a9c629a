"""A stage of a pipeline: an operator over its state, `(state, arrivals, clock) -> (state, panes, output watermark)`.

Rows are spread over buckets. A step reads the buckets in which a row is due, and those of arrivals that cannot wait;
other arrivals are stored beside the rows of their bucket.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import polars as pl

from stages.clock import StepClock, Watermarks
from stages.errors import ResultError, StepError
from stages.operator import Operator, Refused
from stages.progress.reports import Report
from stages.state.index import Holder
from stages.state.store import StateStore
from stages.state.tables import Tables
from stages.strategies.histogram import Histogram, merge_histograms
from windowing.clocks import Times
from windowing.columns import PANE_DRAINED, PANE_RETRACTED, WINDOW_END
from windowing.time import MAX_TIME


@attrs.frozen
class StageResult:
    """The results of a step of a stage. `holder` is the key and row of state with the least hold.

    `elements` arrived. With windows an element counts in each that it is in: `placed` counts arrivals, `emitted` those
    in panes for the first time, `pending` those in no pane yet; pending and placed ones are then emitted, dropped or
    pending. `live` counts rows of state, `keys` their keys, and `bytes` is their size. `late` contains the dropped
    arrivals, if the operator returns them. `percentiles` are those of the input; if there are any, `holds` contains the
    holds of pending elements on those of the output. `refused` rows are not among the elements. `timers` are pending,
    `fired` is the number of timers that fired. The operator could use `used` rows.
    """

    panes: pl.DataFrame
    watermarks: Watermarks
    dropped: dict[str, int]
    holder: Holder | None
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

    def report(self, *, idle: bool) -> Report:
        """The report of the shard for stages downstream; `idle`: everything upstream is."""
        return Report(self.watermarks.output, self.percentiles, idle, self.holds)


@attrs.frozen
class Stage:
    """A named operator. Its name is also the name of its state."""

    name: str
    operator: Operator

    def step(
        self, store: StateStore, arrivals: Mapping[str, pl.DataFrame], to: Times, *, drained: bool = False
    ) -> StageResult:
        """Processes a bundle with the watermarks of the step before, then moves the clocks.

        Args:
            arrivals: The rows of each input of the operator, with the columns that this input declares; for a
                grouping, with window bounds if windows are assigned already.
            to: The times that the clocks move to. A clock that is ahead of its time there stays where it is.
            drained: If the watermark is at the end of time: the run ends there, and more input may exist.
        """
        try:
            return self._step(store, arrivals, to, drained)
        except ResultError as error:
            # Polars appends the expression in which it was raised.
            raise StepError(self.name, str(error).partition("\n")[0]) from error.__cause__
        except Exception as error:  # It may be a user's CombineFn that failed.
            error.add_note(f"in step {self.name!r}")
            raise

    def tables(self, store: StateStore) -> Tables:
        """The state of this stage in the store, with a clock that does not move."""
        return Tables.open(store, self.name, self.operator.tables)

    def _step(
        self, store: StateStore, arrivals: Mapping[str, pl.DataFrame], to: Times, drained: bool
    ) -> StageResult:
        state = self.tables(store)
        clock = StepClock(state.watermarks, state.times, state.times.advance(to))
        state.now = clock.now
        arrived = state.arrived
        given = self.operator.step(state, arrivals, clock)
        holder = state.holder
        watermarks = clock.watermarks.advance([to.watermark], None if holder is None else holder.hold)
        state.save(store, self.name, watermarks, arrived + given.placed)
        kept = list(state.indices.values())
        return StageResult(
            _with_drained(given.panes, clock, drained and to.watermark >= MAX_TIME),
            watermarks,
            dict(given.dropped),
            holder,
            elements=given.elements,
            placed=given.placed,
            emitted=given.emitted,
            pending=sum(index.pending for index in kept),
            live=kept[0].rows,
            keys=kept[0].keys,
            bytes=sum(index.bytes for index in kept),
            late=given.late,
            percentiles=clock.now.percentiles,
            holds=merge_histograms(*(index.pending_holds for index in kept)),
            refused=given.refused,
            timers=sum(index.timers for index in kept),
            fired=given.fired,
            used=given.elements if given.used is None else given.used,
        )


def _with_drained(panes: pl.DataFrame, clock: StepClock, drained: bool) -> pl.DataFrame:
    """Marks the panes whose window was closed by the end of a run that is drained.

    Panes that are taken back stay as they were. The mark is not in state: nothing follows a run that was drained.
    """
    if PANE_RETRACTED not in panes.columns:  # which all panes of a grouping have, inside a step
        return panes
    closed = (pl.col(WINDOW_END) > clock.input_before) & ~pl.col(PANE_RETRACTED)
    return panes.with_columns((pl.lit(drained) & closed).alias(PANE_DRAINED))
