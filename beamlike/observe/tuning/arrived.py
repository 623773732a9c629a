"""The arrivals of a source over the batches of a run, and the watermarks that a strategy would have had."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from beamlike.records.history import History
from beamlike.records.model import BatchRecord
from stages.progress.arrivals import MIXED, TOO_MANY, Arrivals, from_record, newest
from stages.progress.reports import Report
from stages.progress.splits import WHOLE, SourceState, SourceSummary
from stages.strategies.base import BoundedOutOfOrderness, NewestTime, Summary, WatermarkStrategy
from stages.strategies.histogram import Histogram, merge_histograms
from windowing.time import MAX_TIME, MIN_TIME, Microseconds

Times = npt.NDArray[np.int64]


@attrs.frozen(eq=False)
class Rows:
    """Elements by batch and bucket of event time: between `first` and `last` (us) each, and how many (`counts`).

    `batches` has the place of the batch of each bucket.
    """

    batches: Times
    first: Times
    last: Times
    counts: Times

    @classmethod
    def of(cls, found: Sequence[tuple[int, Histogram]]) -> Rows:
        """Creates the rows from histograms, each with the place of its batch."""
        columns: list[list[int]] = [[], [], [], []]
        for place, times in found:
            width = 1 << times["level"]
            for bucket, count in zip(times["buckets"], times["counts"], strict=True):
                first = bucket << times["level"]
                for column, value in zip(
                    columns, (place, first, min(first + width - 1, times["newest"]), count), strict=True
                ):
                    column.append(value)
        return cls(*(np.array(column, np.int64) for column in columns))

    @property
    def total(self) -> int:
        """The number of elements."""
        return int(self.counts.sum())

    @property
    def resolution(self) -> int:
        """The greatest difference (us) of two times in a bucket; 0 if all times are exact."""
        return int((self.last - self.first).max(initial=0))


@attrs.frozen(eq=False)
class SourceArrivals:
    """The arrivals of a source in each batch of a run.

    Attributes:
        name: The name of the source.
        batches: The records of the run, in order.
        arrivals: The arrivals of each batch.
        begun: The numbers of the batches with which runs began.
    """

    name: str
    batches: Sequence[BatchRecord]
    arrivals: Sequence[Arrivals]
    begun: Collection[int]

    @classmethod
    def of(cls, history: History, name: str) -> SourceArrivals:
        """Reads the arrivals of a source from the records."""
        records = [batch.sources.get(name) for batch in history.batches]
        found = [{} if record is None else from_record(record.arrivals) for record in records]
        return cls(name, history.batches, found, history.begun)

    @property
    def missing(self) -> int:
        """The number of batches with elements of which the records have no event times."""
        return sum(
            record.elements > 0 and not any("times" in part for part in found.values())
            for batch, found in zip(self.batches, self.arrivals, strict=True)
            if (record := batch.sources.get(self.name)) is not None
        )

    @property
    def merged(self) -> int:
        """The number of early records that are of several batches. Their elements are not counted."""
        return sum(batch.batches > 1 for batch in self.batches)

    @property
    def mixed(self) -> bool:
        """True if the records do not tell splits apart, because there are too many."""
        return any(TOO_MANY in found for found in self.arrivals)

    @property
    def partial(self) -> bool:
        """True if some batches are so large that their records have only the newest event time of each split."""
        return any(MIXED in found for found in self.arrivals)

    @property
    def splits(self) -> list[str]:
        """The names of the splits that had elements."""
        return sorted(
            {
                split
                for found in self.arrivals
                for split, part in found.items()
                if newest(part) is not None and split not in (MIXED, TOO_MANY)
            }
        )

    def rows(self, split: str | None = None) -> Rows:
        """Returns the elements of batches that have a record of their own, of one split or of all."""
        return Rows.of(
            [
                (place, part["times"])
                for place, (batch, found) in enumerate(zip(self.batches, self.arrivals, strict=True))
                for name, part in found.items()
                if "times" in part and batch.batches == 1 and split in (None, name)
            ]
        )

    def newest_times(self, split: str | None = None) -> Times:
        """Returns the newest event time (us) of a split, or of all elements, up to each batch."""
        times = [
            max(
                (
                    time
                    for name, part in found.items()
                    if (time := newest(part)) is not None and split in (None, name)
                ),
                default=MIN_TIME,
            )
            for found in self.arrivals
        ]
        return np.maximum.accumulate(np.array(times, np.int64))

    def states(self, strategy: WatermarkStrategy) -> list[SourceState]:
        """Returns the state of the source after each batch of a run with this strategy and the same batches."""
        states, state = list[SourceState](), SourceState()
        for batch, found in zip(self.batches, self.arrivals, strict=True):
            if batch.batch in self.begun:
                state = state.resumed(batch.processing_time)
            state = state.advance(strategy, _summary(strategy, found), batch.processing_time)
            known = batch.sources.get(self.name)
            if known is not None and known.watermark >= MAX_TIME:
                state = state.ended()
            states.append(state)
        return states

    def reports(self, strategy: WatermarkStrategy) -> list[Report]:
        """Returns the report of the source after each batch of a run with this strategy and the same batches."""
        return [Report(state.watermark, {}, state.idle) for state in self.states(strategy)]


def _summary(strategy: WatermarkStrategy, found: Arrivals) -> SourceSummary:
    """Returns the summary that the strategy would have had of these arrivals."""
    if strategy.per_split is None:
        times = merge_histograms(*(part.get("times", {}) for part in found.values()))
        found = {WHOLE: {"times": times}} if times else {}
    return {split: _observed(strategy, part) for split, part in found.items() if split != MIXED}


def _observed(strategy: WatermarkStrategy, part: Summary) -> Summary:
    over = {"over": True} if "over" in part else {}
    if not isinstance(strategy, NewestTime):
        return {"own": part["times"], **over} if "times" in part else over
    time = newest(part)
    return over if time is None else {"own": {"newest": time}, **over}


def bounded(bound: int, per_split: str | None, idle_after: int | None) -> BoundedOutOfOrderness:
    """Creates the strategy with this bound (us)."""
    idle = None if idle_after is None else Microseconds(idle_after)
    return BoundedOutOfOrderness(Microseconds(bound), per_split=per_split, idle_after=idle)


def before(watermarks: Times) -> Times:
    """Returns the watermark (us) before each batch, from those after each batch."""
    return np.concatenate([[MIN_TIME], watermarks[:-1]]).astype(np.int64)


def needed(arrived: SourceArrivals, split: str | None, *, own: bool) -> int:
    """Returns the least bound (us) at which no element of a split, or of all, would have been late.

    The bound is relative to the newest event time of the split itself (`own`), or of the whole source.
    """
    times = arrived.newest_times(split if own else None)
    rows = arrived.rows(split)
    marks = before(times)[rows.batches]
    return int(np.where(marks > MIN_TIME, marks - rows.first, 0).max(initial=0))
