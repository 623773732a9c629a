"""The step of a stage in a batch, the same on both runners: arrivals, clock, step, output."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import attrs
import polars as pl

from beamlike.plan.model import StagePlan
from beamlike.plan.route import Output, Routed, apply_routes
from beamlike.records.model import SourceRecord, StageRecord
from beamlike.records.seen_keys import SeenKeys
from beamlike.rows.dead_letters import DeadLetterCounts, dead_letters, error_text
from beamlike.runtime.batch.build_records import source_record, stage_record
from beamlike.system.activity import activity
from stages.operator import MAIN, Refused
from stages.progress.inputs import Arrived, Inputs
from stages.progress.reports import Report, least
from stages.stage import StageResult
from stages.state.store import StateStore
from stages.strategies.base import WatermarkStrategy
from windowing.columns import EVENT_TIME
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
        # The input watermark is the least of all inputs but sides, which are clocks of their own.
        main = {
            name: one
            for role, found in reports.items()
            if not operator.inputs[role].side
            for name, one in found.items()
        }
        beside = {role: least(found.values()) for role, found in reports.items() if role != MAIN}
        sides = {role: report for role, report in beside.items() if operator.inputs[role].side}
        with activity("stage", plan.name):
            arrivals = {role: self._arrivals(role, rows.get(role, ())) for role in operator.inputs}
            keys = arrivals[MAIN].select(operator.inputs[MAIN].keys)
            marks = {role: report.watermark for role, report in beside.items()}
            times = inputs.clock_times(main.values(), marks)
            step = plan.stage.step(store, arrivals, times, drained=self.drains)
            routed = dict(route_step(plan, step))
        seen = SeenKeys(plan.name, keys, self.shard, self.shards)
        return StageTurn(inputs, main, step, routed, sides=sides, keys=seen)

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
            return operator.concat_arrivals(frames)
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
    sides: Mapping[str, Report] = attrs.field(factory=dict, kw_only=True)
    keys: SeenKeys | None = attrs.field(default=None, kw_only=True)

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


def in_order(
    plan: StagePlan, sources: Container[str], arrived: Iterable[tuple[str, pl.DataFrame]], *, ordered: bool
) -> list[pl.DataFrame]:
    """Returns frames, given with the names of their senders, in the order of the stage's inputs.

    Rows of a source keep their order. Rows of a stage arrive from its shards, each with some of the keys; if `ordered`,
    they are sorted by event time, then by their other columns.
    """
    frames: dict[str, list[pl.DataFrame]] = {name: [] for name in plan.inputs}
    for name, frame in arrived:
        frames[name].append(frame)
    if ordered:
        frames = {
            name: found if name in sources or not found else [_sorted(found)]
            for name, found in frames.items()
        }
    return [frame for found in frames.values() for frame in found]


def _sorted(frames: list[pl.DataFrame]) -> pl.DataFrame:
    rows = pl.concat(frames)
    plain = [name for name, dtype in rows.schema.items() if name != EVENT_TIME and not dtype.is_nested()]
    return rows.sort(EVENT_TIME, *plain, maintain_order=True)


def route_step(plan: StagePlan, step: StageResult) -> Iterator[tuple[Output, Routed]]:
    """The rows for each consumer, panes first. Raises the error of a user's function if dead letters fail the run."""
    if step.refused and plan.on_error == "fail":
        error = step.refused[0].errors[0]
        error.add_note(f"in step {plan.name!r}")
        raise error
    panes = _routed(plan, step.panes, "main")
    used = DeadLetterCounts(used=[plan.name] if step.used else ())
    yield "main", Routed(panes.frames, used.plus(panes.letters))
    yield "late", _routed(plan, step.late, "late")
    if step.refused:
        yield "dead_letters", _route_refused(plan, step.refused)


def _routed(plan: StagePlan, rows: pl.DataFrame, output: Output) -> Routed:
    """Routes rows. Most small batches have no panes, and steps take as long for no rows as for some."""
    if rows.is_empty():
        return Routed({})
    return apply_routes(rows, plan.routes, output=output, on_error=plan.on_error)


def _route_refused(plan: StagePlan, refused: Iterable[Refused]) -> Routed:
    """Routes refused rows, which are dead letters of the stage."""
    letters = pl.concat(
        dead_letters(plan.name, part.rows, [error_text(error) for error in part.errors]) for part in refused
    )
    routed = apply_routes(letters, plan.routes, output="dead_letters", on_error=plan.on_error)
    return Routed(routed.frames, DeadLetterCounts.of([letters]).plus(routed.letters))
