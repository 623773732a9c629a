"""Watermarks of stages: input = minimum over upstream reports, output = minimum over input, buffers and state.

Reports and holds are given facts and are stored; watermarks are derived from them here, and only here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs
from windowing.time import MAX_TIME, MIN_TIME

from stages.graph import StageGraph


@attrs.frozen
class Watermarks:
    """Where a stage stands in event time, in microseconds. Both never go back, and output <= input."""

    input: int = MIN_TIME
    output: int = MIN_TIME

    def advance(self, reports: Iterable[int], hold: int | None = None) -> Watermarks:
        """After upstream reports of these watermarks, with this least hold among buffers and state."""
        received = self.receive(reports)
        held = received.input if hold is None else min(received.input, hold)
        return Watermarks(received.input, max(self.output, held))

    def receive(self, reports: Iterable[int]) -> Watermarks:
        """The input moved to the least report; a stage without upstream is at the end of input."""
        return Watermarks(max(self.input, min(reports, default=MAX_TIME)), self.output)


@attrs.frozen
class Clock:
    """What a step moves to: the stage's input watermark and the processing time, in microseconds."""

    watermark: int
    processing_time: int = 0


@attrs.frozen
class Reports:
    """The latest output watermark that each origin (a source, or a shard of a stage) has reported."""

    latest: Mapping[str, int] = attrs.field(factory=dict)

    def receive(self, origin: str, watermark: int) -> Reports:
        """With one more report; one that is behind the latest changes nothing."""
        return Reports({**self.latest, origin: max(watermark, self.latest.get(origin, MIN_TIME))})

    def of(self, origins: Iterable[str]) -> list[int]:
        """The reports of these origins; who has not reported yet holds at the beginning of time."""
        return [self.latest.get(origin, MIN_TIME) for origin in origins]


def propagate(
    graph: StageGraph, sources: Mapping[str, int], step: Callable[[str, int], int]
) -> dict[str, int]:
    """The output watermark of every node, sources first.

    `sources` has the sources' watermarks in microseconds; `step(stage, input watermark)` gives a stage's output
    watermark, and is called once for each stage after all that is upstream of it.
    """
    outputs = dict(sources)
    for name in graph.order():
        if name not in outputs:
            upstream = [outputs[upstream] for upstream in graph.inputs(name)]
            outputs[name] = step(name, min(upstream, default=MAX_TIME))
    return outputs
