"""The step of a stage in a batch, the same on both runners: arrivals, clock, step, output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
import polars as pl

from beamlike.plan.model import StagePlan
from beamlike.plan.route import Output, Routed
from beamlike.records.model import SourceRecord, StageRecord
from beamlike.records.seen_keys import SeenKeys
from beamlike.rows.dead_letters import DeadLetterCounts
from beamlike.runtime.arrival import in_order
from beamlike.runtime.build_records import source_record, stage_record
from beamlike.runtime.stage_output import route_step
from beamlike.system.activity import activity
from stages.operator import MAIN
from stages.progress.inputs import Arrived, Inputs
from stages.progress.reports import Report, least
from stages.stage import StageResult
from stages.state.store import StateStore
from stages.strategies.base import WatermarkStrategy
from windowing.time import MIN_TIME

Arrivals = Mapping[str, Iterable[tuple[str, pl.DataFrame]]]
"""The arrivals of a stage in a batch: for each input, pairs of sender and rows."""


@attrs.frozen
class StageTask:
    """A stage, or shard `shard` of its `shards`, which takes a step in each batch.

    `sources` has the watermark strategies of the sources that it reads, and `origins`, for each stage that it reads,
    the names under which the shards of that stage report. Silence of a source before the run `started` (us) does not
    count. `drains`: the run may end before its input does.
    """

    plan: StagePlan
    sources: Mapping[str, WatermarkStrategy]
    origins: Mapping[str, Sequence[str]]
    shard: int = attrs.field(default=0, kw_only=True)
    shards: int = attrs.field(default=1, kw_only=True)
    started: int = attrs.field(default=MIN_TIME, kw_only=True)
    drains: bool = attrs.field(default=False, kw_only=True)

    def receive(self, known: Inputs, arrived: Arrived) -> Inputs:
        """The inputs of the shard, updated with the messages of a batch."""
        return known.receive(arrived, self.sources, self.started, self.origins)

    def step(self, inputs: Inputs, rows: Arrivals, store: StateStore) -> StageTurn:
        """Takes the step of a batch, with the inputs after it and its `rows`, by input, each with the sender."""
        plan, operator = self.plan, self.plan.stage.operator
        reports = {role: self._reports(inputs, role) for role in operator.inputs}
        main = reports.pop(MAIN)
        sides = {role: least(found.values()) for role, found in reports.items()}
        with activity("stage", plan.name):
            arrivals = {role: self._arrivals(role, rows.get(role, ())) for role in operator.inputs}
            keys = arrivals[MAIN].select(operator.inputs[MAIN].keys)
            marks = {role: report.watermark for role, report in sides.items()}
            times = inputs.clock_times(main.values(), marks)
            step = plan.stage.step(store, arrivals, times, drained=self.drains)
            routed = dict(route_step(plan, step))
        seen = SeenKeys(plan.name, keys, self.shard, self.shards)
        return StageTurn(inputs, main, step, routed, sides, seen)

    def _reports(self, inputs: Inputs, role: str) -> dict[str, Report]:
        """The reports of the sources and stages that are read at one input."""
        skews = self.plan.skews
        return {
            name: inputs.report(name, self.origins.get(name, ())).moved_back(skews.get(name, 0))
            for name in self.plan.reads(role)
        }

    def _arrivals(self, role: str, rows: Iterable[tuple[str, pl.DataFrame]]) -> pl.DataFrame:
        """The arrivals at one input, in order."""
        operator = self.plan.stage.operator
        # If rows of a side have the same key, the last one counts.
        ordered = operator.ordered or role != MAIN
        frames = in_order(self.plan, self.sources, rows, ordered=ordered)
        if role == MAIN:
            return operator.together(frames)
        return pl.concat(frames) if frames else operator.inputs[role].no_arrivals()

    def source_records(self, inputs: Inputs) -> dict[str, SourceRecord]:
        """The records of the sources that the stage reads."""
        return {name: source_record(name, inputs, strategy) for name, strategy in self.sources.items()}


@attrs.frozen(eq=False)
class StageTurn:
    """The result of a batch for a stage: the reports of its `upstream`, the `step`, and the routed rows of each output.

    `sides`: the reports of its other inputs. `keys`: the keys that the shard received, until they are recorded.
    """

    inputs: Inputs
    upstream: Mapping[str, Report]
    step: StageResult
    routed: Mapping[Output, Routed]
    sides: Mapping[str, Report] = attrs.field(factory=dict)
    keys: SeenKeys | None = None

    @property
    def report(self) -> Report:
        """The report of the stage after the batch, for stages downstream."""
        return self.step.report(idle=least(self.upstream.values()).idle)

    def without_keys(self) -> StageTurn:
        """The turn without its keys, which take memory."""
        return attrs.evolve(self, keys=None)

    @property
    def dead_letters(self) -> DeadLetterCounts:
        """The dead letters of the stage and of the steps after it."""
        return DeadLetterCounts.of_all(routed.letters for routed in self.routed.values())

    def record(self, finished: int) -> StageRecord:
        """The record of the stage, which finished the batch at this processing time (us)."""
        return stage_record(self.step, self.upstream, finished, self.sides)
