"""The compiler: cuts the graph of a pipeline at its groupings and other stages. The result is a plan."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from functools import cached_property
from typing import Self

import attrs

from beamlike.errors import PlanError
from beamlike.io.sources import ReadInSteps
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply, Read, SideLookup
from beamlike.logical.registry import Registry, Write
from beamlike.plan.checks import CHECKS
from beamlike.plan.completeness import Observed, observed_sources, promise_of, with_asked_columns
from beamlike.plan.model import Plan, SinkPlan, SourcePlan, StagePlan, TablePlan
from beamlike.plan.passes import (
    Paths,
    Tables,
    build_graph,
    build_operators,
    build_paths,
    by_role,
    find_reachable,
    late_wanted,
    producers,
    prune_columns,
)
from beamlike.plan.route import Route
from beamlike.plan.tables import as_step, is_table, sides_of
from stages.graph import StageGraph
from stages.operator import MAIN, Operator
from stages.sides.declarations import Side
from stages.stage import Stage


def compile_plan(pipeline: Registry) -> Plan:
    """Compiles the declarations of a pipeline that lead to a sink. Raises `PlanError` if the pipeline has no sink."""
    if not pipeline.writes:
        raise PlanError(f"pipeline {pipeline.name!r} writes to no sink; call collection.write('name', sink)")
    compiled = Compiled.of(pipeline, tuple(pipeline.written()))
    if lookups := compiled.lookups():
        # Some lookups need no stage, as their sides are read before the run. They become steps, so the graph
        # is compiled again.
        compiled = Compiled.of(pipeline, _with_steps(compiled.writes, lookups), compiled.tables_of(lookups))
    plan = compiled.plan()
    for check in CHECKS:
        check(plan)
    return plan


def _with_steps(writes: Iterable[Write], lookups: Container[str]) -> tuple[Write, ...]:
    """Returns the sinks with graphs in which the lookups of these names are steps instead of stages."""
    known: dict[Node, Node] = {}
    return tuple(attrs.evolve(write, node=as_step(write.node, known, lookups)) for write in writes)


@attrs.frozen(kw_only=True)
class Compiled:
    """The results of all compiler passes.

    `nodes` are the sources and stages that lead to a sink. `routes` has the routes from each producer. `tables` has the
    sides that are read before the run.
    """

    pipeline: Registry
    writes: tuple[Write, ...]
    tables: Tables
    nodes: Mapping[str, Node]
    paths: Paths
    graph: StageGraph
    operators: Mapping[str, Operator]
    routes: Mapping[str, tuple[Route, ...]]

    @classmethod
    def of(cls, pipeline: Registry, writes: tuple[Write, ...], tables: Tables | None = None) -> Self:
        """Runs the passes one after another."""
        tables = tables or {}
        nodes = find_reachable(writes, tables)
        paths = build_paths(nodes, writes)
        operators = build_operators(nodes, paths)
        routes = prune_columns(nodes, paths, operators, writes, tables)
        return cls(
            pipeline=pipeline,
            writes=writes,
            tables=tables,
            nodes=nodes,
            paths=paths,
            graph=build_graph(nodes, paths),
            operators=with_asked_columns(nodes, operators, routes),
            routes=routes,
        )

    def lookups(self) -> dict[str, SideLookup]:
        """Returns the lookups that need no stage, by name: their sides are the same for all rows of a run.

        A lookup stays a stage if some path reads the rows that the stage drops.
        """
        late, found = late_wanted(self.paths), dict[str, SideLookup]()
        for name in self.operators:
            origin, sides = self.nodes[name].origin, [*sides_of(self.nodes[name])]
            if not sides or name in late or not isinstance(origin, Apply) or origin.lookup is None:
                continue
            if all(is_table(side, self.nodes, self.is_read_fully) for side in sides):
                found[name] = origin.lookup
        return found

    def tables_of(self, lookups: Mapping[str, SideLookup]) -> dict[str, tuple[Node, Side]]:
        """Returns the sides of lookups, by name. If several lookups share a side, the greatest of their
        limits applies.
        """
        tables: dict[str, tuple[Node, Side]] = {}
        for name, lookup in lookups.items():
            for node, side in zip(self.nodes[name].inputs[1:], lookup.sides, strict=True):
                _, before = tables.get(node.name, (node, side))
                tables[node.name] = node, attrs.evolve(side, limit=max(side.limit, before.limit))
        return tables

    def plan(self) -> Plan:
        """Builds the plan from the results of the passes."""
        sources = {
            name: self._source(node) for name, node in self.nodes.items() if name not in self.operators
        }
        return Plan(
            name=self.pipeline.name,
            sources=sources,
            stages={name: self._stage(name) for name in self.graph.order() if name in self.operators},
            sinks={write.name: self._sink(write) for write in self.writes},
            graph=self.graph,
            levels=self.graph.levels()[1:],
            max_dead_letters=self.pipeline.max_dead_letters,
            tables={name: self._table(name, side) for name, (_, side) in self.tables.items()},
        )

    @cached_property
    def observed(self) -> dict[str, Observed]:
        """The sources whose lateness a stage needs, by the name of the stage."""
        return observed_sources(self.nodes, self.operators, self.routes, self.graph, self.paths)

    def _table(self, name: str, side: Side) -> TablePlan:
        routes = {
            one: [route for route in found if route.consumer == name] for one, found in self.routes.items()
        }
        sources = [self._source(self.nodes[one]).only(own) for one, own in routes.items() if own]
        return TablePlan(name, side, tuple(sources), named=name not in self.pipeline.made)

    def _source(self, node: Node) -> SourcePlan:
        read = node.origin
        assert isinstance(read, Read)
        return SourcePlan(
            name=node.name,
            source=read.source,
            time=read.time,
            watermark=read.watermark,
            raw=read.raw,
            schema=node.schema,
            routes=self.routes[node.name],
            steps_before_time=read.steps_before_time,
            steps_after_time=read.steps_after_time,
            max_future=read.max_future,
            on_error=self.pipeline.on_error,
            whole=self.is_read_fully(node),
            named=node.name not in self.pipeline.made,
            observers=tuple(name for name, sources in self.observed.items() if node.name in sources),
        )

    def is_read_fully(self, node: Node) -> bool:
        """True if the source is bounded, and all its rows lead to sides that must be complete."""
        read = node.origin
        assert isinstance(read, Read)
        return node.bounded and not isinstance(read.source, ReadInSteps) and self._feeds_sides(node.name)

    def _feeds_sides(self, name: str) -> bool:
        routes = [route for route in self.routes[name] if not route.carries_dead_letters]
        return bool(routes) and all(map(self._ends_in_side, routes))

    def _ends_in_side(self, route: Route) -> bool:
        if route.consumer not in self.operators:
            return route.consumer in self.tables
        if route.role == MAIN:
            return self._feeds_sides(route.consumer)
        return self.operators[route.consumer].inputs[route.role].read_fully

    def _stage(self, name: str) -> StagePlan:
        inputs, operator = self.graph.inputs(name), self.operators[name]
        skews = {
            upstream: max(route.skew for route in self.routes[upstream] if route.consumer == name)
            for upstream in inputs
        }
        return StagePlan(
            name=name,
            stage=Stage(name, operator),
            inputs=inputs,
            level=self.graph.level(name),
            keyed=operator.inputs[MAIN].shared,
            schema=self.nodes[name].schema,
            routes=self.routes[name],
            skews={upstream: skew for upstream, skew in skews.items() if skew},
            on_error=self.pipeline.on_error,
            roles=self._roles(name),
            named=name not in self.pipeline.made,
            part=self.pipeline.parts.get(name, ""),
            kind=self.nodes[name].kind,
            observes=self.observed.get(name, {}),
            promise=promise_of(self.nodes[name]),
        )

    def _roles(self, name: str) -> dict[str, tuple[str, ...]]:
        """Returns, for a stage with several inputs, the names of the sources and stages that each input reads."""
        several = len(self.operators[name].inputs) > 1
        paths = by_role(self.paths.to_stages[name]) if several else {}
        return {role: producers(own) for role, own in paths.items()}

    def _sink(self, write: Write) -> SinkPlan:
        inputs = producers(self.paths.to_sinks[write.name])
        return SinkPlan(
            write.name, write.sink, inputs, write.node.shape.shown(), write.node.kind, write.own_name
        )
