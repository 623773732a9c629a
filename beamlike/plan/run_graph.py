"""The graph of a plan for the records of a run, so that it can be drawn without the pipeline."""

from __future__ import annotations

import os
from typing import Any

import attrs

from beamlike.io.files.files import Files
from beamlike.io.sinks import HasLocation
from beamlike.logical.origins import Promise
from beamlike.plan.description import SinkFacts, SourceFacts, StageFacts, describe_plan
from beamlike.plan.model import Plan
from beamlike.records.emission import emission_facts
from beamlike.records.graph import (
    PromiseDescription,
    RunDescription,
    SinkDescription,
    SourceDescription,
    Spacing,
    StageDescription,
)
from beamlike.steps.base import Select, WindowInto, WithColumns
from beamlike.system.path_names import is_remote
from stages.operator import MAIN
from stages.strategies.base import BoundedOutOfOrderness
from windowing.calendars import CalendarWindows
from windowing.clocks import WATERMARK
from windowing.windowing import Windowing
from windowing.windows import FixedWindows, GlobalWindows, Sessions, SlidingWindows, WindowFn


def describe_run(plan: Plan) -> RunDescription:
    """Returns the description of a plan for the records."""
    described = describe_plan(plan)
    return RunDescription(
        plan.name,
        {name: _source(source) for name, source in described.sources.items()},
        {name: _stage(stage, plan) for name, stage in described.stages.items()},
        {name: _sink(sink, plan) for name, sink in described.sinks.items()},
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
        bound=strategy.bound if isinstance(strategy, BoundedOutOfOrderness) else None,
    )


def _stage(facts: StageFacts, plan: Plan) -> StageDescription:
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
        observes=tuple(facts.plan.observes),
        promise=_promise(facts.plan.promise),
        plain=tuple(name for name in facts.plan.reads(MAIN) if _is_plain(plan, name, facts)),
    )
    return described if operator.panes is None else with_windowing(described, operator.panes)


def _promise(promise: Promise | None) -> PromiseDescription | None:
    return None if promise is None else PromiseDescription(promise.complete, promise.within, promise.hold)


def _is_plain(plan: Plan, producer: str, facts: StageFacts) -> bool:
    """True if all elements of the source or stage reach the stage, once each and with their event times."""
    routes = [route for route in plan.producers[producer].routes if route.consumer == facts.plan.name]
    return (
        len(routes) == 1
        and all(isinstance(step, Select | WithColumns | WindowInto) for step in routes[0].steps)
        and routes[0].output == "main"
    )


def with_windowing(described: StageDescription, windowing: Windowing) -> StageDescription:
    """Adds the description of the windows, the trigger and the lateness of a stage."""
    return attrs.evolve(
        described,
        spacing=_spaced(windowing.windows),
        allowed_lateness=windowing.allowed_lateness,
        session_gap=windowing.windows.gap if isinstance(windowing.windows, Sessions) else None,
        calendar=_calendar(windowing.windows),
        emission=emission_facts(windowing),
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


def _sink(facts: SinkFacts, plan: Plan) -> SinkDescription:
    sink = facts.plan.sink
    file, table = _table_of(sink)
    return SinkDescription(
        facts.plan.inputs,
        facts.writes,
        facts.kind,
        facts.looked_up,
        folder=folder_of(sink) or file,
        rows=_rows_of(facts.plan.name, plan),
        table=table,
    )


def _table_of(sink: Any) -> tuple[str, str]:
    """Returns the folder of a Delta table, or the name of a table and the file of its database, if that is SQLite."""
    kind = type(sink).__name__  # their modules are imported only if they are used
    if kind not in ("Table", "Delta") or not isinstance(sink, HasLocation):
        return "", ""
    place = sink.place()
    table = place.name if kind == "Table" else ""
    return "" if not place.path or is_remote(place.path) else os.path.abspath(place.path), table


def _rows_of(sink: str, plan: Plan) -> str:
    """Returns the output that all rows of a sink come from; "main" for rows of several outputs."""
    routes = [route for one in plan.producers.values() for route in one.routes if route.consumer == sink]
    outputs = {route.output for route in routes}
    return outputs.pop() if len(outputs) == 1 else "main"


def folder_of(sink: Any) -> str:
    """Returns the folder of a sink of files on this machine; empty for other sinks."""
    local = isinstance(sink, Files) and isinstance(sink.path, str) and not is_remote(sink.path)
    return os.path.abspath(sink.path) if local else ""
