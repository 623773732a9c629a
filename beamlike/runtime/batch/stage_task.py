"""The step of a stage in a batch, on both runners: the arrivals are ordered, the clock is set, and the output
is routed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import attrs
import polars as pl

from beamlike.logical.origins import Promise
from beamlike.plan.model import StagePlan
from beamlike.plan.route import Output, Routed, apply_routes
from beamlike.records.model import SourceRecord, StageRecord
from beamlike.records.seen_keys import SeenKeys
from beamlike.rows.dead_letters import DeadLetterCounts, dead_letters, error_text, note_row
from beamlike.runtime.batch.build_records import source_record, stage_record
from beamlike.system.activity import activity
from stages.completeness import Completeness
from stages.operator import MAIN, Refused
from stages.progress.inputs import Arrived, Inputs
from stages.progress.observed import expected
from stages.progress.reports import Report, least
from stages.stage import StageResult
from stages.state.store import StateStore
from stages.strategies.base import WatermarkStrategy
from windowing.columns import EVENT_TIME
from windowing.time import MIN_TIME

Arrivals = Mapping[str, Iterable[tuple[str, pl.DataFrame]]]
"""The arrivals of a stage in a batch: for each input, pairs of a sender's name and its rows."""


@attrs.frozen
class StageTask:
    """A stage, or one of its shards, with the constant arguments of its steps.

    `sources` has the watermark strategies of the sources that report to it. `origins` has, for each stage that it
    reads, the names under which its shards report. `started` is the start of the run (us): earlier silence of a source
    does not make it idle. `drains`: the run may end before its input does, except that of the sources and stages in
    `complete`.
    """

    plan: StagePlan
    sources: Mapping[str, WatermarkStrategy]
    origins: Mapping[str, Sequence[str]]
    shard: int = attrs.field(default=0, kw_only=True)
    shards: int = attrs.field(default=1, kw_only=True)
    started: int = attrs.field(default=MIN_TIME, kw_only=True)
    drains: bool = attrs.field(default=False, kw_only=True)
    complete: frozenset[str] = attrs.field(default=frozenset(), kw_only=True)

    def receive(self, known: Inputs, arrived: Arrived) -> Inputs:
        """Returns the inputs `known`, updated with the summaries and reports that arrived in a batch."""
        return known.receive(arrived, self.sources, self.started, self.origins)

    def step(self, inputs: Inputs, rows: Arrivals, store: StateStore) -> StageTurn:
        """Runs the step of a batch. `inputs` is the result of `receive` for this batch, and `rows` are the arrivals,
        by input and sender.
        """
        plan, operator = self.plan, self.plan.stage.operator
        reports = {role: self._reports(inputs, role) for role in operator.inputs}
        # The input watermark is the least of all inputs except sides, each of which is a clock of its own.
        main = {
            name: one
            for role, found in reports.items()
            if not operator.inputs[role].side
            for name, one in found.items()
        }
        others = {role: least(found.values()) for role, found in reports.items() if role != MAIN}
        sides = {role: report for role, report in others.items() if operator.inputs[role].side}
        with activity("stage", plan.name):
            arrivals = {role: self._arrivals(role, rows.get(role, ())) for role in operator.inputs}
            keys = arrivals[MAIN][:, list(operator.inputs[MAIN].keys)]
            watermarks = {role: report.watermark for role, report in others.items()}
            times = inputs.clock_times(main.values(), watermarks)
            known = self._completeness(inputs)
            if plan.promise is not None and plan.promise.hold:
                times = times.with_watermark(_gate(plan.promise, known, times.watermark))
            drained = self._drains(plan.name)
            step = plan.stage.step(store, arrivals, times, drained=drained, completeness=known)
            routed = dict(route_step(plan, step))
        seen = SeenKeys(plan.name, keys, self.shard, self.shards)
        return StageTurn(inputs, main, step, routed, sides=sides, keys=seen, promise=plan.promise)

    def _drains(self, name: str) -> bool:
        """True if the end of a source or stage may be that of a run that is drained."""
        return self.drains and name not in self.complete

    def _completeness(self, inputs: Inputs) -> Completeness:
        """Returns the completeness of windows, if the plan asks for it."""
        return Completeness(
            tuple(
                expected(self.sources[name], inputs.sources[name], skew=skew, drains=self._drains(name))
                for name, skew in self.plan.observes.items()
            )
        )

    def _reports(self, inputs: Inputs, role: str) -> dict[str, Report]:
        """Returns the reports of the sources and stages that one input reads."""
        skews = self.plan.skews
        return {
            name: inputs.report(name, self.origins.get(name, ())).moved_back(skews.get(name, 0))
            for name in self.plan.reads(role)
        }

    def _arrivals(self, role: str, rows: Iterable[tuple[str, pl.DataFrame]]) -> pl.DataFrame:
        """Returns the arrivals of one input, in order."""
        operator = self.plan.stage.operator
        # Of several rows of a side with the same key, the last one counts.
        ordered = operator.ordered or role != MAIN
        frames = in_order(self.plan, self.sources, rows, ordered=ordered)
        if role == MAIN:
            return operator.concat_arrivals(frames)
        return pl.concat(frames) if frames else operator.inputs[role].no_arrivals()

    def source_records(self, inputs: Inputs) -> dict[str, SourceRecord]:
        """Returns the records of the sources that the stage reads."""
        read = {name: strategy for name, strategy in self.sources.items() if name in self.plan.inputs}
        return {name: source_record(name, inputs, strategy) for name, strategy in read.items()}


