"""The stages that read a source: which of their elements a watermark would have dropped, and when panes would have
been emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import attrs
import numpy as np
import polars as pl

from beamlike.observe.tuning.arrived import Rows, SourceArrivals, Times, before
from beamlike.records.graph import StageDescription
from beamlike.records.model import BatchRecord
from stages.progress.reports import Report, least
from windowing.calendars import CalendarWindows
from windowing.columns import EVENT_TIME, WINDOW_END
from windowing.lateness import collected_at
from windowing.time import MAX_TIME, Microseconds
from windowing.windows import FixedWindows, Sessions, SlidingWindows, WindowFn


@attrs.frozen
class Range:
    """A number that is known exactly, or to be between two bounds."""

    least: int
    most: int

    @property
    def exact(self) -> bool:
        """True if both bounds are equal."""
        return self.least == self.most


@attrs.frozen
class Delays:
    """The delays of the on-time panes of windows (us): of how many windows, and median and 99th percentile.

    In event time: the newest event time at the pane minus the end of the window. In processing time: from the first
    batch with an event time at or after the end of the window to the batch of the pane.
    """

    windows: int
    event: tuple[int, int]
    processing: tuple[int, int]


def windows_of(stage: StageDescription) -> WindowFn | None:
    """Returns the windows of a stage; None if they are the global window, or are not known from the records."""
    if stage.session_gap is not None:
        return Sessions(Microseconds(stage.session_gap))
    if stage.calendar is not None:
        return CalendarWindows(**{**stage.calendar, "start": date.fromisoformat(stage.calendar["start"])})
    if (spacing := stage.spacing) is None:
        return None
    length, period, offset = map(Microseconds, (spacing.length, spacing.period, spacing.offset))
    return FixedWindows(length, offset) if length == period else SlidingWindows(length, period, offset)


@attrs.frozen(eq=False)
class StageArrivals:
    """The elements of a stage that it reads directly from sources, in the windows of the stage.

    Attributes:
        name: The name of the stage.
        batches: The records of the run, in order.
        allowed_lateness: In microseconds.
        exact: True if the stage receives exactly the elements of its sources, with their event times.
        merging: True if its windows are sessions.
        early: The end (us), batch and count of each window of elements, if each is the first of its bucket.
        late: Like `early`, if each is the last of its bucket.
        newest: The newest event time (us) of its sources up to each batch.
    """

    name: str
    batches: Sequence[BatchRecord]
    allowed_lateness: int
    exact: bool
    merging: bool
    early: pl.DataFrame
    late: pl.DataFrame
    newest: Times

    @classmethod
    def of(
        cls, name: str, stage: StageDescription, sources: Sequence[SourceArrivals]
    ) -> StageArrivals | None:
        """Places the elements of the sources in the windows of the stage; None if the stage has no known windows."""
        windows = windows_of(stage)
        if windows is None:
            return None
        batches = sources[0].batches
        rows = [source.rows() for source in sources]
        exact = {*(stage.main or stage.inputs)} <= {*stage.plain} and all(
            is_whole(name, batch, sources) for batch in batches
        )
        return cls(
            name,
            batches,
            stage.allowed_lateness,
            exact,
            windows.merging,
            _placed(windows, rows, stage.allowed_lateness, first=True),
            _placed(windows, rows, stage.allowed_lateness, first=False),
            np.maximum.reduce([source.newest_times() for source in sources]),
        )

    @property
    def placed(self) -> int:
        """The number of elements, each counted in every window that it is in."""
        return int(self.early["count"].sum())

    def inputs(self, source: str, reports: Sequence[Report]) -> Times:
        """Returns the input watermark (us) after each batch, if one source had reported this."""
        marks = []
        for batch, report in zip(self.batches, reports, strict=True):
            record = batch.stages.get(self.name)
            known = {} if record is None else record.upstream
            others = [Report(one.watermark, {}, one.idle) for name, one in known.items() if name != source]
            marks.append(min(least([report, *others]).watermark, MAX_TIME))
        return np.maximum.accumulate(np.array(marks, np.int64))

    def dropped(self, inputs: Times) -> Range:
        """Returns how many elements would have been dropped as late, each counted in every window that it is in."""
        marks = before(inputs)
        least, most = (
            int(found["count"].to_numpy()[found["at"].to_numpy() <= marks[found["batch"].to_numpy()]].sum())
            for found in (self.late, self.early)
        )
        return Range(least, most)

    def delays(self, inputs: Times) -> Delays:
        """Returns the delays of the on-time panes of windows that the watermark passes before the end of input."""
        found = self.early.group_by(WINDOW_END).agg(pl.col("batch").min())
        ends, first = found[WINDOW_END].to_numpy(), found["batch"].to_numpy()
        fired = np.searchsorted(inputs, ends)
        on_time = (fired < len(inputs)) & (first <= fired)
        on_time[on_time] = inputs[fired[on_time]] < MAX_TIME
        ends, fired = ends[on_time], fired[on_time]
        now = np.array([batch.processing_time for batch in self.batches], np.int64)
        over = np.searchsorted(self.newest, ends)
        over = np.minimum(over, fired)
        return Delays(len(ends), _middle(self.newest[fired] - ends), _middle(now[fired] - now[over]))


def is_whole(name: str, batch: BatchRecord, sources: Sequence[SourceArrivals]) -> bool:
    """True if the stage received as many elements in the batch as its sources had."""
    stage = batch.stages.get(name)
    elements = [batch.sources[one.name].elements for one in sources if one.name in batch.sources]
    return stage is None or stage.elements == sum(elements)


def _placed(windows: WindowFn, rows: Sequence[Rows], allowed_lateness: int, *, first: bool) -> pl.DataFrame:
    frame = pl.concat(
        pl.DataFrame(
            {EVENT_TIME: one.first if first else one.last, "batch": one.batches, "count": one.counts}
        )
        for one in rows
    )
    at = collected_at(allowed_lateness).alias("at")
    return windows.assign(frame).with_columns(at).select("at", WINDOW_END, "batch", "count")


def _middle(delays: Times) -> tuple[int, int]:
    """Returns the median and the 99th percentile, each a delay that occurred."""
    if not len(delays):
        return 0, 0
    ordered = np.sort(delays)
    return int(ordered[(len(ordered) - 1) // 2]), int(ordered[-(-99 * len(ordered) // 100) - 1])


def late(rows: Rows, watermarks: Times) -> Range:
    """Returns how many elements would have been behind the watermark of their source, as it was before their batch."""
    marks = before(watermarks)[rows.batches]
    return Range(int(rows.counts[rows.last < marks].sum()), int(rows.counts[rows.first < marks].sum()))
