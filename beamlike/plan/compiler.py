"""The compiler: cuts a pipeline at its groupings into sources, stages and sinks."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Self

import attrs

from beamlike.errors import PlanError
from beamlike.io.sources import ReadInSteps
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply, Read, SideLookup
from beamlike.logical.registry import Registry, Write
from beamlike.plan.checks import CHECKS
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
    """Returns the plan of everything that leads to a sink. Raises `PlanError` if the pipeline has no sink."""
    if not pipeline.writes:
        raise PlanError(f"pipeline {pipeline.name!r} writes to no sink; call collection.write('name', sink)")
    compiled = Compiled.of(pipeline, tuple(pipeline.written()))
    if lookups := compiled.lookups():
        # Steps need no stage, and the sides are read before the run: the graph is another one.
        compiled = Compiled.of(pipeline, _with_steps(compiled.writes, lookups), compiled.tables_of(lookups))
    plan = compiled.plan()
    for check in CHECKS:
        check(plan)
    return plan


def _with_steps(writes: Iterable[Write], lookups: Container[str]) -> tuple[Write, ...]:
    """Returns the writes of the same rows, in which the lookups of these names are steps."""
    known: dict[Node, Node] = {}
    return tuple(attrs.evolve(write, node=as_step(write.node, known, lookups)) for write in writes)


@attrs.frozen(kw_only=True)
class Compiled:
    """The results of all passes over a pipeline.

    `nodes` are the sources and groupings that lead to a sink. `routes` are what each producer sends, and `tables` the
    sides that are read before a run.
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
        """Runs the passes, one after another."""
        tables = tables or {}
        nodes = find_reachable(writes, tables)
        paths = build_paths(nodes, writes)
        operators = build_operators(nodes, paths)
        return cls(
            pipeline=pipeline,
            writes=writes,
            tables=tables,
            nodes=nodes,
            paths=paths,
            graph=build_graph(nodes, paths),
            operators=operators,
            routes=prune_columns(nodes, paths, operators, writes, tables),
        )

    def lookups(self) -> dict[str, SideLookup]:
        """Returns the stages that only look rows up, in sides that are the same for all rows: they can be steps.

        A stage of which dropped rows are read is none of them.
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
        """Returns the sides of lookups by name. A side that several lookups share has the greatest of their limits."""
        tables: dict[str, tuple[Node, Side]] = {}
        for name, lookup in lookups.items():
            for node, side in zip(self.nodes[name].inputs[1:], lookup.sides, strict=True):
                _, before = tables.get(node.name, (node, side))
                tables[node.name] = node, attrs.evolve(side, limit=max(side.limit, before.limit))
        return tables

    def plan(self) -> Plan:
        """Returns the plan."""
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

    def _table(self, name: str, side: Side) -> TablePlan:
        routes = {one: [way for way in found if way.consumer == name] for one, found in self.routes.items()}
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
            prelude=read.prelude,
            interlude=read.interlude,
            max_future=read.max_future,
            on_error=self.pipeline.on_error,
            whole=self.is_read_fully(node),
            named=node.name not in self.pipeline.made,
        )

    def is_read_fully(self, node: Node) -> bool:
        """True if a source has an end, and all its rows lead to sides that must be complete."""
        read = node.origin
        assert isinstance(read, Read)
        return node.bounded and not isinstance(read.source, ReadInSteps) and self._feeds_sides(node.name)

    def _feeds_sides(self, name: str) -> bool:
        ways = [route for route in self.routes[name] if not route.carries_letters]
        return bool(ways) and all(map(self._ends_in_side, ways))

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
        )

    def _roles(self, name: str) -> dict[str, tuple[str, ...]]:
        """Returns the names of what a stage with several inputs reads at each of them."""
        several = len(self.operators[name].inputs) > 1
        paths = by_role(self.paths.to_stages[name]) if several else {}
        return {role: producers(own) for role, own in paths.items()}

    def _sink(self, write: Write) -> SinkPlan:
        inputs = producers(self.paths.to_sinks[write.name])
        return SinkPlan(write.name, write.sink, inputs, write.node.shape.shown())
