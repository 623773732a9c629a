"""Draws what bounds of a watermark lose: the share of elements by bound, a line for each source."""

from __future__ import annotations

from collections.abc import Sequence

from beamlike.observe.charts.figure import LINES, Picture, plain_axes, shown, style
from beamlike.observe.words import length

_WIDTH, _HEIGHT = 6.4, 3.2
_LONGEST = 40

Losses = tuple[str, str, Sequence[int], Sequence[float]]
"""The name of a source, what its elements are, the bounds (us), and the share that each loses."""


def draw_losses(sources: Sequence[Losses]) -> Picture:
    """Draws a line for each source. Bounds are equally spaced, since each is a few times the one before."""
    with style():
        picture = Picture(_WIDTH, _HEIGHT)
        axes = plain_axes(picture, (0.7, 0.6, _WIDTH - 0.9, _HEIGHT - 0.9))
        bounds = sorted({bound for _, _, given, _ in sources for bound in given})
        for number, (name, what, given, lost) in enumerate(sources):
            colour, dashes = LINES[number % len(LINES)]
            axes.plot(
                [bounds.index(bound) for bound in given],
                [100 * share for share in lost],
                color=colour,
                linestyle=dashes,
                marker="o",
                markersize=3,
                label=f"{shown(name, _LONGEST)}: {what}",
            )
        axes.set_xticks(range(len(bounds)), [length(bound) for bound in bounds], rotation=45)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("bound")
        axes.set_ylabel("% of elements")
        axes.legend()
    return picture
