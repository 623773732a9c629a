"""Random graphs of stages over test streams, for Hypothesis, and a naive propagation of rows through them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import narwhals as nw
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io import Part
from tests.support.model import MAX_TIME, MIN_TIME, Element, Model, Step
from tests.support.strategies import (
    cumulative_windows,
    elements,
    fixed_windows,
    lateness,
    sessions,
    sliding_windows,
    us,
    usual_triggers,
)
from windowing import Windowing
from windowing.time import Microseconds

SHARES = (33, 66)
"""The percentile watermarks that every source announces."""

Announced = tuple[int, int, int]
"""Steps of the watermark, of the 66th percentile ahead of it, and of the 33rd ahead of that."""

Move = tuple[Element, ...] | Announced | int
"""Elements, watermarks that move, or processing time that passes: a step of a source."""


@attrs.frozen
class Node:
    """A grouping of the rows of its inputs: sources or earlier nodes."""

    inputs: tuple[str, ...]
    keyed: bool
    choices: Mapping[str, Any]


@attrs.frozen
class Graph:
    """Sources with their steps, and nodes in order."""

    sources: Mapping[str, tuple[Move, ...]]
    nodes: Mapping[str, Node]

    @property
    def steps(self) -> int:
        """The number of steps of the longest source, and one more that ends all sources."""
        return max(map(len, self.sources.values())) + 1

    def ancestors(self, name: str) -> set[str]:
        """Returns a node and all sources and nodes that lead to it."""
        above = self.nodes[name].inputs if name in self.nodes else ()
        return {name}.union(*map(self.ancestors, above))


steps = st.one_of(
    st.lists(elements, min_size=1, max_size=4).map(tuple),
    st.tuples(st.integers(1, 15), st.integers(0, 10), st.integers(0, 10)),
    st.integers(1, 9),
)
choices = st.fixed_dictionaries(
    {
        "windows": fixed_windows | sliding_windows | cumulative_windows | sessions,
        "trigger": usual_triggers,
        "accumulation": st.sampled_from(["discarding", "accumulating"]),
        "timestamp_combiner": st.sampled_from(
            ["end_of_window", "earliest", "latest", bl.timestamp_of("chosen")]
        ),
        "closing": st.sampled_from(["if_non_empty", "always"]),
        "allow_data_loss": st.just(True),
        "allow_repeats": st.just(True),
    }
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draws one to three sources and one to five nodes: chains, diamonds, fans, or unconnected ones."""
    # All sources report percentiles from the beginning, because a trigger may read them.
    moves = st.lists(steps, max_size=6).map(lambda moves: ((1, 0, 0), *moves))
    sources = {f"source {number}": draw(moves) for number in range(draw(st.integers(1, 3)))}
    nodes: dict[str, Node] = {}
    lasting = draw(lateness)  # It may not shrink downstream, and flatten needs equal windowings.
    for number in range(draw(st.integers(1, 5))):
        above = st.lists(st.sampled_from([*sources, *nodes]), min_size=1, max_size=3, unique=True)
        nodes[f"stage {number}"] = Node(
            tuple(draw(above)), draw(st.booleans()), {**draw(choices), "allowed_lateness": lasting}
        )
    read = {name for node in nodes.values() for name in node.inputs}
    return Graph({name: moves for name, moves in sources.items() if name in read}, nodes)


# As a pipeline


def stream(moves: tuple[Move, ...]) -> bl.TestStream:
    """Returns the steps of a source as a test stream."""
    made, clocks = bl.TestStream({"key": str, "value": int, "at": int}), Clocks()
    for move in moves:
        clocks = clocks.after(move)
        if isinstance(move, int):
            made = made.advance_processing_time(us(move))
        elif isinstance(move[0], int):
            shares = {share: Microseconds(time) for share, time in clocks.percentiles.items()}
            made = made.advance_watermark_to(Microseconds(clocks.watermark), percentiles=shares)
        else:
            made = made.add_elements([dict(zip(("key", "value", "at"), item, strict=True)) for item in move])
    return made


@attrs.define
class Panes:
    """A sink that keeps the panes of every batch."""

    batches: dict[int, list[tuple[Any, ...]]] = attrs.field(factory=dict)

    distributed = False

    def start(self, run: str) -> None:
        self.batches.clear()

    def write(self, frame: Any, part: Part) -> None:
        rows = frame.select("key", "value", "timestamp", "start", "end", "timing", "index").rows()
        self.batches[part.batch] = sorted([*self.batches.get(part.batch, []), *rows])


