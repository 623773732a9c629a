"""The graph of a run as boxes and lines with positions in pixels, for an SVG picture that a template writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

import attrs

from beamlike.observe.charts.graph_layout import Box, Layout, layout
from beamlike.observe.charts.plot import stage_facts
from beamlike.observe.live.texts import event_clock, mark
from beamlike.observe.words import holder_text
from beamlike.records.graph import RunDescription
from beamlike.records.model import BatchRecord, furthest_behind, is_a_time

_INCH: Final = 96  # pixels; the layout counts in inches
_WIDTH: Final = 244
_LINE: Final = 17
_PAD: Final = 10
_LETTERS: Final = 34
"""The number of characters that fit into a line of a box."""


@attrs.frozen
class Line:
    """A line of text in a box: the text as it fits, the whole text, and its kind, which gives it its look."""

    text: str
    whole: str
    kind: str = ""


@attrs.frozen
class GraphBox:
    """A box: its kind, name, lines of text, and its place and size in pixels from the upper left corner."""

    kind: str
    name: str
    lines: Sequence[Line]
    x: float
    y: float
    width: float
    height: float


@attrs.frozen
class Arrow:
    """An arrow between two boxes: the path in SVG's words; `holds` if its start holds the watermark of its end."""

    path: str
    holds: bool


@attrs.frozen
class Graph:
    """A graph with positions, and its size in pixels."""

    boxes: Sequence[GraphBox]
    arrows: Sequence[Arrow]
    width: float
    height: float


def graph(plan: RunDescription, batch: BatchRecord | None) -> Graph:
    """Returns the graph of a run, with the watermarks after a batch if there is one."""
    inputs = _inputs(plan)
    lines = {name: _lines(plan, name, batch) for name in inputs}
    heights = tuple((name, len(own)) for name, own in lines.items())
    placed = _placed(tuple((name, tuple(names)) for name, names in inputs.items()), heights)
    high = placed.height * _INCH
    boxes = [
        GraphBox(
            _kind(plan, name),
            name,
            lines[name],
            (box.x - box.width / 2) * _INCH,
            high - (box.y + box.height / 2) * _INCH,
            box.width * _INCH,
            box.height * _INCH,
        )
        for name, box in placed.boxes.items()
    ]
    arrows = [
        Arrow(_path(places, high), _holds(batch, start, end)) for (start, end), places in placed.edges.items()
    ]
    return Graph(boxes, arrows, placed.width * _INCH, high)


def _inputs(plan: RunDescription) -> dict[str, list[str]]:
    """Returns the inputs of each source, stage and sink. A sink may have the name of a stage, so it has a mark."""
    found: dict[str, list[str]] = {name: [] for name in plan.sources}
    found |= {name: [*stage.inputs, *stage.tables] for name, stage in plan.stages.items()}
    found |= {f"{name}\0sink": [*sink.inputs, *sink.tables] for name, sink in plan.sinks.items()}
    return {name: [one for one in dict.fromkeys(names) if one in found] for name, names in found.items()}


@lru_cache(maxsize=32)
def _placed(inputs: tuple[tuple[str, tuple[str, ...]], ...], heights: tuple[tuple[str, int], ...]) -> Layout:
    """Computes the layout, which is the same for all batches in which boxes have equally many lines."""
    sizes = {name: (_WIDTH / _INCH, (count * _LINE + 2 * _PAD) / _INCH) for name, count in heights}
    return layout(dict(inputs), sizes)


def _kind(plan: RunDescription, name: str) -> str:
    if name.endswith("\0sink"):
        return "sink"
    return "source" if name in plan.sources else "stage"


def _lines(plan: RunDescription, name: str, batch: BatchRecord | None) -> list[Line]:
    shown = name.removesuffix("\0sink")
    lines = [_line(_kind(plan, name), "kind"), _line(shown, "name")]
    if name.endswith("\0sink"):
        sink = plan.sinks[shown]
        return [*lines, _line(sink.kind or sink.writes)]
    if name in plan.sources:
        source = plan.sources[name]
        return [*lines, _line(source.kind or source.reads), *_of_source(name, batch)]
    facts = stage_facts(plan.stages[name])
    return [*lines, *map(_line, facts[:2]), *_of_stage(name, batch)]


def _of_source(name: str, batch: BatchRecord | None) -> list[Line]:
    if batch is None or name not in batch.sources:
        return [_line("", "mark")]
    source = batch.sources[name]
    return [_line(f"watermark {mark(source.watermark)}" + (", idle" if source.idle else ""), "mark")]


def _of_stage(name: str, batch: BatchRecord | None) -> list[Line]:
    if batch is None or name not in batch.stages:
        return [_line("", "mark"), _line("", "mark"), _line("", "holds")]
    stage = batch.stages[name]
    held = "" if stage.window is None else f"held by {holder_text(stage.window, event_clock)}"
    return [
        _line(f"input {mark(stage.input)}", "mark"),
        _line(f"output {mark(stage.output)}", "mark"),
        _line(held, "holds"),
    ]


def _line(text: str, kind: str = "") -> Line:
    return Line(text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…", text, kind)


def _holds(batch: BatchRecord | None, start: str, end: str) -> bool:
    """True if the input `start` holds the input watermark of the stage `end`, which has further inputs."""
    stage = None if batch is None else batch.stages.get(end)
    if stage is None or len(stage.upstream) < 2 or not is_a_time(stage.input):
        return False
    return furthest_behind(stage.upstream) == start


def _path(places: Sequence[Box], high: float) -> str:
    """Returns a curve that is horizontal at boxes, and straight where it passes a column."""

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return point[0] * _INCH, high - point[1] * _INCH

    x, y = at(places[0].right)
    words = [f"M{x:.1f},{y:.1f}"]
    for before, after in pairwise(places):
        (x0, y0), (x1, y1) = at(before.right), at(after.left)
        end = x1 - 6 if after is places[-1] else x1
        middle = (x0 + x1) / 2
        words.append(f"C{middle:.1f},{y0:.1f} {middle:.1f},{y1:.1f} {end:.1f},{y1:.1f}")
        if after is not places[-1]:
            x, y = at(after.right)
            words.append(f"L{x:.1f},{y:.1f}")
    return " ".join(words)
