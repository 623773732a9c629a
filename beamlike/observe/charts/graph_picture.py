"""Draws a graph as boxes and arrows, from left to right."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import attrs
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from beamlike.observe.charts.figure import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    RUST,
    SKY,
    TEXT_POINTS,
    VERMILION,
    Picture,
    plain_axes,
    shown,
    style,
    text_width,
)
from beamlike.observe.charts.graph_layout import Box, layout

SOURCE: Final = "source"
STAGE: Final = "stage"
SINK: Final = "sink"

_EDGE_COLOUR = {SOURCE: SKY, STAGE: BLUE, SINK: GREEN}
_FILL = {SOURCE: "#EEF7FD", STAGE: "#E6F1F7", SINK: "#E6F5F1"}
_ROUNDING = {SOURCE: 0.14, STAGE: 0.03, SINK: 0.03}
_SMALL_PRINT = "#555555"
_CHARACTERS = 40  # characters in a line of a box
_LINES = 4  # lines of one fact
_LINE = 0.155  # inches between lines
_PAD = 0.1
_TIGHT = 1.04  # text in a browser is not exactly as wide as in matplotlib


@attrs.frozen
class Node:
    """A box of the graph: name, kind, facts, inputs, and its state in a run.

    `watermarks` has its watermarks as text. `held_by` is the input that holds them back, and `holds` describes what
    holds its output watermark.
    """

    name: str
    kind: str
    facts: Sequence[str] = ()
    inputs: Sequence[str] = ()
    watermarks: Sequence[str] = ()
    held_by: str | None = None
    holds: str = ""


@attrs.frozen
class _Line:
    """A line of text in a box."""

    text: str
    points: float = TEXT_POINTS
    bold: bool = False
    colour: str = BLACK

    @property
    def width(self) -> float:
        return text_width(self.text, points=self.points, bold=self.bold)


def draw_graph(nodes: Iterable[Node]) -> Picture:
    """Draws boxes and arrows. What holds a watermark is written in vermilion, and an arrow from such an input is thick
    and dashed.
    """
    nodes = list(nodes)
    with style():
        lines = {node.name: _lines(node) for node in nodes}
        plan = layout(
            {node.name: [name for name in node.inputs if name in lines] for node in nodes},
            {name: _size(own) for name, own in lines.items()},
        )
        picture = Picture(plan.width, plan.height)
        axes = plain_axes(picture, (0, 0, plan.width, plan.height))
        axes.set_axis_off()
        axes.set(xlim=(0, plan.width), ylim=(0, plan.height))
        held_by = {node.name: node.held_by for node in nodes}
        for (start, end), path in plan.edges.items():
            _draw_edge(axes, path, held=held_by[end] == start)
        for node in nodes:
            _draw_box(axes, node.kind, lines[node.name], plan.boxes[node.name])
    return picture


def _lines(node: Node) -> list[_Line]:
    """Returns the lines of a box: kind, name, facts, watermarks, and what holds them."""
    return [
        _Line(node.kind, TEXT_POINTS - 1, colour=_SMALL_PRINT),
        _Line(shown(node.name, _CHARACTERS), bold=True),
        *(_Line(text) for fact in node.facts for text in _wrapped(fact)),
        *(_Line(text, bold=True, colour=BLUE) for fact in node.watermarks for text in _wrapped(fact)),
        *(_Line(text, colour=RUST) for text in _wrapped(node.holds)),
    ]


def _wrapped(fact: str) -> list[str]:
    text = shown(fact, _CHARACTERS * _LINES)
    return textwrap.wrap(text, _CHARACTERS, max_lines=_LINES, placeholder=" …", subsequent_indent="  ")


def _size(lines: Sequence[_Line]) -> tuple[float, float]:
    """Returns the width and height of a box with these lines, in inches."""
    width = max(*(line.width * _TIGHT for line in lines), 0.8)
    return width + 2 * _PAD, len(lines) * _LINE + 2 * _PAD - 0.04


def _draw_box(axes: Axes, kind: str, lines: Sequence[_Line], box: Box) -> None:
    left, bottom = box.x - box.width / 2, box.y - box.height / 2
    axes.add_patch(
        FancyBboxPatch(
            (left, bottom),
            box.width,
            box.height,
            boxstyle=f"round,pad=0,rounding_size={_ROUNDING[kind]}",
            facecolor=_FILL[kind],
            edgecolor=_EDGE_COLOUR[kind],
            linewidth=1.2,
        )
    )
    for number, line in enumerate(lines):
        axes.text(
            left + _PAD,
            bottom + box.height - _PAD - (number + 0.75) * _LINE + 0.02,
            line.text,
            fontsize=line.points,
            fontweight="bold" if line.bold else "normal",
            color=line.colour,
        )


def _draw_edge(axes: Axes, path: Sequence[Box], *, held: bool) -> None:
    """Draws a curve that is horizontal at boxes, and straight where it passes a column."""
    points, codes = [path[0].right], [Path.MOVETO]
    for before, after in pairwise(path):
        (x0, y0), (x1, y1) = before.right, after.left
        middle = (x0 + x1) / 2
        points += [(middle, y0), (middle, y1), (x1, y1)]
        codes += [Path.CURVE4] * 3
        if after is not path[-1]:
            points.append(after.right)
            codes.append(Path.LINETO)
    colour, width, dashes = (VERMILION, 2.0, (0, (4, 1.5))) if held else (GREY, 1.0, "solid")
    x, y = points[-1]
    points[-1] = (x - 0.06, y)
    axes.add_patch(
        PathPatch(Path(points, codes), facecolor="none", edgecolor=colour, linewidth=width, linestyle=dashes)
    )
    head = [(x, y), (x - 0.09, y + 0.045), (x - 0.09, y - 0.045), (x, y)]
    axes.add_patch(PathPatch(Path(head), facecolor=colour, edgecolor="none"))
