"""The charts of a run, its sources, a stage, and its batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import attrs
import numpy as np

from beamlike.observe.charts.axes import Numbers, Times, finite
from beamlike.observe.charts.layers import Frame
from beamlike.observe.charts.series import RunSeries, run_series
from beamlike.observe.live.chart import Chart, Line, Points
from beamlike.observe.waiting.window_query import found_by_time
from beamlike.records.graph import StageDescription
from beamlike.records.history import History

_SECOND: Final = 1_000_000
_MOST_WINDOWS: Final = 60
_MOST_PARTS: Final = 6
_MOST_SOURCES: Final = 6

_EVENT: Final = (
    "Event time across, processing time up. The output watermark is at or left of the input watermark; the distance is "
    "added by the stage itself. Dots are panes, at the input watermark at which they were emitted."
)
_ASK: Final = " Choose a time to ask why its window has or has not fired."
_SOURCES: Final = (
    "Event time across, processing time up. A line shows how far in event time a source is complete; sources near the "
    "dotted line are fresh."
)
_LAG: Final = "How far the watermarks are behind. A saw-tooth shows windows that open and close."
_SYSTEM: Final = "From the beginning of a batch until the stage was done. It grows if the stage is too slow."
_RATES: Final = "Over the whole time, also that in which the run waits: what flows in, and what flows out."
_SKEW: Final = (
    "The elements of the shard that received most of them, divided by the mean: 1 is even. With as many as there are "
    "shards, one key has nearly all elements."
)
_PARTS: Final = (
    "The time of a batch, by the stages that took most of it, each since the stage that was done before it: the first "
    "one includes reading. The rest is other stages, sinks and commits."
)


@attrs.frozen(eq=False)
class RunCharts:
    """The charts of a run after its last batch."""

    history: History
    series: RunSeries
    points: Points
    frame: Frame

    @classmethod
    def of(cls, history: History) -> RunCharts:
        """Creates the charts of a history."""
        series = run_series(history)
        return cls(history, series, Points.of(series.times), Frame.around(series))

    def _lag(self, watermark: Times) -> list[float | None]:
        """Returns the lag of a watermark as in reports: behind processing time or, for old input, the newest source."""
        newest = self.frame.newest
        return self.points.lag(watermark, self.series.times if newest is None else newest)

    @property
    def _lag_title(self) -> str:
        return self.frame.lag_title.capitalize()

    def stage(self, name: str) -> Iterator[Chart]:
        """Yields the charts of a stage."""
        stage, points = self.series.stages[name], self.points
        yield self._event(name)
        yield self._chart(
            self._lag_title,
            "duration",
            [
                Line("output", "output", self._lag(stage.output)),
                Line("input", "input", self._lag(stage.input)),
            ],
            _LAG,
        )
        yield self._chart(
            "Processing-time lag",
            "duration",
            [Line("until the stage was done", "output", points.most(stage.output_system_lag))],
            _SYSTEM,
        )
        panes = [
            Line(kind.replace("_", " "), f"pane-{kind.replace('_', '-')}", points.sums(counts), "bar")
            for kind, counts in stage.panes.items()
        ]
        drops = [
            Line(f"dropped: {reason}", "dropped", points.sums(counts), "bar")
            for reason, counts in stage.dropped.items()
        ]
        yield self._chart(f"Panes and drops of {points.each}", "count", [*panes, *drops])
        records = [batch.stages.get(name) for batch in self.history.batches]
        elements = _times(0 if one is None else one.elements for one in records)
        shards = np.array([math.nan if one is None or one.skew is None else one.skew for one in records])
        yield self._chart(
            f"Elements of {points.each}",
            "count",
            [Line("elements", "elements", points.sums(elements), "bar")],
        )
        if not np.isnan(shards).all():
            skew = Line("largest shard / mean", "output", points.most(shards))
            yield self._chart("Skew of the shards", "ratio", [skew], _SKEW)
        live = points.last(0 if one is None else one.live for one in records)
        pending = points.last(0 if one is None else one.pending or 0 for one in records)
        yield self._chart(
            "State: rows", "count", [Line("in state", "input", live), Line("pending", "output", pending)]
        )
        stored = points.last(0 if one is None else one.bytes for one in records)
        yield self._chart("State: size", "bytes", [Line("bytes", "elements", stored)])

    def _event(self, name: str) -> Chart:
        stage, points = self.series.stages[name], self.points
        lines = []
        if len(stage.upstream) > 1:
            lines = [
                Line(f"from {one}", "upstream", points.marks(marks)) for one, marks in stage.upstream.items()
            ]
        lines += [
            Line("input watermark", "input", points.marks(stage.input)),
            Line("output watermark", "output", points.marks(stage.output)),
        ]
        at = points.marks(stage.input)
        for kind, counts in stage.panes.items():
            if kind != "retracted":
                there = points.sums(counts)
                values = [mark if count else None for mark, count in zip(at, there, strict=True)]
                style = f"pane-{kind.replace('_', '-')}"
                lines.append(Line(f"{kind.replace('_', ' ')} panes", style, values, "mark"))
        described = self.history.plan.stages[name]
        ends, asks = _window_ends(described, stage.input, stage.output), found_by_time(described)
        chart = self._chart("Watermarks", "event", lines, _EVENT + _ASK * asks, window_ends=ends)
        return attrs.evolve(chart, asks=asks)

    def sources(self) -> Iterator[Chart]:
        """Yields the charts of all sources. Of many sources, those that are furthest behind are drawn."""
        points, sources = self.points, self.series.sources
        names = sorted(sources, key=lambda name: sources[name].watermark[-1:].tolist())[:_MOST_SOURCES]
        marks = {name: sources[name].watermark for name in names}
        styles = {name: f"source-{number}" for number, name in enumerate(names)}
        yield self._chart(
            "Watermarks",
            "event",
            [Line(name, styles[name], points.marks(one)) for name, one in marks.items()],
            _SOURCES,
        )
        yield self._chart(
            self._lag_title,
            "duration",
            [Line(name, styles[name], self._lag(one)) for name, one in marks.items()],
            _LAG,
        )
        elements = sum((one.elements for one in sources.values()), np.zeros(len(points.times), np.int64))
        letters = sum((one.dead_letters for one in sources.values()), np.zeros(len(points.times), np.int64))
        yield self._chart(
            f"Rows of {points.each}, all sources",
            "count",
            [
                Line("elements", "elements", points.sums(elements), "bar"),
                Line("dead letters", "dropped", points.sums(letters), "bar"),
            ],
        )

    def batches(self) -> Iterator[Chart]:
        """Yields the charts of all batches: their time by part, and their rows."""
        points, batches = self.points, self.history.batches
        took = np.array([_seconds(one.processing_time, one.finished) for one in batches])
        own = self.series.own_times()
        largest = sorted(own, key=lambda name: -float(own[name].sum()))[: _MOST_PARTS - 1]
        lines, below = [], np.zeros(len(batches))
        shown = points.largest(took)  # one batch of each point, as the parts of several do not add up
        for number, name in enumerate(largest):
            below = below + own[name]
            lines.append(Line(name, f"source-{number}", _known(below[shown]), "area"))
        lines.append(Line("the rest", "rest", _known(np.fmax(took, below)[shown]), "area"))
        yield self._chart("Time of a batch", "duration", lines[::-1], _PARTS, stacked=True)
        rows = _times(sum(one.elements for one in batch.sources.values()) for batch in batches)
        written = _times(sum(batch.sinks.values()) for batch in batches)
        spans = self._spans()
        yield self._chart(
            "Rows per second",
            "count",
            [
                Line("elements read", "elements", points.rates(rows, spans)),
                Line("written", "output", points.rates(written, spans)),
            ],
            _RATES,
        )
        yield self._chart(
            f"Rows of {points.each}",
            "count",
            [
                Line("elements read", "elements", points.sums(rows), "bar"),
                Line("written", "output", points.sums(written)),
            ],
        )

    def _spans(self) -> Numbers:
        """Returns the time (s) from the beginning of each batch to that of the next one.

        The last batch has the time of the one before it, or its own.
        """
        last = self.history.batches[-1]
        spans: Numbers = np.maximum(np.diff(self.series.times), 0) / _SECOND
        return np.append(spans, spans[-1] if len(spans) else _seconds(last.processing_time, last.finished))

    def _chart(
        self,
        title: str,
        kind: str,
        lines: list[Line],
        caption: str = "",
        *,
        window_ends: list[float] | None = None,
        stacked: bool = False,
    ) -> Chart:
        return Chart(title, kind, self.points.seconds(), lines, caption, window_ends or (), stacked)


def _window_ends(stage: StageDescription, *marks: Times) -> list[float]:
    """Returns the ends of the windows between watermarks, in seconds; none if they are too many or unknown."""
    known = np.concatenate([one[finite(one)] for one in marks])
    if stage.spacing is None or not known.size:
        return []
    ends = stage.spacing.ends(int(known.min()), int(known.max()) + stage.spacing.period)
    return [end / _SECOND for end in ends] if len(ends) <= _MOST_WINDOWS else []


def _known(values: Numbers) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _seconds(started: int, finished: int | None) -> float:
    return 0.0 if finished is None else (finished - started) / _SECOND


def _times(values: Iterator[int]) -> Times:
    return np.fromiter(values, np.int64)
