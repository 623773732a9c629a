"""The charts of a run: one per stage, one of all sources, and one that compares a stage in several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from beamlike.observe.charts.axes import BatchAxis, TimeAxis, finite
from beamlike.observe.charts.figure import (
    BLUE,
    LINES,
    RUST,
    SKY,
    VERMILION,
    Picture,
    plain_axes,
    shown,
    style,
)
from beamlike.observe.charts.layers import (
    HELD,
    IDEAL,
    INPUT,
    OUTPUT,
    PERCENTILES,
    SLOWEST,
    UPSTREAM,
    WINDOW_ENDS,
    Frame,
    Look,
    Marker,
    draw_counts,
    draw_delay,
    draw_event_lags,
    draw_legend,
    draw_panes,
    draw_system_lags,
    draw_watermark,
    drop_marker,
    label_watermark,
    legend_room,
    pane_marker,
    set_event_time_chart,
)
from beamlike.observe.charts.series import RunSeries, run_series
from beamlike.observe.charts.watermark_graph import draw_watermark_graph
from beamlike.records.history import History
from beamlike.records.model import BatchRecord

_WIDTH, _CHART = 9.8, 3.5  # inches, without the legend
# Inches of margin, including room for a label at the end of an axis.
_LEFT, _BELOW, _ABOVE, _RIGHT = 1.15, 0.5, 0.25, 0.4
_BATCHES_LEFT = 0.75
_BESIDE = 3
_MOST_WINDOWS = 60
_SAME = "event time = processing time"
_ELEMENTS = Marker("elements", SKY, "o", "")
_DEAD_LETTERS = Marker("rows without event time", VERMILION, "x", "////")


@attrs.frozen(eq=False)
class Charts:
    """The charts of one run. All have the same time axes.

    `Charts.of(history)` creates them. `stage(name)`, `sources()` and `graph(batch)` return pictures, which notebooks
    show, and which `.save(path)` writes. Needs matplotlib, from the extra `report`.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("out", bl.Memory())
        <Collection 'plays': user String, points Int64, at String>
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> bl.observe.Charts.of(bl.observe.History.open("plays.jsonl")).sources().save("sources.svg")
    """

    history: History
    series: RunSeries
    frame: Frame

    @classmethod
    def of(cls, history: History) -> Charts:
        """Creates the charts for a history."""
        series = run_series(history)
        return cls(history, series, Frame.around(series))

    def graph(self, batch: BatchRecord | None) -> Picture:
        """Draws the graph of the pipeline, with the watermarks after a batch."""
        return draw_watermark_graph(self.history.plan, batch, self.frame.event.clock)

    def stage(self, name: str) -> Picture:
        """Draws a stage: watermarks with panes, event-time lag, processing-time lag, panes and dropped elements."""
        stage = self.series.stages[name]
        with style():
            keys = [*self.stage_keys(name), *(drop_marker(reason).bar_key() for reason in stage.dropped)]
            picture, main, (event, system, counts) = _canvas(self.frame, keys)
            self.draw_stage(main, name)
            draw_event_lags(event, self.frame, [(stage.output, OUTPUT), (stage.input, INPUT)])
            draw_system_lags(system, self.frame, stage)
            draw_counts(
                counts,
                self.frame,
                [(number, pane_marker(timing)) for timing, number in stage.panes.items()],
                [(number, drop_marker(reason)) for reason, number in stage.dropped.items()],
            )
            event.set_title(self.frame.lag_title)
            system.set_title("processing-time lag")
            counts.set_title(f"panes {self.frame.each}" + (", drops below" if stage.dropped else ""))
        return picture

    def sources(self) -> Picture:
        """Draws all sources: watermarks, event-time lag, elements and dead letters."""
        looks = self._source_looks()
        sources = [(self.series.sources[name], looks[name]) for name in reversed(looks)]
        with style():
            picture, main, (event, elements, letters) = _canvas(self.frame, _source_keys(self.frame, looks))
            set_event_time_chart(main, self.frame, ())
            for source, look in sources:
                draw_watermark(main, self.frame, source.watermark, look)
            draw_event_lags(event, self.frame, [(one.watermark, look) for one, look in sources])
            for axes, what, mark in (
                (elements, "elements", _ELEMENTS),
                (letters, "dead_letters", _DEAD_LETTERS),
            ):
                draw_counts(axes, self.frame, [(sum(getattr(one, what) for one, _ in sources), mark)])
            event.set_title(self.frame.lag_title)
            elements.set_title(f"elements of all sources {self.frame.each}")
            letters.set_title(f"rows without event time {self.frame.each}")
        return picture

    def draw_stage(self, axes: Axes, name: str) -> None:
        """Draws the watermarks and panes of a stage."""
        stage, frame = self.series.stages[name], self.frame
        set_event_time_chart(axes, frame, self._window_ends(name))
        if len(stage.upstream) > 1:
            for marks in stage.upstream.values():
                draw_watermark(axes, frame, marks, UPSTREAM)
        if self._reads_stages(name):
            draw_delay(axes, frame, stage.input, stage.slowest)
            draw_watermark(axes, frame, stage.slowest, SLOWEST)
        for marks, look in zip(stage.percentiles.values(), PERCENTILES, strict=False):
            draw_watermark(axes, frame, marks, look)
        draw_watermark(axes, frame, stage.input, INPUT)
        draw_watermark(axes, frame, stage.output, OUTPUT)
        draw_panes(axes, frame, stage)
        label_watermark(axes, frame, stage.input, "input", BLUE, right=True)
        label_watermark(axes, frame, stage.output, "output", RUST, right=False)

    def stage_keys(self, name: str) -> list[Artist]:
        """Returns the legend entries for `draw_stage`."""
        stage = self.series.stages[name]
        keys: list[Artist] = [INPUT.key("input watermark"), OUTPUT.key("output watermark")]
        if len(stage.upstream) > 1:
            keys.append(UPSTREAM.key("what it reads from"))
        if self._reads_stages(name):
            keys += [SLOWEST.key("slowest source"), HELD]
        for number, look in zip(stage.percentiles, PERCENTILES, strict=False):
            keys.append(look.key(f"output, percentile {number}"))
        if self._window_ends(name):
            keys.append(WINDOW_ENDS.key("ends of windows"))
        if self.frame.same is not None:
            keys.append(IDEAL.key(_SAME))
        return [*keys, *(pane_marker(timing).key() for timing in stage.panes)]

    def _source_looks(self) -> dict[str, Look]:
        """Returns the line styles of sources. Sources with the greatest mean lag have styles of their own, the others
        share one.
        """
        names = sorted(self.series.sources, key=lambda name: (-self._behind(name), name))
        looks = [Look(*line) for line in LINES]
        return {name: looks[number] if number < len(looks) else UPSTREAM for number, name in enumerate(names)}

    def _behind(self, source: str) -> float:
        """Returns the mean lag of a source's watermark behind processing time."""
        watermark = self.series.sources[source].watermark
        known = finite(watermark)
        return float((self.series.times[known] - watermark[known]).mean()) if known.any() else 0.0

    def _reads_stages(self, name: str) -> bool:
        return any(one in self.series.stages for one in self.series.stages[name].upstream)

    def _window_ends(self, name: str) -> Sequence[int]:
        """Returns the ends of windows that are the same for all keys, or none if there are too many to draw."""
        spacing = self.history.plan.stages[name].spacing
        if spacing is None:
            return ()
        ends = spacing.ends(self.frame.event.low, self.frame.event.high)
        return ends if len(ends) <= _MOST_WINDOWS else ()


