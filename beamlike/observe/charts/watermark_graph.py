"""Draws the graph of a run with the watermarks after a batch, and what holds them."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from beamlike.observe.charts.figure import Picture
from beamlike.observe.charts.graph_picture import Node, draw_graph
from beamlike.observe.charts.plot import nodes
from beamlike.observe.words import holder_text
from beamlike.records.graph import RunDescription
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord, furthest_behind, is_a_time

Clock = Callable[[int], str]
"""Formats an event time."""


def draw_watermark_graph(run: RunDescription, batch: BatchRecord | None, clock: Clock) -> Picture:
    """Draws the graph. With a batch, each box shows its watermarks and what holds them."""
    boxes = nodes(run)
    return draw_graph(boxes if batch is None else [_with_watermarks(box, batch, clock) for box in boxes])


def _with_watermarks(box: Node, batch: BatchRecord, clock: Clock) -> Node:
    if box.name in batch.sources:
        return _source(box, batch.sources[box.name], clock)
    return _stage(box, batch.stages[box.name], clock) if box.name in batch.stages else box


def _source(box: Node, source: SourceRecord, clock: Clock) -> Node:
    watermarks = [
        f"watermark {clock(source.watermark)}",
        *(["idle: ignored downstream"] if source.idle else []),
    ]
    awaited = source.awaited if source.split is None else f"split {source.split}"
    return attrs.evolve(box, watermarks=watermarks, holds=f"waits for {awaited}" if awaited else "")


def _stage(box: Node, stage: StageRecord, clock: Clock) -> Node:
    """Adds to a stage's box: its watermarks, the input that is furthest behind, and the window that holds the
    output.
    """
    choice = len(stage.upstream) > 1 and is_a_time(stage.input)
    return attrs.evolve(
        box,
        watermarks=[f"input {clock(stage.input)}, output {clock(stage.output)}"],
        held_by=furthest_behind(stage.upstream) if choice else None,
        holds=f"held by {holder_text(stage.window, clock)}" if stage.window is not None else "",
    )
