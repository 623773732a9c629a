"""Watermarks in graphs of any shape: the least of everything upstream; no element in time overtakes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from beamlike.io import Part, output_frame
from beamlike.records.model import BatchRecord, StageRecord
from tests.support.examples import share
from tests.support.graphs import Graph, Naive, Panes, Stood, declare, graphs
from tests.support.shards import Query
from windowing.time import MIN_TIME

some = share(5)
law = share(8)
"""Fewer: what holds for the naive propagation then holds here."""


@attrs.frozen
class Played:
    """The records and panes of a graph in every batch, and the expected ones."""

    graph: Graph
    batches: list[BatchRecord]
    panes: dict[str, Panes]
    naive: list[dict[str, Stood]]

    @property
    def nodes(self) -> Iterator[tuple[str, int, StageRecord, Stood]]:
        """Every stage in every batch, with its expected values."""
        for number, (batch, stood) in enumerate(zip(self.batches, self.naive, strict=True)):
            for name in self.graph.nodes:
                yield name, number, batch.stages[name], stood[name]


def play(graph: Graph) -> Played:
    p, sinks = declare(graph)
    plan = p.plan()
    naive = Naive(graph, {name: stage.stage.operator.windowing for name, stage in plan.stages.items()})
    expected = [naive.step(number) for number in range(graph.steps)]
    return Played(graph, p.run().batches, sinks, expected)


def assert_as_expected(stage: StageRecord, rows: list[tuple[Any, ...]], stood: Stood) -> None:
    """Checks the watermarks and the output of a stage in a batch."""
    assert (stage.input, stage.output) == (stood.input, stood.output.watermark)
    assert stage.percentiles == stood.output.percentiles
    given = stood.given
    dropped = {"late": given.late, "closed": given.closed, "no window": given.nowhere}
    assert stage.dropped == {reason: count for reason, count in dropped.items() if count}
    assert stage.panes == Counter(pane.timing for pane in stood.given.panes)
    panes = [
        (pane.key, sum(pane.values), pane.timestamp, *pane.window, pane.timing, pane.index)
        for pane in stood.given.panes
    ]
    assert rows == sorted(panes)


@some
@given(graphs())
def test_every_stage_is_where_a_naive_propagation_has_it(graph: Graph) -> None:
    played = play(graph)
    for name, number, stage, stood in played.nodes:
        assert_as_expected(stage, played.panes[name].batches.get(number, []), stood)


@some
@given(graphs(), st.sampled_from([1, 2, 3, 7]))
def test_on_any_number_of_shards_every_stage_is_where_a_naive_propagation_has_it(
    graph: Graph, shards: int
) -> None:
    p, sinks = declare(graph)
    plan = p.plan()
    windowings = {name: stage.stage.operator.windowing for name, stage in plan.stages.items()}
    naive = Naive(graph, windowings)
    for number, batch in enumerate(Query(plan, shards, seed=shards).batches()):
        expected, stages = naive.step(number), batch.stages()
        for name in graph.nodes:
            for task, frame in enumerate(batch.frames(f"{name} panes")):
                sinks[name].write(output_frame(frame), Part("q", number, task))
            assert_as_expected(stages[name], sinks[name].batches.get(number, []), expected[name])


@law
@given(graphs())
def test_watermarks_are_the_least_of_everything_upstream(graph: Graph) -> None:
    """Input is the least output that is read; output is the least of all ancestors' sources and holds."""
    played = play(graph)
    for name, number, stage, _ in played.nodes:
        batch, above = played.batches[number], graph.ancestors(name)
        assert stage.input == min(batch.watermark(one) for one in graph.nodes[name].inputs)
        sources = [batch.sources[one].watermark for one in above & graph.sources.keys()]
        holds = [played.naive[number][one].given.hold for one in above & graph.nodes.keys()]
        assert stage.output == min([*sources, *(hold for hold in holds if hold is not None)])


@law
@given(graphs())
def test_watermarks_never_go_back_and_output_is_at_most_input(graph: Graph) -> None:
    played = play(graph)
    for name in graph.nodes:
        stages = [batch.stages[name] for batch in played.batches]
        assert all(stage.output <= stage.input for stage in stages)
        assert all(stage.percentiles[33] >= stage.percentiles[66] >= stage.output for stage in stages)
        for before, after in pairwise(stages):
            assert before.input <= after.input
            assert before.output <= after.output
            assert all(before.percentiles[share] <= after.percentiles[share] for share in (33, 66))


@law
@given(graphs())
def test_elements_never_overtake_a_watermark(graph: Graph) -> None:
    """A pane that is not late is not before the input watermark of the stage that receives it."""
    played = play(graph)
    for name, node in graph.nodes.items():
        stood = [MIN_TIME, *(batch.stages[name].input for batch in played.batches)]
        for one in [above for above in node.inputs if above in graph.nodes]:
            for number, rows in played.panes[one].batches.items():
                assert all(timing == "late" or time >= stood[number] for _, _, time, *_, timing, _ in rows)
