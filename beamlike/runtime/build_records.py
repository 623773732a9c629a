"""The records of stages, sources and batches, from what the engine gave."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest

import attrs
import polars as pl

from beamlike.records.model import (
    MOST_SPLITS,
    BatchRecord,
    SourceRecord,
    SplitRecord,
    StageRecord,
    Upstream,
    furthest_behind,
)
from beamlike.rows.dead_letters import DeadLetterCounts
from stages.clock import Watermarks
from stages.progress.inputs import Inputs
from stages.progress.reports import Report
from stages.stage import StageResult
from stages.strategies.base import WatermarkStrategy
from windowing.columns import PANE_DRAINED, PANE_RETRACTED, PANE_TIMING
from windowing.time import MAX_TIME


def stage_record(
    step: StageResult, upstream: Mapping[str, Report], finished: int, sides: Mapping[str, Report]
) -> StageRecord:
    """The record of one step, given where what is upstream stands, and when (us) the stage was done with the batch.

    `sides`: where its other inputs stand, by their clock.
    """
    heard, beside = (
        {name: Upstream(report.watermark, report.idle) for name, report in reports.items()}
        for reports in (upstream, sides)
    )
    return StageRecord(
        step.watermarks.input,
        step.watermarks.output,
        held_by(step, heard),
        step.elements,
        _panes(step),
        {reason: count for reason, count in step.dropped.items() if count},
        step.live,
        step.keys,
        step.bytes,
        step.percentiles,
        finished=finished,
        upstream=heard,
        window=step.holder if _holds(step) else None,
        placed=step.placed,
        emitted=step.emitted,
        pending=step.pending,
        holds=step.holds,
        timers=step.timers,
        fired=step.fired,
        sides=beside,
        drained=int(step.panes[PANE_DRAINED].sum()) if PANE_DRAINED in step.panes.columns else 0,
    )


def with_letters(record: BatchRecord, lost: DeadLetterCounts, made: DeadLetterCounts) -> BatchRecord:
    """The record with its dead letters: rows that were `lost` before they were elements, and those that steps made.

    Sources count the former in their own records.
    """
    uses = lost.plus(made).uses
    return attrs.evolve(record, dead_letters=made.counts, errors={**lost.errors, **made.errors}, uses=uses)


def source_record(name: str, inputs: Inputs, strategy: WatermarkStrategy) -> SourceRecord:
    """Where a source stands and what it waits for, without the counts of the batch."""
    state, holder = inputs.sources[name], inputs.blocked_on(name, strategy)
    splits = {} if strategy.per_split is None else state.splits
    behind = nsmallest(MOST_SPLITS, splits, key=lambda split: (splits[split].watermark, split))
    record = SourceRecord(
        state.watermark,
        idle=state.idle,
        percentiles=state.percentiles,
        splits={split: SplitRecord(splits[split].watermark, splits[split].spoke) for split in behind},
    )
    if holder is None:
        return record
    since = inputs.times[name] - holder.silent
    return attrs.evolve(record, split=holder.split, since=since, awaited=holder.awaited)


def _panes(step: StageResult) -> dict[str, int]:
    """How many by timing, and how many earlier ones were taken back; of what are no panes of its own, how many rows."""
    if PANE_RETRACTED not in step.panes.columns:  # which all panes of a grouping have, inside a step
        return {"rows": len(step.panes)} if len(step.panes) else {}
    timings = step.panes.select(pl.when(PANE_RETRACTED).then(pl.lit("retracted")).otherwise(PANE_TIMING))
    return dict(sorted(timings.to_series().value_counts().rows()))


def held_by(step: StageResult, upstream: Mapping[str, Upstream]) -> str:
    """What the output watermark waits for: a key and window in state, else who is furthest behind upstream."""
    if step.watermarks.output >= MAX_TIME:
        return "nothing"
    return str(step.holder) if _holds(step) else furthest_behind(upstream)


def _holds(step: StageResult) -> bool:
    """Whether it is something in its own state that holds its output watermark."""
    marks: Watermarks = step.watermarks
    return step.holder is not None and marks.output < min(marks.input, MAX_TIME)
