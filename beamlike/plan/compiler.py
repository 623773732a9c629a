"""The plan: a pipeline cut at its groupings into sources, stages and sinks, with routes between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import attrs
import polars as pl

from beamlike.api.collection import Collection
from beamlike.errors import PlanError, listed
from beamlike.io.test_stream.stream import TestStream
from beamlike.logical.origins import DeadLetters, EventTime, Flatten, Group, Late, Read
from beamlike.logical.overlaps import require_apart
from beamlike.logical.renaming import writes_of
from beamlike.logical.watermark import NoEventTime
from beamlike.plan.route import Output, Route
from beamlike.rows.dead_letters import OnError
from beamlike.steps.base import NotRetracted, Step, WindowInto
from beamlike.steps.windows import parts
from stages.graph import StageGraph
from stages.grouping.grouping import Grouping
from stages.stage import Stage
from stages.strategies.base import WatermarkStrategy
from windowing.columns import EVENT_TIME, PANE_RETRACTED, PREVIOUS_END, WINDOW_COLUMNS, WINDOW_START
from windowing.custom import CustomWindows
from windowing.triggers.base import percentile_clock

if TYPE_CHECKING:
    from beamlike.api.pipeline import Pipeline, Write
    from beamlike.io.base import Sink, Source


@attrs.frozen
class SourcePlan:
    """A source, how its rows get their event time, and where they go. `schema` has the user's columns.

    `raw` are the columns of the source itself. Its rows go through the `prelude`; then their event time is read from
    `time`, if there is one; then they go through the `interlude`, and the watermark sees them. No event time may be
    further than `max_future` microseconds after processing time, if that is given. `on_error` says what becomes of
    rows that cannot be used.
    """

    name: str
    source: Source
    time: EventTime | None
    watermark: WatermarkStrategy
    raw: pl.Schema
    schema: pl.Schema
    routes: tuple[Route, ...]
    prelude: tuple[Step, ...] = ()
    interlude: tuple[Step, ...] = ()
    max_future: int | None = None
    on_error: OnError = "dead_letters"

    @property
    def timed(self) -> bool:
        """Whether its rows have an event time."""
        return not isinstance(self.watermark, NoEventTime)

    @property
    def system(self) -> tuple[str, ...]:
        """The system columns of its rows."""
        return (EVENT_TIME,) if self.timed else ()

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The event time, then those of the user's columns that its routes or its watermark need."""
        wanted = frozenset(self.watermark.columns).union(*(route.needed for route in self.routes))
        return (*self.system, *(column for column in self.schema if column in wanted))


@attrs.frozen
class StagePlan:
    """A stage, the names of what it reads from, and where its panes go. `schema` has their user columns.

    `level` is the length of the longest way from a source. `keyed` says that shards can share the work. `skews`: by
    how many microseconds event times may be set back on the way from an input, where that is so at all. `on_error`
    says what becomes of rows that it cannot use, and of panes that a step after it cannot use.
    """

    name: str
    stage: Stage
    inputs: tuple[str, ...]
    level: int
    keyed: bool
    schema: pl.Schema
    routes: tuple[Route, ...]
    skews: dict[str, int] = attrs.field(factory=dict)
    on_error: OnError = "dead_letters"


@attrs.frozen
class SinkPlan:
    """A sink and the names of what it is fed from. `schema` has the user's columns, then the system's."""

    name: str
    sink: Sink
    inputs: tuple[str, ...]
    schema: pl.Schema


@attrs.frozen
class Plan:
    """What both runners run. `stages` are in order: a stage comes after all that it reads from.

    `graph` has sources and stages; `levels` has the names of the stages, level 1 first. More than `max_dead_letters`,
    a count or a share of the rows that were read, fail the run.
    """

    name: str
    sources: dict[str, SourcePlan]
    stages: dict[str, StagePlan]
    sinks: dict[str, SinkPlan]
    graph: StageGraph
    levels: tuple[tuple[str, ...], ...]
    max_dead_letters: int | float | None = None

    @property
    def producers(self) -> dict[str, SourcePlan | StagePlan]:
        """All that has routes, by name: sources, then stages in order."""
        return {**self.sources, **self.stages}


@attrs.frozen
class _Way:
    """One way to a collection: the steps after what produces its rows, or `before` makes dead letters of them."""

    producer: str
    steps: tuple[Step, ...]
    output: Output = "main"
    before: tuple[Step, ...] = ()
    of: Output = "main"
    shown: tuple[str, ...] = ()

    def route(self, consumer: str, columns: tuple[str, ...]) -> Route:
        """The way, continued to a consumer."""
        return Route(consumer, self.steps, columns, self.output, self.before, self.of, self.shown)


