"""The graph of a plan as the records of a run have it, so that it can be drawn without the pipeline."""

from __future__ import annotations

from typing import Any

import attrs

from beamlike.expressions.describe import aggregate_text, describe, windowing_choices
from beamlike.logical.keyed import operator_facts
from beamlike.plan.model import Plan, SinkPlan, SourcePlan, StagePlan
from beamlike.plan.tables import tables_on
from beamlike.records.graph import (
    RunDescription,
    SinkDescription,
    SourceDescription,
    Spacing,
    StageDescription,
)
from stages.grouping.grouping import Grouping
from stages.joins.base import TimeJoin
from stages.operator import MAIN
from stages.process.keyed import Keyed
from stages.sides.operator import SideInputs
from windowing.calendars import CalendarWindows
from windowing.clocks import WATERMARK
from windowing.windows import FixedWindows, GlobalWindows, SlidingWindows, WindowFn


def describe_run(plan: Plan) -> RunDescription:
    """The graph of a plan."""
    return RunDescription(
        plan.name,
        {name: _source(source) for name, source in plan.sources.items()},
        {
            name: attrs.evolve(_stage(stage), tables=_tables(plan, name))
            for name, stage in plan.stages.items()
        },
        {name: attrs.evolve(_sink(sink), tables=_tables(plan, name)) for name, sink in plan.sinks.items()},
    )


def _tables(plan: Plan, consumer: str) -> tuple[str, ...]:
    """The sources that rows are looked up in on their way to a stage or sink."""
    routes = [route for producer in plan.producers.values() for route in producer.routes]
    tables = {table for route in routes if route.consumer == consumer for table in tables_on(route)}
    return tuple(sorted({source.name for table in tables for source in plan.tables[table].sources}))


def _source(plan: SourcePlan) -> SourceDescription:
    strategy = plan.watermark
    return SourceDescription(
        describe(plan.source),
        describe(strategy) if plan.timed else "no event time",
        per_split=None if strategy.per_split is None else str(strategy.per_split),
        idle_after=strategy.idle_after,
        percentiles=strategy.percentiles,
        kind=type(plan.source).__name__,
    )


def _stage(plan: StagePlan) -> StageDescription:
    operator = plan.stage.operator
    table = operator.tables[0].table
    described = StageDescription(
        plan.inputs,
        plan.level,
        table.keys,
        aggregates={},
        choices={}
        if isinstance(operator, Grouping | Keyed | TimeJoin | SideInputs)
        else {"operator": describe(operator)},
        spacing=None,
        allowed_lateness=0,
        clocks=operator.clocks,
        key_types=tuple(str(table.schema[key]) for key in table.keys),
        row=table.row,
        waits=table.waits,
    )
    match operator:
        case Grouping():
            return _windowed(described, operator)
        case Keyed():
            return attrs.evolve(described, choices=operator_facts(operator), timers=operator.timers)
        case TimeJoin():
            return attrs.evolve(described, choices=operator_facts(operator))
        case SideInputs():
            sides = {side.name: plan.reads(side.clock) for side in operator.sides}
            main = plan.reads(MAIN)
            return attrs.evolve(described, choices=operator_facts(operator), main=main, sides=sides)
    return described


def _windowed(described: StageDescription, grouping: Grouping) -> StageDescription:
    windowing = grouping.windowing
    return attrs.evolve(
        described,
        aggregates={name: aggregate_text(aggregate) for name, aggregate in grouping.aggregates.items()},
        choices=windowing_choices(windowing),
        spacing=_spaced(windowing.windows),
        allowed_lateness=windowing.allowed_lateness,
        calendar=_calendar(windowing.windows),
        global_window=isinstance(windowing.windows, GlobalWindows),
        fires_at_end=WATERMARK in windowing.trigger.clocks(),
        fires_before_end=not windowing.trigger.waits_for_end,
    )


def _spaced(windows: WindowFn) -> Spacing | None:
    match windows:
        case FixedWindows(size, offset):
            return Spacing(size, size, offset)
        case SlidingWindows(size, period, offset):
            return Spacing(size, period, offset)
    return None


def _calendar(windows: WindowFn) -> dict[str, Any] | None:
    if not isinstance(windows, CalendarWindows):
        return None
    return {**attrs.asdict(windows), "start": windows.start.isoformat()}


def _sink(plan: SinkPlan) -> SinkDescription:
    return SinkDescription(plan.inputs, describe(plan.sink), type(plan.sink).__name__)
