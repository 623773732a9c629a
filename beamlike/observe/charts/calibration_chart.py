"""Draws the completeness that panes stated against what it really was: a dot for each window."""

from __future__ import annotations

from collections.abc import Sequence

from beamlike.observe.charts.figure import GREY, LINES, Picture, plain_axes, style

_WIDTH, _HEIGHT = 4.4, 4.0
_MARKERS = {"early": "^", "on_time": "o", "late": "s"}

Known = tuple[str, float, float]
"""The timing of the panes of a window, the share that they stated, and what it really was."""


def draw_calibration(windows: Sequence[Known]) -> Picture:
    """Draws the dots of each timing, and the diagonal on which a statement is right. Dots above it had more rows."""
    with style():
        picture = Picture(_WIDTH, _HEIGHT)
        axes = plain_axes(picture, (0.6, 0.5, _WIDTH - 0.8, _HEIGHT - 0.7))
        axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
        for (timing, marker), (colour, _) in zip(_MARKERS.items(), LINES, strict=False):
            found = [(stated, really) for kind, stated, really in windows if kind == timing]
            if found:
                axes.scatter(
                    [stated for stated, _ in found],
                    [really for _, really in found],
                    s=14,
                    color=colour,
                    marker=marker,
                    alpha=0.6,
                    label=timing.replace("_", " "),
                )
        axes.set_xlim(0, 1.02)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("stated share of rows")
        axes.set_ylabel("share that had really arrived")
        if windows:
            axes.legend(loc="upper left")
    return picture
