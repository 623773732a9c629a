"""Elements of charts: watermark lines, lags, panes, bars, and the legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from beamlike.observe.charts.axes import (
    BatchAxis,
    Numbers,
    TimeAxis,
    Times,
    finite,
    set_durations,
    tick_distance,
)
from beamlike.observe.charts.figure import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Picture,
    text_width,
)
from beamlike.observe.charts.series import RunSeries, StageSeries, event_time_lag, lag_behind, steps, thinned
from windowing.time import format_duration

_SECOND: Final = 1_000_000
_BINS: Final = 40
_LEGEND_LINE: Final = 0.2  # inches
_HANDLE: Final = 0.55  # inches that a legend entry needs in addition to its text
_WORTH_SAYING: Final = 0.08  # the share of the event-time axis from which a delay gets a label


@attrs.frozen
class Look:
    """A line style: colour, dashes and width."""

    colour: str
    dashes: Any = "-"
    width: float = 1.6

    def key(self, label: str) -> Line2D:
        """Returns the legend entry for the line."""
        return Line2D([], [], color=self.colour, linestyle=self.dashes, linewidth=self.width, label=label)


INPUT: Final = Look(BLUE)
OUTPUT: Final = Look(VERMILION, (0, (3, 1)))
UPSTREAM: Final = Look("#999999", width=1.0)
SLOWEST: Final = Look(GREEN, "-.", 1.2)
HELD: Final = Patch(facecolor=GREEN, alpha=0.15, label="held back by stages before")
IDEAL: Final = Look("#999999", ":", 1.0)
WINDOW_ENDS: Final = Look("#8a8a8a", (0, (4, 3)), 0.8)
PERCENTILES: Final = tuple(Look(PURPLE, dashes, 1.0) for dashes in (":", "-.", "--", "-"))


@attrs.frozen
class Marker:
    """A style for panes or dropped elements, as a marker and as a bar."""

    label: str
    colour: str
    marker: str
    hatch: str

    def key(self) -> Line2D:
        """Returns the legend entry for the marker."""
        return Line2D(
            [], [], marker=self.marker, label=self.label, linestyle="", color=self.colour, **_MARKER
        )

    def bar_key(self) -> Patch:
        """Returns the legend entry for the bar."""
        return Patch(facecolor=self.colour, hatch=self.hatch, edgecolor="white", label=self.label)


_MARKER: Any = {"markeredgecolor": BLACK, "markeredgewidth": 0.5, "markersize": 6}

PANES: Final = {
    "early": Marker("early panes", SKY, "^", ""),
    "on_time": Marker("on-time panes", BLUE, "o", ""),
    "late": Marker("late panes", ORANGE, "s", ""),
}
DROPS: Final = {
    "late": Marker("dropped, late", VERMILION, "x", "////"),
    "closed": Marker("dropped, trigger finished", BLACK, "x", "xxxx"),
    "no window": Marker("dropped, in no window", GREY, "x", "...."),
}


def pane_marker(timing: str) -> Marker:
    """Returns the marker for a pane timing. Unknown timings have a common style."""
    return PANES.get(timing, Marker(f"{timing} panes", GREY, "D", ""))


def drop_marker(reason: str) -> Marker:
    """Returns the marker for a reason of drops. Unknown reasons have a common style."""
    return DROPS.get(reason, Marker(f"dropped, {reason}", GREY, "x", "...."))


@attrs.frozen(eq=False)
class Frame:
    """The time axes that all charts of a run share, and the processing time (us) of each batch.

    `newest` is the most advanced watermark of all sources, if the elements are old, as in a replay. It is None if
    watermarks are near processing time.
    """

    event: TimeAxis
    processing: TimeAxis
    times: Times
    newest: Times | None = None

    @classmethod
    def around(cls, series: RunSeries) -> Frame:
        """Creates the axes for a run. If watermarks are near processing time, the line of equal times is visible."""
        now, marks = series.times, series.event_times()
        processing, event = TimeAxis.around(now), TimeAxis.around(*marks)
        near = max(event.high - event.low, processing.high - processing.low)
        if max(abs(processing.high - event.high), abs(processing.low - event.low)) < near:
            return cls(TimeAxis.around(*marks, now), processing, now)
        return cls(event, processing, now, series.newest)

    @property
    def same(self) -> Times | None:
        """The first and last visible times at which event time equals processing time; None if the line is
        not visible.
        """
        low, high = max(self.event.low, self.processing.low), min(self.event.high, self.processing.high)
        return None if low >= high or isinstance(self.processing, BatchAxis) else np.array([low, high])

    @property
    def lag_title(self) -> str:
        """The title of a chart of event-time lags."""
        return "event-time lag" if self.newest is None else "lag behind the newest source"

    def lag(self, watermark: Times) -> tuple[Times, Numbers]:
        """Returns times and the lag (s) of a watermark at these, behind processing time or behind the newest source."""
        if self.newest is None:
            return event_time_lag(self.times, watermark)
        return lag_behind(self.newest, self.times, watermark)

    @property
    def bin(self) -> int:
        """The length (us) of the intervals of processing time in which events are counted."""
        return tick_distance(self.processing.high - self.processing.low, _BINS)

    @property
    def each(self) -> str:
        """The length of the intervals as text, such as `per 10s`."""
        return f"per {format_duration(self.bin)}"

    @property
    def bins(self) -> Times:
        """The number of the interval of each batch."""
        return (self.times - self.processing.low) // self.bin


def set_event_time_chart(axes: Axes, frame: Frame, window_ends: Sequence[int]) -> None:
    """Draws the axes (event time to the right, processing time upwards), the line of equal times, and the
    window ends.
    """
    frame.event.set(axes.xaxis, 6)
    frame.processing.set(axes.yaxis, 6)
    axes.set_xlabel(frame.event.label("event time"))
    axes.set_ylabel(frame.processing.label("processing time"))
    if frame.same is not None:
        _plot(axes, frame.event.at(frame.same), frame.processing.at(frame.same), IDEAL)
    if window_ends:
        axes.grid(axis="x", visible=False)
        places = frame.event.at(np.array(window_ends))
        axes.vlines(
            places,
            0,
            frame.processing.length,
            color=WINDOW_ENDS.colour,
            linewidth=WINDOW_ENDS.width,
            linestyle=WINDOW_ENDS.dashes,
            zorder=0.5,
        )


def draw_watermark(axes: Axes, frame: Frame, watermark: Times, look: Look) -> None:
    """Draws a watermark, batch by batch. A watermark at the end of input is at the right edge."""
    at, marks = steps(frame.times, watermark)
    kept = thinned(marks)
    _plot(axes, frame.event.at(marks[kept]), frame.processing.at(at[kept]), look)


def draw_delay(axes: Axes, frame: Frame, watermark: Times, slowest: Times) -> None:
    """Fills the area between a watermark and that of the slowest source. A label shows the greatest delay."""
    at, marks = steps(frame.times, watermark)
    _, sources = steps(frame.times, slowest)
    kept = np.union1d(thinned(marks), thinned(sources))
    left, right = frame.event.at(marks[kept]), frame.event.at(sources[kept])
    axes.fill_betweenx(frame.processing.at(at[kept]), left, right, facecolor=GREEN, alpha=0.15, linewidth=0)
    known = np.flatnonzero(finite(watermark[:-1]) & finite(slowest[:-1]))
    delays = slowest[known] - watermark[known]
    # The label is to the right of the line, and above the label of the line itself.
    room = (frame.event.at(slowest[known]) < 0.7 * frame.event.length) & (
        frame.processing.at(frame.times[known]) > 0.4 * frame.processing.length
    )
    if not room.any() or (delay := int(delays[room].max())) < _WORTH_SAYING * (
        frame.event.high - frame.event.low
    ):
        return
    widest = known[room][delays[room].argmax()]
    start, end = (float(frame.event.at(one)[widest]) for one in (watermark, slowest))
    height = float(frame.processing.at(frame.times[widest : widest + 2]).mean())
    axes.annotate("", (start, height), (end, height), arrowprops={"arrowstyle": "<->", "linewidth": 0.8})
    _write(axes, f"{format_duration(round(delay, -6))} held back", (end, height), (6, 0), BLACK)


def _write(axes: Axes, text: str, place: tuple[float, float], offset: tuple[int, int], colour: str) -> None:
    """Writes text next to a position, at a distance of `offset` points."""
    axes.annotate(
        text,
        place,
        xytext=offset,
        textcoords="offset points",
        horizontalalignment="left" if offset[0] > 0 else "right",
        verticalalignment="center",
        color=colour,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5},
        zorder=5,
    )


def label_watermark(
    axes: Axes, frame: Frame, watermark: Times, text: str, colour: str, *, right: bool
) -> None:
    """Labels a line where there is room: at its right in the lower part of the chart, or at its left in the
    upper part.
    """
    known = np.flatnonzero(finite(watermark))
    if not len(known):
        return
    at = frame.processing.at(frame.times[known])
    wanted = at[0] + (at[-1] - at[0]) * (0.3 if right else 0.72)
    number = known[np.searchsorted(at, wanted, side="right") - 1]
    share = float(frame.event.at(watermark)[number]) / frame.event.length
    if not (share < 0.8 if right else share > 0.2):
        return
    _write(axes, text, (share * frame.event.length, wanted), (6, -6) if right else (-6, 6), colour)


def draw_panes(axes: Axes, frame: Frame, stage: StageSeries) -> None:
    """Draws the panes of a stage at the input watermark of their batch. A larger marker means more panes."""
    for timing, counts in sorted(stage.panes.items()):
        came = np.flatnonzero(counts)
        if not len(came):
            continue
        mark = pane_marker(timing)
        bins = frame.bins[came]
        last = came[np.append(np.flatnonzero(np.diff(bins)), len(came) - 1)]
        _, number = np.unique(bins, return_inverse=True)
        totals = np.bincount(number, weights=counts[came])
        axes.scatter(
            frame.event.at(stage.input[last]),
            frame.processing.at(frame.times[last]),
            s=16 + 10 * np.log10(totals),
            marker=mark.marker,
            facecolor=mark.colour,
            edgecolor=BLACK,
            linewidth=0.5,
            zorder=4,
            clip_on=False,
        )


def draw_event_lags(axes: Axes, frame: Frame, lines: Sequence[tuple[Times, Look]]) -> None:
    """Draws the lags of watermarks."""
    drawn = [(*frame.lag(watermark), look) for watermark, look in lines]
    _draw_durations(axes, frame, drawn)


def draw_system_lags(axes: Axes, frame: Frame, stage: StageSeries) -> None:
    """Draws the processing-time lags of a stage's input and output."""
    lines = [(stage.output_system_lag, OUTPUT), (stage.input_system_lag, INPUT)]
    _draw_durations(axes, frame, [(frame.times, lag, look) for lag, look in lines])


