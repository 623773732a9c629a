"""Lookup tables: lookups that need no stage, because their sides are the same for all rows and read before the run."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import TypeVar

import attrs

from beamlike.io.in_process import InProcess
from beamlike.io.sources import AcceptsCommits, ReadBySpark
from beamlike.logical.node import Node, inputs_first
from beamlike.logical.origins import Apply, Read
from beamlike.plan.model import Plan, SourcePlan, StagePlan
from beamlike.plan.paths import paths_to
from beamlike.plan.route import Route
from beamlike.steps.base import Step
from beamlike.steps.lookup import LookUp
from stages.sides.contents import SideContent
from windowing.columns import WINDOW_COLUMNS
from windowing.windows import GlobalWindows

P = TypeVar("P", SourcePlan, StagePlan)


def sides_of(node: Node) -> Iterator[Node]:
    """Yields the sides of a lookup that could be lookup tables. Their rows must be read to the end, and the rows that
    look up must never be late. Yields nothing for other nodes.
    """
    lookup = node.origin.lookup if isinstance(node.origin, Apply) else None
    if lookup is None:
        return
    before, *sides = node.inputs
    in_windows = not {*WINDOW_COLUMNS}.isdisjoint(before.shape.system)
    if in_windows and not isinstance(before.windowing.windows, GlobalWindows):
        return
    if all(side.feed == "whole" for side in lookup.sides):
        yield from sides


def is_table(side: Node, sources: Mapping[str, Node], is_whole: Callable[[Node], bool]) -> bool:
    """True if all rows of a side are from sources that only feed sides, over stateless steps."""
    for path in paths_to(side):
        source = sources[path.producer]
        if path.output != "main" or not isinstance(source.origin, Read) or not is_whole(source):
            return False
        read = source.origin.source
        if not isinstance(read, InProcess) or isinstance(read, AcceptsCommits | ReadBySpark):
            return False
    return True


def as_step(node: Node, known: dict[Node, Node], lookups: Container[str]) -> Node:
    """Returns the node with the lookups of these names as steps. A node that is reached over several paths stays one
    object.
    """
    for one in inputs_first(node):
        if one not in known:
            known[one] = _as_step(one, tuple(known[before] for before in one.inputs), lookups)
    return known[node]


def _as_step(node: Node, inputs: tuple[Node, ...], lookups: Container[str]) -> Node:
    """Returns the node with these inputs. A node named in `lookups` becomes a stateless step instead of a stage."""
    if node.name not in lookups or not isinstance(node.origin, Apply) or node.origin.lookup is None:
        same = all(one is other for one, other in zip(inputs, node.inputs, strict=True))
        return node if same else attrs.evolve(node, inputs=inputs)
    lookup = node.origin.lookup
    tables = {side.name: made.name for side, made in zip(lookup.sides, node.inputs[1:], strict=True)}
    step = LookUp(node.name, lookup.use, tables)
    after: Node = attrs.evolve(node, origin=step, inputs=inputs[:1])
    return after


def with_tables(plan: Plan, tables: Mapping[str, SideContent]) -> Plan:
    """Returns the plan with the contents of its lookup tables, by name."""
    if not plan.tables:
        return plan
    sources = {name: _found(source, tables) for name, source in plan.sources.items()}
    stages = {name: _found(stage, tables) for name, stage in plan.stages.items()}
    return attrs.evolve(plan, sources=sources, stages=stages)


def _found(producer: P, tables: Mapping[str, SideContent]) -> P:
    routes = tuple(
        attrs.evolve(route, steps=_steps(route.steps, tables), before=_steps(route.before, tables))
        for route in producer.routes
    )
    return attrs.evolve(producer, routes=routes)


def _steps(steps: Iterable[Step], tables: Mapping[str, SideContent]) -> tuple[Step, ...]:
    return tuple(step.with_tables(tables) if isinstance(step, LookUp) else step for step in steps)


def tables_on(route: Route) -> frozenset[str]:
    """Returns the names of the lookup tables on a route."""
    return frozenset(
        table
        for step in (*route.steps, *route.before)
        if isinstance(step, LookUp)
        for table in step.tables.values()
    )