def _ways(collection: Collection, after: tuple[Step, ...] = ()) -> Iterator[_Way]:
    """Every way from a source or grouping to the collection, in the order of declaration."""
    origin = collection.origin
    if isinstance(origin, Read | Group):
        yield _Way(collection.name, after)
    elif isinstance(origin, DeadLetters):
        yield from _ways_of_letters(collection.inputs[0], after)
    elif isinstance(origin, Late):
        yield _Way(collection.inputs[0].name, after, "late")
    else:
        for before in collection.inputs:
            yield from _ways(before, (*_steps(collection, before), *after))


def _ways_of_letters(collection: Collection, after: tuple[Step, ...]) -> Iterator[_Way]:
    """Every way to what a source or a grouping, or else a step, cannot use."""
    if isinstance(collection.origin, Read | Group):
        yield _Way(collection.name, after, "dead_letters")
        return
    (before,) = collection.inputs
    for way in _ways(before, _steps(collection, before)[:1]):
        yield _Way(way.producer, after, "dead_letters", way.steps, way.output, tuple(before.schema))


def _steps(collection: Collection, before: Collection) -> tuple[Step, ...]:
    """What happens to the rows of `before` on their way into the collection."""
    origin = collection.origin
    if isinstance(origin, Step):
        return parts(origin)
    meets_retractions = isinstance(origin, Flatten) and collection.retracting and not before.retracting
    return (NotRetracted(collection.name),) if meets_retractions else ()


def compile_plan(pipeline: Pipeline) -> Plan:
    """The plan of everything that leads to a sink. Raises `PlanError` where nothing does."""
    if not pipeline.writes:
        raise PlanError(f"pipeline {pipeline.name!r} writes to no sink; call collection.write('name', sink)")
    writes = writes_of(pipeline)
    reached = _reached(writes)
    ways = {name: list(_ways(found.inputs[0])) for name, found in reached.items() if _is_group(found)}
    written = {write.name: list(_ways(write.collection)) for write in writes}
    graph = StageGraph.from_inputs({name: _producers(ways.get(name, ())) for name in reached})
    late = _late_producers([*chain(*ways.values()), *chain(*written.values())])
    refused = _refusing_producers([way for found in written.values() for way in found])
    groupings = {name: _grouping(reached[name], name in late, name in refused) for name in ways}

    routes: dict[str, list[Route]] = {name: [] for name in reached}
    for name, own in ways.items():
        _add_routes(routes, _stage_routes(reached[name], groupings[name], own))
    for write in writes:
        columns = tuple(write.collection.shape.shown())
        _add_routes(routes, [(way.producer, way.route(write.name, columns)) for way in written[write.name]])

    sources = {name: _source_plan(reached[name], routes[name]) for name in reached if name not in ways}
    stages = {
        name: _stage_plan(reached[name], groupings[name], graph, routes)
        for name in graph.order()
        if name in ways
    }
    sinks = {
        write.name: SinkPlan(
            write.name, write.sink, _producers(written[write.name]), write.collection.shape.shown()
        )
        for write in writes
    }
    for name, source in sources.items():
        require_apart(source.source, {write.name: write.sink for write in writes}, name)
    _require_one_clock(sources)
    for stage in stages.values():
        _require_percentiles(
            stage, {name: sources[name] for name in graph.upstream(stage.name) if name in sources}
        )
    levels = graph.levels()[1:]
    return Plan(pipeline.name, sources, stages, sinks, graph, levels, pipeline.max_dead_letters)


def _reached(writes: Iterable[Write]) -> dict[str, Collection]:
    """Sources and groupings that lead to a sink, by name in the order of the alphabet."""
    seen: dict[str, Collection] = {}
    waiting = [write.collection for write in writes]
    while waiting:
        collection = waiting.pop()
        if collection.name not in seen:
            seen[collection.name] = collection
            waiting += collection.inputs
    return {name: seen[name] for name in sorted(seen) if isinstance(seen[name].origin, Read | Group)}


def _is_group(collection: Collection) -> bool:
    return isinstance(collection.origin, Group)


def _producers(ways: Iterable[_Way]) -> tuple[str, ...]:
    return tuple(sorted({way.producer for way in ways}))


def _add_routes(routes: dict[str, list[Route]], new: Iterable[tuple[str, Route]]) -> None:
    for producer, route in new:
        routes[producer].append(route)


def _late_producers(ways: Iterable[_Way]) -> frozenset[str]:
    """The groupings whose dropped elements somebody wants."""
    return frozenset(way.producer for way in ways if "late" in (way.output, way.of))