@attrs.frozen(eq=False)
class StageTurn:
    """The result of a stage in a batch: the `step`, the reports of its `upstream`, and the rows of each output by
    consumer.

    `sides` has the reports of its sides, and `promise` is that of the stage. `keys` has the keys that the shard
    received, until they are recorded.
    """

    inputs: Inputs
    upstream: Mapping[str, Report]
    step: StageResult
    routed: Mapping[Output, Routed]
    sides: Mapping[str, Report] = attrs.field(factory=dict, kw_only=True)
    keys: SeenKeys | None = attrs.field(default=None, kw_only=True)
    promise: Promise | None = attrs.field(default=None, kw_only=True)

    @property
    def report(self) -> Report:
        """The stage's own report after the batch, for stages downstream."""
        return self.step.report(idle=least(self.upstream.values()).idle)

    def without_keys(self) -> StageTurn:
        """Returns the result without its keys, to free memory."""
        return attrs.evolve(self, keys=None)

    @property
    def dead_letters(self) -> DeadLetterCounts:
        """The dead letters of the stage and of the steps after it."""
        return DeadLetterCounts.of_all(routed.dead_letters for routed in self.routed.values())

    def record(self, finished: int) -> StageRecord:
        """Returns the record of the stage, which finished the batch at this processing time (us)."""
        return stage_record(self.step, self.upstream, finished, self.sides, self.promise)


def _gate(promise: Promise, known: Completeness, watermark: int) -> int:
    """Returns the input watermark (us) of a stage that waits for its promise."""
    return known.gate(watermark, promise.complete, promise.within)


def in_order(
    plan: StagePlan, sources: Container[str], arrived: Iterable[tuple[str, pl.DataFrame]], *, ordered: bool
) -> list[pl.DataFrame]:
    """Returns frames in the order of the stage's inputs. `arrived` has pairs of a sender's name and its rows.

    Rows of a source keep their order. Rows of a stage arrive from several shards, each with some of the keys; if
    `ordered`, they are sorted by event time, then by their other columns.
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
    """Yields the rows for each consumer, panes first. Raises the error of a user's function if dead letters fail the
    run.
    """
    if step.refused and plan.on_error == "fail":
        error = step.refused[0].errors[0]
        error.add_note(f"in step {plan.name!r}")
        raise note_row(error, step.refused[0].rows[0])
    panes = _routed(plan, step.panes, "main")
    used = DeadLetterCounts(used=[plan.name] if step.used else ())
    yield "main", Routed(panes.frames, used.plus(panes.dead_letters))
    yield "late", _routed(plan, step.late, "late")
    if step.refused:
        yield "dead_letters", _route_refused(plan, step.refused)


def _routed(plan: StagePlan, rows: pl.DataFrame, output: Output) -> Routed:
    """Routes rows to their consumers. Without rows it returns at once, because steps take as long for none as
    for a few.
    """
    if rows.is_empty():
        return Routed({})
    return apply_routes(rows, plan.routes, output=output, on_error=plan.on_error)


def _route_refused(plan: StagePlan, refused: Iterable[Refused]) -> Routed:
    """Routes the rows that a user's function refused. They are dead letters of the stage."""
    dead = pl.concat(
        dead_letters(plan.name, part.rows, [error_text(error) for error in part.errors]) for part in refused
    )
    routed = apply_routes(dead, plan.routes, output="dead_letters", on_error=plan.on_error)
    return Routed(routed.frames, DeadLetterCounts.of([dead]).plus(routed.dead_letters))