def side_by_side(histories: Mapping[str, History], stage: str) -> Picture:
    """Draws a stage's watermarks in several runs, next to each other.

    The axis of processing time shows batch numbers, because the clocks of different runs cannot be compared.

    Args:
        histories: The history of each run, by the title of its chart.
        stage: The name of a stage that all runs have.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).named("counts").write("out", bl.Memory())
        <Collection 'counts': n Int64>
        >>> histories = {}
        >>> for title in ("one", "two"):
        ...     run = p.run(bl.LocalRunner(records=f"{title}.jsonl"))
        ...     histories[title] = bl.observe.History.open(f"{title}.jsonl")
        >>> bl.observe.side_by_side(histories, "counts").save("both.svg")
    """
    charts = [Charts.of(history) for history in histories.values()]
    event = TimeAxis.around(*(marks for chart in charts for marks in chart.series.event_times()))
    most = max(len(chart.series.times) for chart in charts)
    batches = BatchAxis(-1, most)
    wide = 4.9
    with style():
        charts = [
            attrs.evolve(chart, frame=Frame(event, batches, np.arange(len(chart.series.times))))
            for chart in charts
        ]
        every = [key for chart in charts for key in chart.stage_keys(stage)]
        keys = list({str(key.get_label()): key for key in every}.values())
        room = legend_room(keys, wide * len(charts))
        picture = Picture(wide * len(charts), _CHART + 0.3 + room)
        for number, (title, chart) in enumerate(zip(histories, charts, strict=True)):
            left = wide * number + _BATCHES_LEFT
            place = (left, room + _BELOW, wide - _BATCHES_LEFT - _RIGHT, _CHART - _BELOW)
            axes = plain_axes(picture, place)
            chart.draw_stage(axes, stage)
            axes.set_title(shown(title, 40))
        draw_legend(picture, keys)
    return picture


def _canvas(frame: Frame, keys: Sequence[Artist]) -> tuple[Picture, Axes, list[Axes]]:
    """Creates a picture with a large chart on the left, three small ones over time on the right, and a legend below."""
    room = legend_room(keys, _WIDTH)
    picture = Picture(_WIDTH, _CHART + room)
    main = plain_axes(picture, (_LEFT, room + _BELOW, 4.9 - _LEFT, _CHART - _BELOW - _ABOVE))
    main.set_title("watermarks")
    each = (_CHART - _BELOW) / _BESIDE
    beside = []
    for number in range(_BESIDE):
        bottom = room + _BELOW + (_BESIDE - 1 - number) * each
        axes = plain_axes(picture, (5.85, bottom, _WIDTH - 5.85 - _RIGHT, each - _ABOVE - 0.05))
        frame.processing.set(axes.xaxis)
        if number < _BESIDE - 1:
            axes.tick_params(labelbottom=False)
        beside.append(axes)
    beside[-1].set_xlabel(frame.processing.label("processing time"))
    draw_legend(picture, keys)
    return picture, main, beside


def _source_keys(frame: Frame, looks: Mapping[str, Look]) -> list[Artist]:
    own = [name for name, look in looks.items() if look is not UPSTREAM]
    keys: list[Artist] = [looks[name].key(shown(name, 40)) for name in own]
    if len(own) < len(looks):
        keys.append(UPSTREAM.key(f"{len(looks) - len(own)} more, less behind"))
    if frame.same is not None:
        keys.append(IDEAL.key(_SAME))
    return keys
