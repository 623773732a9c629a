"""Draws the rows of a collection in event time: the panes of windows as bars, other rows as points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.ticker import FuncFormatter, MaxNLocator

from beamlike.observe.charts.axes import Numbers, TimeAxis, Times, finite
from beamlike.observe.charts.figure import (
    BLACK,
    GREY,
    SKY,
    TEXT_POINTS,
    VERMILION,
    Picture,
    plain_axes,
    shown,
    style,
)
from beamlike.observe.charts.layers import (
    PANES,
    Marker,
    draw_legend,
    legend_room,
    pane_marker,
    short_number,
)

_WIDTH: Final = 9.8  # inches, like the other charts
_LEFT, _RIGHT, _BELOW, _ABOVE = 0.7, 0.3, 0.45, 0.3
_ALONE, _LANE, _GAP = 2.6, 0.62, 0.26
_MOST_LANES: Final = 12
_MOST_ROWS: Final = 3_000
"""The greatest number of rows that are drawn. A picture with more of them is large, and shows no more."""
_LONGEST: Final = 60

_RETRACTED: Final = Marker("retracted panes", VERMILION, "X", "")
_ROWS: Final = Marker("rows", SKY, "o", "")


@attrs.frozen(kw_only=True)
class Columns:
    """The columns of the rows to draw: the keys, the values (None: each row counts 1), and the engine's, if there are.

    `window` has the columns of the start and the end of the window.
    """

    keys: Sequence[str]
    value: str | None
    time: str
    window: tuple[str, str] | None
    timing: str | None
    retracted: str | None


@attrs.frozen(eq=False)
class _Marks:
    """Rows to draw: starts and ends (us), values, kinds, and the number of the lane of each."""

    starts: Times
    ends: Times
    values: Numbers
    kinds: Sequence[str]
    lanes: Times

    def of(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> _Marks:
        """Returns the rows of a mask."""
        kinds = [kind for kind, keep in zip(self.kinds, kept, strict=True) if keep]
        return _Marks(self.starts[kept], self.ends[kept], self.values[kept], kinds, self.lanes[kept])


def draw_rows(frame: pl.DataFrame, columns: Columns, name: str) -> Picture:
    """Draws rows from left to right in event time. Each key has a lane of its own; all have the same scale.

    A pane is a bar from the start to the end of its window, as high as its value. The colour is that of its timing.
    """
    frame = _with_times(frame, columns)
    drawn = frame.head(_MOST_ROWS)
    lanes, drawn, left_out = _lanes(drawn, columns.keys)
    marks = _marks(drawn, columns)
    notes = _notes(frame.height, drawn.height, left_out)
    title = f"{shown(name, _LONGEST)}: {shown(columns.value or 'rows', _LONGEST)}{notes}"
    with style():
        return _picture(marks, list(lanes), title, columns.value)


def _with_times(frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """Returns the rows that have an event time or a window, in order of it, with `@start` and `@end` (us)."""
    start, end = columns.window or (columns.time, columns.time)
    times = [
        pl.coalesce(name, columns.time).dt.timestamp("us").alias(new)
        for name, new in ((start, "@start"), (end, "@end"))
    ]
    timed = frame.with_columns(times).drop_nulls(["@start", "@end"])
    known = finite(timed["@start"].to_numpy()) & finite(timed["@end"].to_numpy())
    return timed.filter(pl.Series(known)).sort("@start", "@end", maintain_order=True)


def _lanes(frame: pl.DataFrame, keys: Sequence[str]) -> tuple[list[str], pl.DataFrame, int]:
    """Returns the texts of the keys with the most rows, these rows with their `@lane`, and the number of other keys."""
    if not keys:
        return [""], frame.with_columns(pl.lit(0, pl.Int64).alias("@lane")), 0
    text = pl.concat_str(
        [pl.col(key).cast(pl.String, strict=False).fill_null("null") for key in keys], separator=", "
    )
    named = frame.with_columns(text.alias("@key"))
    counts = named.group_by("@key").len().sort("len", "@key", descending=[True, False])
    lanes = sorted(counts["@key"].head(_MOST_LANES).to_list())
    kept = named.filter(pl.col("@key").is_in(lanes))
    order = pl.col("@key").replace_strict(lanes, range(len(lanes)), return_dtype=pl.Int64)
    return lanes or [""], kept.with_columns(order.alias("@lane")), counts.height - len(lanes)


def _marks(frame: pl.DataFrame, columns: Columns) -> _Marks:
    kind = pl.lit("rows") if columns.timing is None else pl.col(columns.timing).fill_null("rows")
    if columns.retracted is not None:
        kind = pl.when(pl.col(columns.retracted).fill_null(False)).then(pl.lit("retracted")).otherwise(kind)
    value = pl.lit(1.0) if columns.value is None else pl.col(columns.value).cast(pl.Float64)
    made = frame.select("@start", "@end", value.alias("value"), kind.alias("kind"), "@lane")
    return _Marks(
        made["@start"].to_numpy(),
        made["@end"].to_numpy(),
        _finite(made["value"]),
        made["kind"].to_list(),
        made["@lane"].to_numpy(),
    )


def _finite(values: pl.Series) -> Numbers:
    """Returns the values, with nan for all that no axis can have."""
    numbers = values.fill_null(float("nan")).to_numpy()
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _notes(total: int, drawn: int, keys: int) -> str:
    notes = [f"{keys:,} more keys are not drawn"] if keys else []
    if total > _MOST_ROWS:
        notes.append(f"the first {drawn:,} of {total:,} rows")
    return "".join(f"; {note}" for note in notes)


def _picture(marks: _Marks, lanes: Sequence[str], title: str, value: str | None) -> Picture:
    """Draws all lanes, from top to bottom."""
    kinds = [kind for kind in (*PANES, "retracted", "rows") if kind in marks.kinds]
    kinds += sorted({*marks.kinds} - {*kinds})
    keys: list[Artist] = [_marker(kind).key() for kind in kinds]
    several = len(lanes) > 1
    high, gap = (_LANE, _GAP) if several else (_ALONE, 0.0)
    below = _BELOW + (legend_room(keys, _WIDTH) if keys else 0.0)
    height = below + len(lanes) * (high + gap) + _ABOVE
    picture = Picture(_WIDTH, height)
    times = TimeAxis.around(marks.starts, marks.ends)
    for number, lane in enumerate(lanes):
        last = number == len(lanes) - 1
        place = below + (len(lanes) - 1 - number) * (high + gap)
        axes = plain_axes(picture, (_LEFT, place, _WIDTH - _LEFT - _RIGHT, high))
        times.set(axes.xaxis, 6)
        _set_values(axes, marks.values, 2 if several else 5, value)
        _draw_lane(axes, times, marks.of(marks.lanes == number), kinds)
        if several:
            axes.set_title(shown(lane, _LONGEST), fontweight="normal", pad=3)
        axes.tick_params(labelbottom=last)
        if last:
            axes.set_xlabel(times.label("event time"))
    picture.text(0.1 / _WIDTH, 1 - 0.08 / height, title, weight="bold", size=TEXT_POINTS + 1, va="top")
    if keys:
        draw_legend(picture, keys)
    return picture


def _draw_lane(axes: Axes, times: TimeAxis, marks: _Marks, kinds: Sequence[str]) -> None:
    """Draws the bars of a lane, lower ones in front of higher ones, and the markers of each kind."""
    if not marks.kinds:
        axes.text(
            0.5,
            0.5,
            "no rows with an event time",
            transform=axes.transAxes,
            color=GREY,
            ha="center",
            va="center",
        )
        return
    left, right = times.at(marks.starts), times.at(marks.ends)
    colours = [_marker(kind).colour for kind in marks.kinds]
    bars = [
        row for row in np.argsort(-marks.values) if right[row] > left[row] and marks.kinds[row] != "retracted"
    ]
    corners = [
        [(left[row], 0), (left[row], marks.values[row]), (right[row], marks.values[row]), (right[row], 0)]
        for row in bars
    ]
    axes.add_collection(
        PolyCollection(corners, facecolor=[_pale(colours[row]) for row in bars], linewidth=0, zorder=1),
        autolim=False,
    )
    axes.hlines(
        marks.values[bars],
        left[bars],
        right[bars],
        color=[colours[row] for row in bars],
        linewidth=1.2,
        zorder=2,
    )
    for kind in kinds:
        own = np.array([one == kind for one in marks.kinds])
        _draw_markers(axes, (left + right)[own] / 2, marks.values[own], _marker(kind))


def _draw_markers(axes: Axes, places: Numbers, values: Numbers, look: Marker) -> None:
    axes.scatter(
        places,
        values,
        s=60 if look is _RETRACTED else 24,
        marker=look.marker,
        facecolor=look.colour,
        edgecolor="white" if look is _RETRACTED else BLACK,
        linewidth=0.5,
        zorder=4,
        clip_on=False,
    )


def _pale(colour: str) -> tuple[float, ...]:
    """Returns a light tint of a colour."""
    return tuple(1 - 0.3 * (1 - part) for part in to_rgb(colour))


def _set_values(axes: Axes, values: Numbers, count: int, value: str | None) -> None:
    """Sets the y axis from 0 to the greatest value, or from the least if some are negative."""
    known = values[np.isfinite(values)]
    low, high = (float(min(0, known.min())), float(max(0, known.max()))) if known.size else (0.0, 1.0)
    room = (high - low) * 0.12 or 1.0
    axes.set_ylim(low - (room if low < 0 else 0), high + room)
    if value is None or not known.size:
        axes.set_yticks([])
        return
    axes.yaxis.set_major_locator(MaxNLocator(count, integer=bool((known == known.round()).all())))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: _number(number)))
    if low < 0:
        axes.axhline(0, color=GREY, linewidth=0.6)


def _number(value: float) -> str:
    return f"-{short_number(-value)}" if value < 0 else short_number(value)


def _marker(kind: str) -> Marker:
    return {"retracted": _RETRACTED, "rows": _ROWS}.get(kind) or pane_marker(kind)
