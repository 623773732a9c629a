"""Descriptions of a plan's parts. `explain`, the manifest of a run and the graph in its records are made from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from beamlike.expressions.describe import describe, text_of, windowing_choices
from beamlike.logical.origins import EventTime
from beamlike.plan.model import Plan, SinkPlan, SourcePlan, StagePlan, TablePlan
from beamlike.plan.tables import tables_on
from beamlike.plan.ways import Way, texts_to, way_text, ways_into, ways_to
from beamlike.rows.dtypes import schema_text, type_name
from stages.declared import Declaration, Said
from stages.operator import MAIN
from stages.sides.declarations import side_name
from stages.state_tables import Table
from windowing.columns import RESERVED_PREFIX
from windowing.time import Microseconds, format_duration


@attrs.frozen(kw_only=True)
class SourceFacts:
    """Facts of a source. `kind` is its class name. `ways` has the steps before and after its event time, as data."""

    plan: SourcePlan
    kind: str
    reads: str
    columns: str
    event_time: str
    watermark: str
    ways: list[Any]
    way_text: str


@attrs.frozen(kw_only=True)
class StageFacts:
    """Facts of a stage: `facts` for people, and `declared` for the comparison with a checkpoint.

    `choices` has the settings of the windowing if the operator emits panes, otherwise the facts. `table` is the state
    table whose rows are counted as live, and `others` are the other tables. If the stage has sides, `main` names what
    its main input reads, and `sides` what each side reads. `looked_up` names the sources of the lookup tables that its
    arrivals have passed.
    """

    plan: StagePlan
    facts: Mapping[str, str]
    choices: Mapping[str, str]
    aggregates: Mapping[str, str]
    declared: Declaration
    columns: str
    table: Table
    others: tuple[Table, ...]
    main: tuple[str, ...]
    sides: Mapping[str, tuple[str, ...]]
    looked_up: tuple[str, ...]
    ways: Mapping[str, list[Way]]
    way_texts: list[str]

    @property
    def keys(self) -> dict[str, str]:
        """The key columns of the state table, with their types as text."""
        return {key: str(self.table.schema[key]) for key in self.table.keys}


@attrs.frozen(kw_only=True)
class TableFacts:
    """Facts of a lookup table: a side that is read before the first batch."""

    plan: TablePlan
    columns: str
    ways: Mapping[str, list[Way]]
    way_texts: list[str]


@attrs.frozen(kw_only=True)
class SinkFacts:
    """Facts of a sink. `kind` is its class name. `columns` has only the user's columns."""

    plan: SinkPlan
    kind: str
    writes: str
    columns: str
    looked_up: tuple[str, ...]


@attrs.frozen(kw_only=True)
class PlanDescription:
    """The description of a plan. The facts of its parts are by name, in the order of the plan."""

    plan: Plan
    sources: Mapping[str, SourceFacts]
    tables: Mapping[str, TableFacts]
    stages: Mapping[str, StageFacts]
    sinks: Mapping[str, SinkFacts]


def describe_plan(plan: Plan) -> PlanDescription:
    """Describes a plan."""
    return PlanDescription(
        plan=plan,
        sources={name: _source(source) for name, source in plan.sources.items()},
        tables={name: _table(plan, table) for name, table in plan.tables.items()},
        stages={name: _stage(plan, stage) for name, stage in plan.stages.items()},
        sinks={name: _sink(plan, sink) for name, sink in plan.sinks.items()},
    )


def _source(source: SourcePlan) -> SourceFacts:
    return SourceFacts(
        plan=source,
        kind=type(source.source).__name__,
        reads=describe(source.source),
        columns=schema_text(source.schema),
        event_time=_event_time(source.time),
        watermark=describe(source.watermark),
        ways=ways_into(source),
        way_text=way_text(source.name, (*source.steps_before_time, *source.steps_after_time)),
    )


def _event_time(time: EventTime | None) -> str:
    if time is None:
        return "processing time, assigned at ingest"
    return f"{time.column} {type_name(time.dtype)}" + (f" in {time.unit}" if time.unit else "")


def _stage(plan: Plan, stage: StagePlan) -> StageFacts:
    operator = stage.stage.operator
    table, *others = (kept.table for kept in operator.tables)
    # An operator describes itself only here. Texts, manifests and records are all made from this.
    facts, declared, panes = operator.facts(text_of), operator.declared, operator.panes
    sides = [role for role, one in operator.inputs.items() if one.side]
    return StageFacts(
        plan=stage,
        facts=facts,
        choices=facts if panes is None else windowing_choices(panes),
        aggregates={name: text_of(aggregate) for name, aggregate in declared.aggregates.items()},
        declared=declared,
        columns=schema_text(stage.schema),
        table=table,
        others=tuple(others),
        main=stage.reads(MAIN) if sides else (),
        sides={side_name(role): stage.reads(role) for role in sides},
        looked_up=_looked_up(plan, stage.name),
        ways=ways_to(plan, stage.name, operator.needed),
        way_texts=texts_to(plan, stage.name),
    )


def _table(plan: Plan, table: TablePlan) -> TableFacts:
    columns = frozenset(table.schema)
    return TableFacts(
        plan=table,
        columns=schema_text(table.side.schema),
        ways=ways_to(plan, table.name, lambda _: columns),
        way_texts=texts_to(plan, table.name),
    )


def _sink(plan: Plan, sink: SinkPlan) -> SinkFacts:
    user = {name: dtype for name, dtype in sink.schema.items() if not name.startswith(RESERVED_PREFIX)}
    return SinkFacts(
        plan=sink,
        kind=type(sink.sink).__name__,
        writes=describe(sink.sink),
        columns=schema_text(user),
        looked_up=_looked_up(plan, sink.name),
    )


def _looked_up(plan: Plan, consumer: str) -> tuple[str, ...]:
    """Returns the sources of the lookup tables that rows pass on their way to a stage or sink."""
    routes = [route for producer in plan.producers.values() for route in producer.routes]
    tables = {table for route in routes if route.consumer == consumer for table in tables_on(route)}
    return tuple(sorted({source.name for table in tables for source in plan.tables[table].sources}))


def fact_text(fact: object) -> str:
    """Formats a fact for people, in the way a user would declare it."""
    if isinstance(fact, Said):
        return fact.text
    if isinstance(fact, Microseconds):
        return format_duration(fact)
    if isinstance(fact, Mapping):
        return "; ".join(f"{name} {fact_text(each)}" for name, each in fact.items())
    if isinstance(fact, list):
        return ", ".join(map(fact_text, fact))
    return fact if isinstance(fact, str) else text_of(fact)
