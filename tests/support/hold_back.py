"""An operator that is no grouping: it holds each row until the row's deadline, then emits it unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import polars as pl

from beamlike.plan.model import Plan, StagePlan
from beamlike.plan.route import Route
from stages.clock import StepClock
from stages.graph import StageGraph
from stages.operator import HOLD, MAIN, PENDING, Input, Operator, StepOutput
from stages.stage import Stage
from stages.state_tables import State, StateTable, Table, WindowTable
from windowing.clocks import PROCESSING_TIME, WATERMARK, Times
from windowing.columns import EVENT_TIME


@attrs.frozen(slots=False)
class HoldBack(Operator, StateTable[WindowTable]):
    """Emits each row when the watermark reaches its `until` or processing time its `by`, in us; `by` may be null."""

    keys: tuple[str, ...]
    schema: pl.Schema = attrs.field(repr=False)
    clocks = (WATERMARK, PROCESSING_TIME)

    @cached_property
    def inputs(self) -> dict[str, Input]:
        return {MAIN: Input(self.keys, pl.Schema({**self.schema, EVENT_TIME: pl.Int64()}))}

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self,)

    @cached_property
    def table(self) -> WindowTable:
        rows = pl.Schema({**self.inputs[MAIN].schema, PENDING: pl.Int64(), HOLD: pl.Int64()})
        return WindowTable(
            row="row",
            waits="waits for its deadline",
            keys=self.keys,
            bounds=(EVENT_TIME, "until"),
            schema=rows,
            incoming=rows,
            waits_until=self.deadlines(Times()),
        )

    def deadlines(self, times: Times) -> dict[str, pl.Expr]:
        return {WATERMARK: pl.col("until"), PROCESSING_TIME: pl.col("by")}

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        # A late row holds nothing.
        hold = pl.when(pl.col(EVENT_TIME) >= clock.input_before).then(EVENT_TIME)
        arrived = arrivals[MAIN].with_columns(hold.alias(HOLD), pl.lit(1, pl.Int64).alias(PENDING))
        loaded = state.load(self, arrived.select(list(self.table.incoming)))
        rows = pl.concat([loaded.rows, loaded.incoming])
        over = [deadline <= clock.now.time(name) for name, deadline in self.deadlines(clock.now).items()]
        due = pl.any_horizontal(over).fill_null(False)
        state.write_back(self, rows.filter(~due))
        emitted = rows.filter(due).select(list(self.inputs[MAIN].schema)).sort(pl.all())
        return StepOutput(emitted, len(arrived), len(arrived), len(emitted))


def with_stage(plan: Plan, operator: Operator, name: str = "held") -> Plan:
    """Returns the plan of a source and a sink, with a stage of this operator between them."""
    ((read, source),), ((written, sink),) = plan.sources.items(), plan.sinks.items()
    (route,) = source.routes
    main = operator.inputs[MAIN]
    into = attrs.evolve(route, consumer=name, columns=tuple(main.schema))
    out = (Route(written, (), route.columns),)
    stage = StagePlan(
        name=name,
        stage=Stage(name, operator),
        inputs=(read,),
        level=1,
        keyed=bool(main.keys),
        schema=source.schema,
        routes=out,
    )
    return attrs.evolve(
        plan,
        sources={read: attrs.evolve(source, routes=(into,))},
        stages={name: stage},
        sinks={written: attrs.evolve(sink, inputs=(name,))},
        graph=StageGraph.from_inputs({read: (), name: (read,)}),
        levels=((name,),),
    )