def declare(graph: Graph) -> tuple[bl.Pipeline, dict[str, Panes]]:
    """Declares the graph as a pipeline, with a sink for every stage."""
    p, made, sinks = bl.Pipeline("graph"), {}, {}
    for name, moves in graph.sources.items():
        rows = p.read(name, stream(moves), timestamp="at", timestamp_unit="us")
        made[name] = rows.select("key", "value")
    for name, node in graph.nodes.items():
        marked = [made[one].with_columns(chosen=bl.col("value") % 2 == 0) for one in node.inputs]
        above = [rows.window_into(**node.choices) for rows in marked]
        rows = bl.flatten(*above) if len(above) > 1 else above[0]
        made[name] = summed(rows, node.keyed, name)
        times = {"timestamp": bl.event_time(), "start": bl.window_start(), "end": bl.window_end()}
        numbers = {column: time.cast(nw.Int64) for column, time in times.items()}
        facts = {"timing": bl.pane_timing(), "index": bl.pane_index()}
        sinks[name] = Panes()
        made[name].with_columns(**numbers, **facts).write(f"{name} panes", sinks[name])
    return p, sinks


def summed(rows: bl.Collection, keyed: bool, name: str) -> bl.Collection:
    """Returns the sums of a grouping; one without keys gives its rows the key "all"."""
    if keyed:
        return rows.group_by("key", name=name).aggregate(value=bl.sum("value"))
    return rows.aggregate(value=bl.sum("value")).named(name).select("value", key=bl.lit("all"))


# By hand


@attrs.frozen
class Clocks:
    """The watermarks of a source or of a stage's output, and the processing time."""

    watermark: int = MIN_TIME
    percentiles: Mapping[int, int] = attrs.field(factory=lambda: dict.fromkeys(SHARES, MIN_TIME))
    now: int = 0

    def after(self, move: Move) -> Clocks:
        """Returns the clocks after a step of a source."""
        if isinstance(move, int):
            return attrs.evolve(self, now=self.now + move)
        if not isinstance(move[0], int):
            return self
        watermark = max(self.watermark, -20) + move[0]
        two_thirds = max(self.percentiles[66], watermark + move[1])
        third = max(self.percentiles[33], two_thirds + move[2])
        return attrs.evolve(self, watermark=watermark, percentiles={33: third, 66: two_thirds})

    def reaching(self, step: Step, shares: Mapping[int, int], now: int) -> Clocks:
        """Returns the output clocks of a stage after a step, held back by its pending elements.

        The 66th percentile is held by the first pending element such that at most 34 % have an earlier hold.
        """
        marks = {}
        for share, time in shares.items():
            kept = [step.held[(100 - share) * len(step.held) // 100]] if step.held else []
            marks[share] = max(step.output_watermark, self.percentiles[share], min([time, *kept]))
        return Clocks(step.output_watermark, marks, now)

    def ended(self) -> Clocks:
        return attrs.evolve(self, watermark=MAX_TIME, percentiles=dict.fromkeys(SHARES, MAX_TIME))


@attrs.frozen
class Stood:
    """A stage's watermarks and output after a step."""

    input: int
    output: Clocks
    given: Step


class Naive:
    """A naive run of the graph, without shards: the grouping model of each node, in order, and propagation by hand."""

    def __init__(self, graph: Graph, windowings: Mapping[str, Windowing]) -> None:
        self.graph = graph
        self.models = {name: Model(windowings[name]) for name in graph.nodes}
        self.clocks = {name: Clocks() for name in (*graph.sources, *graph.nodes)}

    def step(self, number: int) -> dict[str, Stood]:
        """Runs step `number` of all sources and returns the result of every node."""
        sent: dict[str, list[Element]] = {}
        for name, moves in self.graph.sources.items():
            sent[name] = []
            if number < len(moves):
                move = moves[number]
                self.clocks[name] = self.clocks[name].after(move)
                sent[name] = [] if isinstance(move, int) or isinstance(move[0], int) else list(move)
            if number == self.graph.steps - 1:
                self.clocks[name] = self.clocks[name].ended()
        stood = {}
        for name, node in self.graph.nodes.items():
            arrived = [item for one in node.inputs for item in sent[one]]
            stood[name] = self._node(name, node, arrived)
            panes = stood[name].given.panes
            sent[name] = [(pane.key, sum(pane.values), pane.timestamp) for pane in panes]
        return stood

    def _node(self, name: str, node: Node, arrived: list[Element]) -> Stood:
        above = [self.clocks[one] for one in node.inputs]
        mark = min(clocks.watermark for clocks in above)
        shares = {share: min(clocks.percentiles[share] for clocks in above) for share in SHARES}
        now = max(clocks.now for clocks in above)
        arrived = arrived if node.keyed else [("all", value, time) for _, value, time in arrived]
        given = self.models[name].step(arrived, mark, now, shares)
        self.clocks[name] = self.clocks[name].reaching(given, shares, now)
        return Stood(mark, self.clocks[name], given)
