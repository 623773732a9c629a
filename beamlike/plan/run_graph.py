"""The graph of a plan as the records of a run have it, so that it can be drawn without the pipeline."""

from __future__ import annotations

from typing import Any

import attrs

from beamlike.plan.description import SinkFacts, SourceFacts, StageFacts, describe_plan
from beamlike.plan.model import Plan
from beamlike.records.graph import (
    RunDescription,
    SinkDescription,
    SourceDescription,
    Spacing,
    StageDescription,
)
from windowing.calendars import CalendarWindows
from windowing.clocks import WATERMARK
from windowing.windowing import Windowing
from windowing.windows import FixedWindows, GlobalWindows, SlidingWindows, WindowFn


def describe_run(plan: Plan) -> RunDescription:
    """Returns the graph of a plan."""
    described = describe_plan(plan)
    return RunDescription(
        plan.name,
        {name: _source(source) for name, source in described.sources.items()},
        {name: _stage(stage) for name, stage in described.stages.items()},
        {name: _sink(sink) for name, sink in described.sinks.items()},
    )


def _source(facts: SourceFacts) -> SourceDescription:
    strategy = facts.plan.watermark
    return SourceDescription(
        facts.reads,
        facts.watermark if facts.plan.timed else "no event time",
        per_split=None if strategy.per_split is None else str(strategy.per_split),
        idle_after=strategy.idle_after,
        percentiles=strategy.percentiles,
        kind=facts.kind,
    )


def _stage(facts: StageFacts) -> StageDescription:
    operator, keys = facts.plan.stage.operator, facts.keys
    described = StageDescription(
        inputs=facts.plan.inputs,
        level=facts.plan.level,
        keys=tuple(keys),
        aggregates=facts.aggregates,
        choices=facts.choices,
        clocks=operator.clocks,
        key_types=tuple(keys.values()),
        row=facts.table.row,
        waits=facts.table.waits,
        timers=operator.timers,
        sides=facts.sides,
        main=facts.main,
        tables=facts.looked_up,
    )
    return described if operator.panes is None else _windowed(described, operator.panes)


def _windowed(described: StageDescription, windowing: Windowing) -> StageDescription:
    return attrs.evolve(
        described,
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


def _sink(facts: SinkFacts) -> SinkDescription:
    return SinkDescription(facts.plan.inputs, facts.writes, facts.kind, facts.looked_up)
