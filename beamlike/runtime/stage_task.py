"""The step of a stage in a batch, as every runner has it taken: what has come, the clock, the step, what goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
import polars as pl

from beamlike.plan.model import StagePlan
from beamlike.plan.route import Output, Routed
from beamlike.records.keys_seen import came
from beamlike.records.model import SourceRecord, StageRecord
from beamlike.rows.dead_letters import DeadLetterCounts
from beamlike.runtime.arrival import in_order
from beamlike.runtime.build_records import source_record, stage_record
from beamlike.runtime.stage_output import route_step
from beamlike.system.in_hand import at
from stages.operator import MAIN
from stages.progress.inputs import Arrived, Inputs
from stages.progress.reports import Report, least
from stages.stage import StageResult
from stages.state.store import StateStore
from stages.strategies.base import WatermarkStrategy
from windowing.time import MIN_TIME

Arrivals = Mapping[str, Iterable[tuple[str, pl.DataFrame]]]
"""What has come for a stage: for each of its inputs, who sent it and the rows."""


@attrs.frozen
class StageTask:
    """A stage, or one `shard` of so many `shards` of it, which takes its steps wherever a runner has it.

    `sources` has the watermark strategies of the sources that it reads, and `origins` of each stage that it reads the
    names under which that reports, one for each shard. A source's silence before the run `started` (us) is held
    against none. The run `drains` if its end may come before that of its input.
    """

    plan: StagePlan
    sources: Mapping[str, WatermarkStrategy]
    origins: Mapping[str, Sequence[str]]
    shard: int = 0
    shards: int = 1
    started: int = MIN_TIME
    drains: bool = False

    def receive(self, known: Inputs, arrived: Arrived) -> Inputs:
        """What the shard knows of everything upstream, after what a batch has brought of it."""
        return known.receive(arrived, self.sources, self.started, self.origins)

    def step(self, inputs: Inputs, rows: Arrivals, store: StateStore) -> StageTurn:
        """The step of a batch, given what is known of upstream with it, and its `rows` by input and who sent them."""
        plan, operator = self.plan, self.plan.stage.operator
        reports = {role: self._reports(inputs, role) for role in operator.inputs}
        main = reports.pop(MAIN)
        sides = {role: least(found.values()) for role, found in reports.items()}
        with at("stage", plan.name):
            arrivals = {role: self._arrivals(role, rows.get(role, ())) for role in operator.inputs}
            came(plan.name, arrivals[MAIN], operator.inputs[MAIN].keys, self.shard, self.shards)
            marks = {role: report.watermark for role, report in sides.items()}
            times = inputs.clock_times(main.values(), marks)
            step = plan.stage.step(store, arrivals, times, drained=self.drains)
            routed = dict(route_step(plan, step))
        return StageTurn(inputs, main, step, routed, sides)

    def _reports(self, inputs: Inputs, role: str) -> dict[str, Report]:
        """Where that stands which is read at one of its inputs."""
        skews = self.plan.skews
        return {
            name: inputs.report(name, self.origins.get(name, ())).moved_back(skews.get(name, 0))
            for name in self.plan.reads(role)
        }

    def _arrivals(self, role: str, rows: Iterable[tuple[str, pl.DataFrame]]) -> pl.DataFrame:
        """What has come at one of its inputs, in order."""
        operator = self.plan.stage.operator
        # Of the rows of a side that have one key, the last one counts.
        ordered = operator.ordered or role != MAIN
        frames = in_order(self.plan, self.sources, rows, ordered=ordered)
        if role == MAIN:
            return operator.together(frames)
        return pl.concat(frames) if frames else operator.inputs[role].no_arrivals()

    def source_records(self, inputs: Inputs) -> dict[str, SourceRecord]:
        """Where the sources stand that it reads."""
        return {name: source_record(name, inputs, strategy) for name, strategy in self.sources.items()}


@attrs.frozen
class StageTurn:
    """What a batch was for a stage: where it stood `upstream`, the `step`, and what of each output goes where.

    `sides`: where its other inputs stood.
    """

    inputs: Inputs
    upstream: Mapping[str, Report]
    step: StageResult
    routed: Mapping[Output, Routed]
    sides: Mapping[str, Report] = attrs.field(factory=dict)

    @property
    def report(self) -> Report:
        """Where the stage stands now, for those downstream."""
        return self.step.report(idle=least(self.upstream.values()).idle)

    @property
    def letters(self) -> DeadLetterCounts:
        """The dead letters of the stage and of the steps after it."""
        return DeadLetterCounts.of_all(routed.letters for routed in self.routed.values())

    def record(self, finished: int) -> StageRecord:
        """The record of the stage, which was done with the batch at this processing time (us)."""
        return stage_record(self.step, self.upstream, finished, self.sides)
