"""What stands at the beginning of a run's records: its graph in words, enough to draw it without the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from beamlike.expressions.describe import aggregate_text, describe, windowing_choices
from beamlike.plan.model import Plan, SinkPlan, SourcePlan, StagePlan
from stages.grouping.grouping import Grouping
from windowing.calendars import CalendarWindows
from windowing.windows import FixedWindows, SlidingWindows, WindowFn


def _words(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(words)


def _shares(shares: Iterable[int]) -> tuple[int, ...]:
    return tuple(shares)


@attrs.frozen
class SourceDescription:
    """A source: what it reads, its watermark strategy in words, and how it deals with splits and silence.

    `idle_after` is in microseconds, None where silence counts; `per_split` names the column.
    """

    reads: str
    watermark: str
    per_split: str | None = None
    idle_after: int | None = None
    percentiles: tuple[int, ...] = attrs.field(default=(), converter=_shares)


@attrs.frozen
class Spacing:
    """Windows that all have one length, and of which one starts every period; in microseconds."""

    length: int
    period: int
    offset: int


def _spacing(value: Spacing | Mapping[str, int] | None) -> Spacing | None:
    return value if value is None or isinstance(value, Spacing) else Spacing(**value)


@attrs.frozen
class StageDescription:
    """A stage: what it reads from, its keys and aggregates, and each choice of its windowing in words.

    `choices` has windows, trigger, accumulation, timestamp, allowed lateness, on_time and closing; of a stage without
    windows it says in "operator" what that does. `spacing` says where fixed and sliding windows lie, `calendar` has the
    unit, count, start and timezone of calendar windows; both are None for others. `allowed_lateness` is in
    microseconds. `clocks` are those that its rows of state wait for; `row` is what such a row is called, and `waits`
    what one does that holds the output watermark.
    """

    inputs: tuple[str, ...] = attrs.field(converter=_words)
    level: int
    keys: tuple[str, ...] = attrs.field(converter=_words)
    aggregates: Mapping[str, str]
    choices: Mapping[str, str]
    spacing: Spacing | None = attrs.field(converter=_spacing)
    allowed_lateness: int
    clocks: tuple[str, ...] = attrs.field(converter=_words)
    calendar: Mapping[str, Any] | None = None
    key_types: tuple[str, ...] = attrs.field(default=(), converter=_words)
    row: str = "window"
    waits: str = "has elements that wait for a pane"

    @property
    def windowed(self) -> bool:
        """Whether it groups by windows."""
        return "windows" in self.choices


@attrs.frozen
class SinkDescription:
    """A sink: what it is fed from, and where it writes."""

    inputs: tuple[str, ...] = attrs.field(converter=_words)
    writes: str


@attrs.frozen
class RunDescription:
    """The graph of a run: sources, stages in an order in which each comes after what it reads from, and sinks."""

    pipeline: str
    sources: Mapping[str, SourceDescription] = attrs.field(factory=dict)
    stages: Mapping[str, StageDescription] = attrs.field(factory=dict)
    sinks: Mapping[str, SinkDescription] = attrs.field(factory=dict)

    @classmethod
    def load(cls, facts: Mapping[str, Any]) -> RunDescription:
        """The description of plain facts, as JSON has them."""
        return cls(
            facts["pipeline"],
            {name: SourceDescription(**source) for name, source in facts["sources"].items()},
            {name: StageDescription(**stage) for name, stage in facts["stages"].items()},
            {name: SinkDescription(**sink) for name, sink in facts["sinks"].items()},
        )


def describe_run(plan: Plan) -> RunDescription:
    """The graph of a plan."""
    return RunDescription(
        plan.name,
        {name: _source(source) for name, source in plan.sources.items()},
        {name: _stage(stage) for name, stage in plan.stages.items()},
        {name: _sink(sink) for name, sink in plan.sinks.items()},
    )


def _source(plan: SourcePlan) -> SourceDescription:
    strategy = plan.watermark
    return SourceDescription(
        describe(plan.source),
        describe(strategy) if plan.timed else "no event time",
        None if strategy.per_split is None else str(strategy.per_split),
        strategy.idle_after,
        strategy.percentiles,
    )


def _stage(plan: StagePlan) -> StageDescription:
    operator = plan.stage.operator
    table = operator.table
    described = StageDescription(
        plan.inputs,
        plan.level,
        table.keys,
        {},
        {"operator": describe(operator)},
        None,
        0,
        operator.clocks,
        key_types=[str(table.schema[key]) for key in table.keys],
        row=table.row,
        waits=table.waits,
    )
    return _windowed(described, operator) if isinstance(operator, Grouping) else described


def _windowed(described: StageDescription, grouping: Grouping) -> StageDescription:
    windowing = grouping.windowing
    return attrs.evolve(
        described,
        aggregates={name: aggregate_text(aggregate) for name, aggregate in grouping.aggregates.items()},
        choices=windowing_choices(windowing),
        spacing=_spaced(windowing.windows),
        allowed_lateness=windowing.allowed_lateness,
        calendar=_calendar(windowing.windows),
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
    return SinkDescription(plan.inputs, describe(plan.sink))
