"""An operator that is no grouping: it holds each row until a deadline of its own, and gives it on as it was."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import polars as pl

from beamlike.plan.model import Plan, StagePlan
from beamlike.plan.route import Route
from stages.clock import StepClock
from stages.graph import StageGraph
from stages.operator import HOLD, MAIN, PENDING, Admitted, Advanced, Input, OneTable, Operator, Table
from stages.stage import Stage
from windowing.clocks import PROCESSING_TIME, WATERMARK, Times
from windowing.columns import EVENT_TIME


@attrs.frozen(slots=False)
class HoldBack(OneTable):
    """Each row goes on when the watermark reaches its `until`, or processing time its `by`, which may be null (us)."""

    keys: tuple[str, ...]
    schema: pl.Schema = attrs.field(repr=False)
    clocks = (WATERMARK, PROCESSING_TIME)

    @cached_property
    def inputs(self) -> dict[str, Input]:
        return {MAIN: Input(self.keys, pl.Schema({**self.schema, EVENT_TIME: pl.Int64()}))}

    @cached_property
    def table(self) -> Table:
        rows = pl.Schema({**self.inputs[MAIN].schema, PENDING: pl.Int64(), HOLD: pl.Int64()})
        waits_until = self.deadlines(Times())
        return Table(
            "row",
            "waits for its deadline",
            self.keys,
            (EVENT_TIME, "until"),
            rows,
            rows,
            waits_until=waits_until,
        )

    def deadlines(self, times: Times) -> dict[str, pl.Expr]:
        return {WATERMARK: pl.col("until"), PROCESSING_TIME: pl.col("by")}

    def admit(self, arrivals: Mapping[str, pl.DataFrame], clock: StepClock, arrived: int) -> Admitted:
        """What is late holds nothing."""
        hold = pl.when(pl.col(EVENT_TIME) >= clock.input_before).then(EVENT_TIME)
        rows = arrivals[MAIN].with_columns(hold.alias(HOLD), pl.lit(1, pl.Int64).alias(PENDING))
        return Admitted(rows.select(list(self.table.incoming)), len(rows), len(rows))

    def advance(
        self,
        rows: pl.DataFrame,
        admitted: Admitted,
        clock: StepClock,
        unmerged: pl.DataFrame | None,
    ) -> Advanced:
        rows = pl.concat([rows, admitted.incoming])
        come = [deadline <= clock.now.time(name) for name, deadline in self.deadlines(clock.now).items()]
        due = pl.any_horizontal(come).fill_null(False)
        given = rows.filter(due).select(list(self.inputs[MAIN].schema))
        return Advanced(rows.filter(~due), given.sort(pl.all()), len(given))


def with_stage(plan: Plan, operator: Operator, name: str = "held") -> Plan:
    """The plan of a source and a sink, with a stage of this operator between them."""
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
