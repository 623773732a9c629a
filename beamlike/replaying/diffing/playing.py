"""Plays a version of a pipeline over the recorded input of a run, without its sinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import polars as pl

from beamlike.local.engine import Engine
from beamlike.observe.words import rows as rows_text
from beamlike.plan.matching import Fit
from beamlike.plan.model import Plan, StagePlan
from beamlike.plan.route import addressed
from beamlike.plan.ways import texts_to
from beamlike.records.model import BatchRecord
from beamlike.replaying.diffing.outcome import Effect, Outcome, Point
from beamlike.replaying.inputs import input_again
from beamlike.replaying.scratch import NoSinks, fit_of
from beamlike.runtime.batch.stage_task import StageTurn
from beamlike.runtime.loop.batch_input import BatchInput
from beamlike.runtime.recorded.batches import STEPS, RecordedRun
from beamlike.runtime.run.side_tables import with_tables_read
from stages.progress.reports import Report
from windowing.columns import EVENT_TIME, PANE_INDEX, PANE_RETRACTED, WINDOW_COLUMNS


@attrs.define
class _RecordingEngine(Engine):
    """An engine that also collects the rows of each route, and the panes of each stage, of the current batch."""

    sent: list[tuple[str, str, pl.DataFrame]] = attrs.field(factory=list, init=False)
    panes: list[tuple[str, pl.DataFrame]] = attrs.field(factory=list, init=False)

    def _step(self, plan: StagePlan, batch: BatchInput, reports: Mapping[str, Report]) -> StageTurn:
        turn = super()._step(plan, batch, reports)
        self.panes.append((plan.name, turn.step.panes))
        return turn

    def _send(self, producer: str, frames: Mapping[str, pl.DataFrame]) -> None:
        self.sent += [(producer, consumer, frame) for consumer, frame in frames.items()]
        super()._send(producer, frames)


def play(plan: Plan, run: RecordedRun, since: int) -> Outcome:
    """Plays a plan over all batches whose input is recorded, from empty state, in this process.

    Args:
        plan: The plan of a version of the run's pipeline.
        run: The run of a checkpoint.
        since: The processing time (us) from which the output of batches is collected.

    Raises:
        InputGone: If a source no longer has the input of a batch.
    """
    batches = [one for _, one in sorted(run.batches.items()) if one.done]
    first = batches[0].now if batches else 0
    fit = fit_of(run.manifest, plan, run.path, batches[-1].now if batches else 0)
    plan = with_tables_read(fit.plan, first)
    now = 0
    engine = _RecordingEngine(plan, lambda: now, drains=plan.drains(asked=False))
    records = list[BatchRecord]()
    collected = dict[tuple[str, str], list[pl.DataFrame]]()
    for batch in batches:
        now = batch.now
        engine.sent.clear()
        engine.panes.clear()
        records.append(engine.run(input_again(plan, batch), batch.number, NoSinks()))
        if batch.now < since:
            continue
        for producer, consumer, frame in engine.sent:
            collected.setdefault((producer, consumer), []).append(frame)
        for stage, frame in engine.panes:
            collected.setdefault((stage, ""), []).append(frame)
    taken = {name for batch in batches for name in batch.taken}
    return Outcome(
        _points(plan, collected), _effects(run, fit), [*_notes(plan, taken), *_losses(records)], _facts(fit)
    )


def _points(plan: Plan, collected: Mapping[tuple[str, str], list[pl.DataFrame]]) -> list[Point]:
    """Returns the points of a plan in the order of its rows: those to each stage, then those that it emits, then those
    to sinks.
    """
    found = list[Point]()
    for consumer in (*plan.stages, *plan.sinks):
        for (producer, where), frames in sorted(collected.items(), key=lambda item: item[0]):
            name, role = addressed(where)
            if name == consumer:
                identity = _identity(plan, producer) if consumer in plan.sinks else ()
                found.append(Point(producer, consumer, role, _joined(frames), identity))
        if consumer in plan.stages:
            frames = collected.get((consumer, ""), [])
            found.append(Point(consumer, "", "", _joined(frames), _identity(plan, consumer)))
    return found


def _joined(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()


def _identity(plan: Plan, producer: str) -> tuple[str, ...]:
    """Returns the columns that identify a row that a stage emits: its keys, window and number."""
    if producer not in plan.stages:
        return ()
    operator = plan.stages[producer].stage.operator
    keys = tuple(operator.tables[0].table.keys)
    if operator.panes is None:
        return (*keys, EVENT_TIME) if keys else ()
    return (*keys, *WINDOW_COLUMNS, PANE_INDEX, PANE_RETRACTED)


def _effects(run: RecordedRun, fit: Fit) -> list[Effect]:
    """Returns the effect of the plan on the state of each stage of the run, and of each new stage."""
    found = list[Effect]()
    saved, now = run.manifest["stages"], fit.described["stages"]
    for name in {**saved, **now}:
        mine = [one for one in fit.differences if f"stage {name!r}" in one.what]
        if mine:
            found.append(Effect(name, "refused", "; ".join(f"{one.what} -> {one.remedy}" for one in mine)))
        elif name not in now:
            found.append(Effect(name, "gone"))
        else:
            found.append(Effect(name, "goes on" if name in saved else "begins anew"))
    rest = [
        one for one in fit.differences if not any(f"stage {name!r}" in one.what for name in {**saved, **now})
    ]
    return found + [Effect("", "refused", f"{one.what} -> {one.remedy}") for one in rest]


def _facts(fit: Fit) -> dict[str, dict[str, Any]]:
    """Returns the texts that describe each source and stage, and the routes to each stage and sink."""
    found = {name: dict(facts["text"]) for name, facts in fit.described["sources"].items()}
    found |= {name: dict(facts["text"]) for name, facts in fit.described["stages"].items()}
    return found | {name: {"ways": texts_to(fit.plan, name)} for name in fit.plan.sinks}


def _notes(plan: Plan, taken: set[str]) -> list[str]:
    if STEPS in taken:
        return []
    return [
        f"source {name!r} has no recorded input: it is new, or has had no rows"
        for name in plan.sources
        if name not in taken
    ]


def _losses(records: Iterable[BatchRecord]) -> Iterator[str]:
    """Yields the numbers of dead letters and dropped elements over all batches."""
    letters, errors, dropped = Counter[str](), dict[str, str](), Counter[tuple[str, str]]()
    for record in records:
        letters.update(record.set_aside)
        errors |= record.errors
        dropped.update(
            {
                (name, why): count
                for name, stage in record.stages.items()
                for why, count in stage.dropped.items()
            }
        )
    for name, count in letters.items():
        why = errors.get(name, "unknown")
        yield f"step {name!r} has {rows_text(count, 'dead letter')}, the last one because: {why}"
    for (name, why), count in dropped.items():
        yield f"stage {name!r} drops {rows_text(count, 'element')} ({why})"
