"""A stage of a pipeline: an operator over its state, `(state, arrivals, clock) -> (state, panes, output watermark)`.

Rows are spread over buckets, and a step looks only at those in which a row is due, and at those that arrivals reach
unless these can wait: they are put beside the rows of their bucket where nothing depends on them before.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import polars as pl

from stages.errors import ResultError, StepError
from stages.operator import Operator, Refused
from stages.progress.reports import Report
from stages.progress.watermarks import Clock, Watermarks
from stages.state.index import Holder, Index
from stages.state.storage import Storage
from stages.state.store import StateStore
from stages.state.working_set import read_working_set
from stages.strategies.histogram import Histogram


@attrs.frozen
class StageResult:
    """What a step of a stage gives. `holder` is the key and row of state with the least hold.

    `elements` came. With windows an element counts in each that it is in: `placed` of what came, `emitted` of what is
    in panes for the first time, `pending` of what is in none yet; what was pending and placed is now emitted, dropped
    or pending. `live` counts rows of state, `keys` their keys and `bytes` what they take.
    `late` has the arrivals that were dropped, if the operator shows them. `percentiles` are those of the input, and
    where there are any, `holds` is where pending elements hold those of the output. What was `refused` is not among the
    elements.
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
    refused: Refused | None = None

    def report(self, *, idle: bool) -> Report:
        """What the shard tells those downstream; `idle`: all that is upstream is."""
        return Report(self.watermarks.output, self.percentiles, idle, self.holds)


@attrs.frozen
class Stage:
    """A named operator. Its name is the name of its state."""

    name: str
    operator: Operator

    def step(self, store: StateStore, arrivals: Mapping[str, pl.DataFrame], clock: Clock) -> StageResult:
        """One bundle: `arrivals` are processed with the watermarks of the step before, then the clock moves.

        `arrivals` has by role of the operator's inputs what came for it, with the columns that this input says; for a
        grouping, with window bounds if windows are assigned already.
        A clock that is behind changes nothing; watermarks never go back.
        """
        try:
            return self._step(store, arrivals, clock)
        except ResultError as error:
            # Polars appends the expression in which it was raised.
            raise StepError(self.name, str(error).partition("\n")[0]) from error.__cause__
        except Exception as error:  # It may be a user's CombineFn that failed.
            error.add_note(f"in step {self.name!r}")
            raise

    def storage(self, store: StateStore) -> Storage:
        """What the store has of this stage."""
        index = Index.load(store, self.name, self.operator.clocks)
        return Storage(self.name, self.operator, store, index)

    def _step(self, store: StateStore, arrivals: Mapping[str, pl.DataFrame], clock: Clock) -> StageResult:
        storage = self.storage(store)
        index = storage.index
        before, then, now = index.watermarks, index.times, index.times.advance(clock)
        admitted = self.operator.admit(arrivals, before, index.arrived)
        working_set = read_working_set(storage, admitted.incoming, now)
        reached = attrs.evolve(admitted, incoming=working_set.incoming)
        advanced = self.operator.advance(working_set.rows, reached, before, then, now, working_set.unmerged)
        index = working_set.leave(advanced.rows, now)
        holder = index.holder
        hold = None if holder is None else holder.hold
        watermarks = before.advance([clock.watermark], hold)
        arrived = index.arrived + admitted.placed
        attrs.evolve(index, watermarks=watermarks, times=now, arrived=arrived).save(store, self.name)
        return StageResult(
            advanced.panes,
            watermarks,
            dict(advanced.dropped),
            holder,
            elements=admitted.elements,
            placed=admitted.placed,
            emitted=advanced.emitted,
            pending=index.pending,
            live=index.rows,
            keys=index.keys,
            bytes=index.bytes,
            late=advanced.late,
            percentiles=now.percentiles,
            holds=index.pending_holds,
            refused=admitted.refused,
        )
