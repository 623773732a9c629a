"""The compiler: a pipeline cut at its groupings into sources, stages and sinks, one pass after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import chain
from typing import Final

import attrs
import polars as pl

from beamlike.errors import PlanError, listed
from beamlike.io.base import Source
from beamlike.io.sources import AcceptsCommits, ReadInSteps
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply, Group, OfStage, Read
from beamlike.logical.overlaps import require_apart
from beamlike.logical.registry import Registry, Write
from beamlike.plan.model import Plan, SinkPlan, SourcePlan, StagePlan, TablePlan
from beamlike.plan.paths import Path, paths_to
from beamlike.plan.route import Route
from beamlike.plan.tables import as_step, is_table, sides_of
from beamlike.steps.base import WindowInto
from stages.graph import StageGraph
from stages.grouping.grouping import Grouping
from stages.operator import MAIN, Operator
from stages.sides.declarations import Side
from stages.sides.operator import SideInputs
from stages.stage import Stage
from windowing.clocks import percentile_clock
from windowing.columns import EVENT_TIME, PANE_RETRACTED, PREVIOUS_END, WINDOW_COLUMNS, WINDOW_START
from windowing.custom import CustomWindows


@attrs.frozen
class Draft:
    """A plan in the making: each pass adds what it finds out.

    `nodes` are the sources and groupings that lead to a sink. `to_stages` and `to_sinks` have the paths to each
    consumer, and `routes` what each producer sends on them. `tables` are sides that are read before it runs.
    """

    pipeline: Registry
    writes: tuple[Write, ...]
    nodes: Mapping[str, Node] = attrs.field(factory=dict)
    to_stages: Mapping[str, tuple[Path, ...]] = attrs.field(factory=dict)
    to_sinks: Mapping[str, tuple[Path, ...]] = attrs.field(factory=dict)
    graph: StageGraph = attrs.field(factory=lambda: StageGraph.from_inputs({}))
    operators: Mapping[str, Operator] = attrs.field(factory=dict)
    routes: Mapping[str, tuple[Route, ...]] = attrs.field(factory=dict)
    tables: Mapping[str, tuple[Node, Side]] = attrs.field(factory=dict)

    def plan(self) -> Plan:
        """What all passes together have found."""
        sources = {
            name: self._source(node) for name, node in self.nodes.items() if name not in self.operators
        }
        stages = {name: self._stage(name) for name in self.graph.order() if name in self.operators}
        sinks = {write.name: self._sink(write) for write in self.writes}
        levels = self.graph.levels()[1:]
        tables = {name: self._table(name, side) for name, (_, side) in self.tables.items()}
        limit = self.pipeline.max_dead_letters
        return Plan(self.pipeline.name, sources, stages, sinks, self.graph, levels, limit, tables)

    def _table(self, name: str, side: Side) -> TablePlan:
        routes = {one: [way for way in found if way.consumer == name] for one, found in self.routes.items()}
        sources = [self._source(self.nodes[one]).only(own) for one, own in routes.items() if own]
        return TablePlan(name, side, tuple(sources), name not in self.pipeline.made)

    def _source(self, node: Node) -> SourcePlan:
        read = node.origin
        assert isinstance(read, Read)
        return SourcePlan(
            node.name,
            read.source,
            read.time,
            read.watermark,
            read.raw,
            node.schema,
            self.routes[node.name],
            read.prelude,
            read.interlude,
            read.max_future,
            self.pipeline.on_error,
            self.is_whole(node),
            node.name not in self.pipeline.made,
        )

    def is_whole(self, node: Node) -> bool:
        """Whether a source comes to an end, and all that is made of it is looked at as a side that must be whole."""
        read = node.origin
        assert isinstance(read, Read)
        return node.bounded and not isinstance(read.source, ReadInSteps) and self._feeds_sides(node.name)

    def _feeds_sides(self, name: str) -> bool:
        ways = [route for route in self.routes[name] if not route.carries_letters]
        return bool(ways) and all(map(self._ends_in_side, ways))

    def _ends_in_side(self, route: Route) -> bool:
        if route.consumer not in self.operators:
            return route.consumer in self.tables
        operator = self.operators[route.consumer]
        if route.role == MAIN:
            return self._feeds_sides(route.consumer)
        return isinstance(operator, SideInputs) and any(
            side.clock == route.role and side.feed == "whole" for side in operator.sides
        )

    def _stage(self, name: str) -> StagePlan:
        inputs, operator = self.graph.inputs(name), self.operators[name]
        skews = {
            upstream: max(route.skew for route in self.routes[upstream] if route.consumer == name)
            for upstream in inputs
        }
        return StagePlan(
            name,
            Stage(name, operator),
            inputs,
            self.graph.level(name),
            operator.inputs[MAIN].shared,
            self.nodes[name].schema,
            self.routes[name],
            {upstream: skew for upstream, skew in skews.items() if skew},
            self.pipeline.on_error,
            self._roles(name),
            name not in self.pipeline.made,
            self.pipeline.parts.get(name, ""),
        )

    def _roles(self, name: str) -> dict[str, tuple[str, ...]]:
        """What a stage with several inputs reads at each."""
        several = len(self.operators[name].inputs) > 1
        paths = _by_role(self.to_stages[name]) if several else {}
        return {role: _producers(some) for role, some in paths.items()}

    def _sink(self, write: Write) -> SinkPlan:
        return SinkPlan(
            write.name, write.sink, _producers(self.to_sinks[write.name]), write.node.shape.shown()
        )


def compile_plan(pipeline: Registry) -> Plan:
    """The plan of everything that leads to a sink. Raises `PlanError` where nothing does."""
    if not pipeline.writes:
        raise PlanError(f"pipeline {pipeline.name!r} writes to no sink; call collection.write('name', sink)")
    draft = Draft(pipeline, tuple(pipeline.written()))
    draft = reduce(lambda made, take: take(made), PASSES, draft)
    if (looked := look_up_in_tables(draft)).tables:
        draft = reduce(lambda made, take: take(made), PASSES, looked)
    plan = draft.plan()
    for check in CHECKS:
        check(plan)
    return plan


# Passes


def reach(draft: Draft) -> Draft:
    """The sources and groupings that lead to a sink, by name in the order of the alphabet."""
    seen: dict[str, Node] = {}
    waiting = [write.node for write in draft.writes] + [node for node, _ in draft.tables.values()]
    while waiting:
        node = waiting.pop()
        if node.name not in seen:
            seen[node.name] = node
            waiting += node.inputs
    nodes = {name: seen[name] for name in sorted(seen) if isinstance(seen[name].origin, Read | OfStage)}
    return attrs.evolve(draft, nodes=nodes)


def trace(draft: Draft) -> Draft:
    """The paths from these to each grouping and sink, and the graph that follows."""
    groups = {name: node for name, node in draft.nodes.items() if isinstance(node.origin, OfStage)}
    to_stages = {name: tuple(_paths_to_stage(node)) for name, node in groups.items()}
    to_sinks = {write.name: tuple(paths_to(write.node)) for write in draft.writes}
    graph = StageGraph.from_inputs({name: _producers(to_stages.get(name, ())) for name in draft.nodes})
    return attrs.evolve(draft, to_stages=to_stages, to_sinks=to_sinks, graph=graph)


def cut(draft: Draft) -> Draft:
    """What each stage computes: whether it shows what it drops and cannot use depends on who wants that."""
    written = [*chain(*draft.to_sinks.values())]
    late = {
        path.producer
        for path in chain(*draft.to_stages.values(), written)
        if "late" in (path.output, path.of)
    }
    letters = {path.producer for path in written if path.output == "dead_letters" and not path.before}
    operators = {
        name: _operator(draft.nodes[name], name in late, name in letters) for name in draft.to_stages
    }
    return attrs.evolve(draft, operators=operators)


def narrow(draft: Draft) -> Draft:
    """What each producer sends to whom: only the columns that are needed there."""
    routes: dict[str, list[Route]] = {name: [] for name in draft.nodes}
    for name, paths in draft.to_stages.items():
        for role, some in _by_role(paths).items():
            for producer, route in _to_stage(draft.nodes[name], draft.operators[name], role, some):
                routes[producer].append(route)
    for write in draft.writes:
        columns = tuple(write.node.shape.shown())
        for path in draft.to_sinks[write.name]:
            routes[path.producer].append(path.route(write.name, columns))
    for name, (node, side) in draft.tables.items():
        columns = (*side.schema, *((EVENT_TIME,) if side.timed else ()))
        for path in paths_to(node):
            routes[path.producer].append(attrs.evolve(path.route(name, columns), silent=True))
    in_order = {name: tuple(sorted(own, key=lambda route: route.address)) for name, own in routes.items()}
    return attrs.evolve(draft, routes=in_order)


PASSES: Final[tuple[Callable[[Draft], Draft], ...]] = (reach, trace, cut, narrow)
"""In this order; each reads what those before it have found."""


def look_up_in_tables(draft: Draft) -> Draft:
    """What was declared, with the lookups as steps that need no stage, and the sides that these look rows up in."""
    lookups, tables = set[str](), dict[str, tuple[Node, Side]]()
    for name, operator in draft.operators.items():
        sides = [*sides_of(draft.nodes[name])]
        if not sides or not isinstance(operator, SideInputs) or operator.late:
            continue
        if not all(is_table(side, draft.nodes, draft.is_whole) for side in sides):
            continue
        lookups.add(name)
        for node, side in zip(sides, operator.sides, strict=True):
            _, before = tables.get(node.name, (node, side))
            tables[node.name] = node, attrs.evolve(side, limit=max(side.limit, before.limit))
    known: dict[Node, Node] = {}
    made = [attrs.evolve(write, node=as_step(write.node, known, lookups)) for write in draft.writes]
    return attrs.evolve(draft, writes=tuple(made), tables=tables)


def _paths_to_stage(node: Node) -> Iterator[Path]:
    """The paths to what a stage reads, each with the input at which it does."""
    operator = node.origin.operator if isinstance(node.origin, Apply) else None
    sides = operator.sides if isinstance(operator, SideInputs) else ()
    for role, before in zip([MAIN, *(side.clock for side in sides)], node.inputs, strict=True):
        for path in paths_to(before):
            yield attrs.evolve(path, role=role)


def _by_role(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """The paths to each input of a stage."""
    found: dict[str, list[Path]] = {}
    for path in paths:
        found.setdefault(path.role, []).append(path)
    return found


def _producers(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(sorted({path.producer for path in paths}))


def _operator(node: Node, late: bool, letters_wanted: bool) -> Operator:
    """The inside of a stage; whether it shows what it drops, and what it cannot use."""
    if isinstance(node.origin, Apply):
        return attrs.evolve(node.origin.operator, late=late)
    return _grouping(node, late, letters_wanted)


def _grouping(node: Node, late: bool, letters_wanted: bool) -> Grouping:
    """The grouping; whether it shows what it drops, and what it cannot use: for these it needs every column."""
    origin, (before,) = node.origin, node.inputs
    assert isinstance(origin, Group)
    everything = before.shape.everything()
    needed = [column for aggregate in origin.aggregates.values() for column in aggregate.columns]
    needed += before.windowing.timestamp_combiner.columns
    letters = tuple(before.schema) if letters_wanted else ()
    shown = (*before.schema, *((PANE_RETRACTED,) if before.retracting else ())) if late else ()
    return Grouping(
        origin.keys,
        before.windowing,
        origin.aggregates,
        pl.Schema({column: everything[column] for column in (*origin.keys, *needed, *shown, *letters)}),
        merge_windows=not before.merged,
        retractions=before.retracting,
        late_columns=shown if late else None,
        letter_columns=letters,
    )


def _to_stage(
    node: Node, operator: Operator, role: str, paths: Iterable[Path]
) -> Iterator[tuple[str, Route]]:
    """The routes to a stage, which carry only what it needs.

    Where assigning windows is the last step on all of them, the stage does that, so that an element in several windows
    is shipped once; if they are a user's own, all windows of an element are shipped with it.
    """
    read, paths = operator.inputs[role].schema, list(paths)
    if isinstance(operator, SideInputs):
        for path in paths:
            yield path.producer, path.route(node.name, tuple(read))
        return
    (before,) = node.inputs
    columns = (*(name for name in read if name not in (EVENT_TIME, *WINDOW_COLUMNS)), EVENT_TIME)
    if before.retracting and PANE_RETRACTED not in columns:
        columns = (*columns, PANE_RETRACTED)
    by_stage = all(path.steps and isinstance(path.steps[-1], WindowInto) for path in paths)
    if by_stage:
        paths = [attrs.evolve(path, steps=path.steps[:-1]) for path in paths]
    listed = isinstance(before.windowing.windows, CustomWindows)
    if WINDOW_START in before.shape.system and (listed or not by_stage):
        columns = (*columns, *WINDOW_COLUMNS)
    adjusted = before.windowing.timestamp_combiner.adjusted
    if adjusted and PREVIOUS_END in before.shape.system and not by_stage:
        columns = (*columns, PREVIOUS_END)
    for path in paths:
        yield path.producer, path.route(node.name, columns)


# Checks


def require_sinks_apart(plan: Plan) -> None:
    """No sink writes where a source reads."""
    sinks = {name: sink.sink for name, sink in plan.sinks.items()}
    for name, source in plan.sources.items():
        require_apart(source.source, sinks, name)


def require_one_clock(plan: Plan) -> None:
    """A test stream says itself when time passes, so nothing else can tell the time beside it."""
    own = [name for name, source in plan.sources.items() if isinstance(source.source, ReadInSteps)]
    others = [name for name in plan.sources if name not in own]
    if own and others:
        raise PlanError(
            f"it has a clock of its own, unlike {listed(map(repr, others))}; read all from test streams, or none",
            step=own[0],
        )


def require_read_once(plan: Plan) -> None:
    """What is told of commits has one reader: two would each get a part of a queue."""
    seen: list[tuple[str, Source]] = []
    for name, source in plan.sources.items():
        if not isinstance(source.source, AcceptsCommits):
            continue
        if before := [other for other, one in seen if one is source.source or one == source.source]:
            raise PlanError(
                f"it reads the same {type(source.source).__name__} as {before[0]!r}, and would take from it what the "
                "other one is to have; read it once, and set event time and watermark there",
                step=name,
            )
        seen.append((name, source.source))


def require_percentiles(plan: Plan) -> None:
    """Percentile watermarks that a trigger looks at are kept for every source that its rows come from."""
    for name, stage in plan.stages.items():
        upstream = plan.graph.upstream(name)
        sources = {source: plan.sources[source] for source in upstream if source in plan.sources}
        _require_percentiles(stage, sources)


def _require_percentiles(stage: StagePlan, sources: Mapping[str, SourcePlan]) -> None:
    clocks = stage.stage.operator.clocks
    for percentile in (number for number in range(1, 100) if percentile_clock(number) in clocks):
        unknown = [name for name, plan in sources.items() if percentile not in plan.watermark.percentiles]
        if unknown:
            raise PlanError(
                f"AfterWatermark(percentile={percentile}) waits for a watermark that {listed(map(repr, unknown))} does "
                f"not have; give its strategy percentiles=({percentile},), or let its TestStream announce it",
                step=stage.name,
            )


def require_known_ends(plan: Plan) -> None:
    """Of a side without event time nothing tells when all of it is there, unless it is read whole."""
    for name, stage in plan.stages.items():
        operator = stage.stage.operator
        sides = operator.sides if isinstance(operator, SideInputs) else ()
        for side in (side for side in sides if not side.timed):
            elsewhere = [one for one in stage.reads(side.clock) if not plan.sources[one].whole]
            if elsewhere:
                raise PlanError(
                    f"side {side.name!r} has no event time, and its source {elsewhere[0]!r} also leads elsewhere, so "
                    "nothing tells when all of it is there; read it once more for the side alone, or give it "
                    "timestamp= and watermark=",
                    step=name,
                )


CHECKS: Final[tuple[Callable[[Plan], None], ...]] = (
    require_known_ends,
    require_sinks_apart,
    require_one_clock,
    require_read_once,
    require_percentiles,
)
"""Each raises `PlanError` with the step at fault."""
