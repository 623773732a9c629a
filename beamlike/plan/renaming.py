"""Renaming of a plan's sources, stages and lookup tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import attrs

from beamlike.plan.model import Plan, SourcePlan, StagePlan, TablePlan
from beamlike.plan.route import Route
from beamlike.steps.base import Step
from beamlike.steps.lookup import LookUp
from stages.graph import StageGraph

T = TypeVar("T")


def with_names(plan: Plan, names: Mapping[str, str]) -> Plan:
    """Returns the plan with renamed parts. `names` has new names by old names; parts that it omits keep their names.
    All parts are sorted by their new names.
    """
    if all(before == after for before, after in names.items()):
        return plan
    change = _Change(names)
    graph = StageGraph.from_inputs(
        {change.name(name): change.all(reads) for name, reads in plan.graph.mapping.items()}
    )
    stages = {stage.name: stage for stage in map(change.stage, plan.stages.values())}
    sinks = {name: attrs.evolve(sink, inputs=change.all(sink.inputs)) for name, sink in plan.sinks.items()}
    return attrs.evolve(
        plan,
        sources=_by_name(map(change.source, plan.sources.values())),
        stages={name: stages[name] for name in graph.order() if name in stages},
        sinks=sinks,
        graph=graph,
        levels=graph.levels()[1:],
        tables=_by_name(map(change.table, plan.tables.values())),
    )


def _by_name(parts: Iterable[T]) -> dict[str, T]:
    return {part.name: part for part in sorted(parts, key=lambda part: part.name)}  # type: ignore[attr-defined]


@attrs.frozen
class _Change:
    """A mapping from old names to new names, applied to all parts of a plan."""

    names: Mapping[str, str]

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    def all(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(map(self.name, names)))

    def source(self, source: SourcePlan) -> SourcePlan:
        return attrs.evolve(source, name=self.name(source.name), routes=self.routes(source.routes))

    def table(self, table: TablePlan) -> TablePlan:
        sources = sorted(map(self.source, table.sources), key=lambda source: source.name)
        return attrs.evolve(table, name=self.name(table.name), sources=tuple(sources))

    def stage(self, plan: StagePlan) -> StagePlan:
        name = self.name(plan.name)
        return attrs.evolve(
            plan,
            name=name,
            stage=attrs.evolve(plan.stage, name=name),
            inputs=self.all(plan.inputs),
            routes=self.routes(plan.routes),
            skews={self.name(upstream): skew for upstream, skew in plan.skews.items()},
            roles={role: self.all(reads) for role, reads in plan.roles.items()},
        )

    def routes(self, routes: Iterable[Route]) -> tuple[Route, ...]:
        changed = (
            attrs.evolve(
                route,
                consumer=self.name(route.consumer),
                steps=self.steps(route.steps),
                before=self.steps(route.before),
            )
            for route in routes
        )
        return tuple(sorted(changed, key=lambda route: route.address))

    def steps(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        return tuple(self.step(step) for step in steps)

    def step(self, step: Step) -> Step:
        if not isinstance(step, LookUp):
            return step
        return attrs.evolve(step, tables={side: self.name(table) for side, table in step.tables.items()})
