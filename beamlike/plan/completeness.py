"""The compiler pass for completeness: the pane columns that groupings compute, and the sources whose lateness they
need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from beamlike.errors import PlanError
from beamlike.logical.node import Node
from beamlike.logical.origins import Group, Promise, Read
from beamlike.plan.passes import Paths
from beamlike.plan.route import Route
from stages.graph import StageGraph
from stages.grouping.grouping import Grouping
from stages.operator import Operator
from stages.process.watermarked import Watermarked
from windowing.columns import ASKED_COLUMNS, PANE_COMPLETE

Observed = Mapping[str, int]
"""The sources of a stage, with the duration (us) by which steps on the way may move event times back."""


def promise_of(node: Node) -> Promise | None:
    """Returns the promise of a stage, if it has one."""
    return node.origin.promise if isinstance(node.origin, Group) else None


def with_asked_columns(
    nodes: Mapping[str, Node], operators: Mapping[str, Operator], routes: Mapping[str, Iterable[Route]]
) -> dict[str, Operator]:
    """Returns the operators; groupings compute those columns of `ASKED_COLUMNS` that a route or promise needs."""
    return {
        name: _asked(operator, nodes[name], routes[name]) if isinstance(operator, Grouping) else operator
        for name, operator in operators.items()
    }


def _asked(grouping: Grouping, node: Node, routes: Iterable[Route]) -> Operator:
    wanted = {column for route in routes if route.takes("main") for column in route.needed}
    if promise_of(node) is not None:
        wanted.add(PANE_COMPLETE)
    asked = tuple(column for column in ASKED_COLUMNS if column in wanted)
    return attrs.evolve(grouping, asked=asked) if asked else grouping


def observed_sources(
    nodes: Mapping[str, Node],
    operators: Mapping[str, Operator],
    routes: Mapping[str, Iterable[Route]],
    graph: StageGraph,
    paths: Paths,
) -> dict[str, Observed]:
    """Returns, for each stage that computes completeness, the sources that lead to it other than by side inputs.

    Raises:
        PlanError: A step on the way sets a watermark of its own, so the lateness of its rows is not learned.
    """
    found: dict[str, dict[str, int]] = {}
    own: dict[str, str] = {}
    for name in graph.order():
        if name not in operators:
            continue
        found[name] = {}
        if isinstance(operators[name], Watermarked):
            own[name] = name
        for producer in _main_producers(name, operators[name], paths):
            skew = max(route.skew for route in routes[producer] if route.consumer == name)
            if producer in own:
                own[name] = own[producer]
            for source, before in _before(producer, nodes, found).items():
                found[name][source] = max(found[name].get(source, 0), before + skew)
    asking = [name for name, operator in operators.items() if PANE_COMPLETE in getattr(operator, "asked", ())]
    for name in asking:
        if name in own:
            raise PlanError(
                f"its completeness is not known, because {own[name]!r} sets a watermark of its own, and lateness is "
                "learned where a source is read; give the watermark in read(...), or call with_watermark(...) directly "
                "after row-wise steps of the source",
                step=name,
            )
    return {name: found[name] for name in asking}


def _main_producers(name: str, operator: Operator, paths: Paths) -> list[str]:
    """Returns the sources and stages from which the stage gets rows other than by side inputs."""
    return sorted({path.producer for path in paths.to_stages[name] if not operator.inputs[path.role].side})


def _before(producer: str, nodes: Mapping[str, Node], found: Mapping[str, Observed]) -> Observed:
    if producer in found:
        return found[producer]
    origin = nodes[producer].origin
    return {producer: 0} if isinstance(origin, Read) and origin.system else {}