def _draw_durations(axes: Axes, frame: Frame, lines: Sequence[tuple[Times, Numbers, Look]]) -> None:
    for times, values, look in lines:
        kept = thinned(values)
        _plot(axes, frame.processing.at(times[kept]), values[kept], attrs.evolve(look, width=1.2))
    set_durations(axes.yaxis, np.concatenate([values for _, values, _ in lines] or [np.zeros(1)]), 3)


def draw_counts(
    axes: Axes, frame: Frame, up: Iterable[tuple[Times, Marker]], down: Iterable[tuple[Times, Marker]] = ()
) -> None:
    """Draws stacked bars of counts, for example arrivals upwards and drops downwards."""
    for sign, layers in ((1, up), (-1, down)):
        base: Numbers = np.zeros(_BINS + 2)
        for counts, mark in layers:
            heights = np.bincount(frame.bins, weights=counts, minlength=len(base))
            shown = np.flatnonzero(heights)
            axes.bar(
                (shown + 0.5) * frame.bin / _SECOND,
                sign * heights[shown],
                0.9 * frame.bin / _SECOND,
                bottom=sign * base[shown],
                color=mark.colour,
                hatch=mark.hatch,
                edgecolor="white",
                linewidth=0,
            )
            base = base + heights
    axes.margins(y=0.12)
    if not axes.patches:
        axes.set(ylim=(0, 1), yticks=[])
        axes.text(0.5, 0.5, "none", transform=axes.transAxes, color=GREY, ha="center", va="center")
        return
    axes.axhline(0, color=GREY, linewidth=0.6)
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(abs(value))))


def short_number(value: float) -> str:
    """Formats a number in short form: `950`, `1.5k`, `2M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _plot(axes: Axes, x: Numbers, y: Numbers, look: Look) -> None:
    axes.plot(x, y, color=look.colour, linestyle=look.dashes, linewidth=look.width, solid_joinstyle="round")


def legend_columns(keys: Sequence[Artist], width: float) -> int:
    """Returns the number of legend entries that fit into a row of `width` inches."""
    widest = max(text_width(str(key.get_label())) for key in keys) + _HANDLE
    return max(1, int(width / widest))


def legend_room(keys: Sequence[Artist], width: float) -> float:
    """Returns the height of a legend in inches."""
    return 0.1 + _LEGEND_LINE * -(-len(keys) // legend_columns(keys, width))


def draw_legend(picture: Picture, keys: Sequence[Artist]) -> None:
    """Draws the legend at the bottom of the picture."""
    width = float(picture.get_size_inches()[0])
    picture.legend(
        handles=list(keys),
        loc="lower left",
        ncols=legend_columns(keys, width),
        borderaxespad=0.3,
        columnspacing=1.2,
        handlelength=2.6,
        handletextpad=0.5,
        labelspacing=0.35,
    )