def _refusing_producers(ways: Iterable[_Way]) -> frozenset[str]:
    """The sources and groupings whose own dead letters somebody wants."""
    return frozenset(way.producer for way in ways if way.output == "dead_letters" and not way.before)


def _grouping(collection: Collection, late: bool, refused: bool) -> Grouping:
    """The grouping; whether it shows what it drops, and what it cannot use: for these it needs every column."""
    origin, (before,) = collection.origin, collection.inputs
    assert isinstance(origin, Group)
    everything = before.shape.everything()
    needed = [column for aggregate in origin.aggregates.values() for column in aggregate.columns]
    needed += before.windowing.timestamp_combiner.columns
    letters = tuple(before.schema) if refused else ()
    shown = (*before.schema, *((PANE_RETRACTED,) if before.retracting else ())) if late else ()
    return Grouping(
        origin.keys,
        before.windowing,
        origin.aggregates,
        pl.Schema({column: everything[column] for column in (*origin.keys, *needed, *shown, *letters)}),
        merge_windows=not before.merged,
        late_columns=shown if late else None,
        letter_columns=letters,
    )


def _stage_routes(
    collection: Collection, grouping: Grouping, ways: list[_Way]
) -> Iterator[tuple[str, Route]]:
    """The routes to a stage, which carry only what it needs.

    Where assigning windows is the last step on all of them, the stage does that, so that an element in several windows
    is shipped once; if they are a user's own, all windows of an element are shipped with it.
    """
    (before,) = collection.inputs
    columns = (*grouping.columns, EVENT_TIME)
    if before.retracting and PANE_RETRACTED not in columns:
        columns = (*columns, PANE_RETRACTED)
    by_stage = all(way.steps and isinstance(way.steps[-1], WindowInto) for way in ways)
    if by_stage:
        ways = [attrs.evolve(way, steps=way.steps[:-1]) for way in ways]
    listed = isinstance(grouping.windowing.windows, CustomWindows)
    if WINDOW_START in before.shape.system and (listed or not by_stage):
        columns = (*columns, *WINDOW_COLUMNS)
    adjusted = grouping.windowing.timestamp_combiner.adjusted
    if adjusted and PREVIOUS_END in before.shape.system and not by_stage:
        columns = (*columns, PREVIOUS_END)
    for way in ways:
        yield way.producer, way.route(collection.name, columns)


def _source_plan(collection: Collection, routes: list[Route]) -> SourcePlan:
    read = collection.origin
    assert isinstance(read, Read)
    return SourcePlan(
        collection.name,
        read.source,
        read.time,
        read.watermark,
        read.raw,
        collection.schema,
        tuple(sorted(routes, key=lambda route: route.consumer)),
        read.prelude,
        read.interlude,
        read.max_future,
        collection.pipeline.on_error,
    )


def _stage_plan(
    collection: Collection, grouping: Grouping, graph: StageGraph, routes: Mapping[str, list[Route]]
) -> StagePlan:
    name = collection.name
    skews = {
        upstream: max(route.skew for route in routes[upstream] if route.consumer == name)
        for upstream in graph.inputs(name)
    }
    return StagePlan(
        name,
        Stage(name, grouping),
        graph.inputs(name),
        graph.level(name),
        bool(grouping.keys),
        collection.schema,
        tuple(sorted(routes[name], key=lambda route: route.consumer)),
        {upstream: skew for upstream, skew in skews.items() if skew},
        collection.pipeline.on_error,
    )


def _require_one_clock(sources: Mapping[str, SourcePlan]) -> None:
    """A test stream says itself when time passes, so nothing else can tell the time beside it."""
    own = [name for name, plan in sources.items() if isinstance(plan.source, TestStream)]
    others = [name for name in sources if name not in own]
    if own and others:
        raise PlanError(
            f"it has a clock of its own, unlike {listed(map(repr, others))}; read all from test streams, or none",
            step=own[0],
        )


def _require_percentiles(stage: StagePlan, sources: Mapping[str, SourcePlan]) -> None:
    """Percentile watermarks that the trigger looks at are kept for every source that its rows come from."""
    clocks = stage.stage.operator.clocks
    for percentile in (number for number in range(1, 100) if percentile_clock(number) in clocks):
        unknown = [name for name, plan in sources.items() if percentile not in plan.watermark.percentiles]
        if unknown:
            raise PlanError(
                f"AfterWatermark(percentile={percentile}) waits for a watermark that {listed(map(repr, unknown))} does "
                f"not have; give its strategy percentiles=({percentile},), or let its TestStream announce it",
                step=stage.name,
            )
