"""Builds the records of stages, sources and batches."""

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
    """Builds the record of a step, from the reports of its upstream and the time (us) at which the stage was done.

    `sides`: the reports of its other inputs, by the name of their clock.
    """
    heard, beside = (
        {name: Upstream(report.watermark, report.idle) for name, report in reports.items()}
        for reports in (upstream, sides)
    )
    return StageRecord(
        step.watermarks.input,
        step.watermarks.output,
        held_by(step, heard),
        elements=step.elements,
        panes=_panes(step),
        dropped={reason: count for reason, count in step.dropped.items() if count},
        live=step.live,
        keys=step.keys,
        bytes=step.bytes,
        percentiles=step.percentiles,
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
    """Adds dead letters to the record: rows that were `lost` before they were elements, and those that steps `made`.

    The record of each source counts its lost rows itself.
    """
    uses = lost.plus(made).uses
    return attrs.evolve(record, dead_letters=made.counts, errors={**lost.errors, **made.errors}, uses=uses)


def source_record(name: str, inputs: Inputs, strategy: WatermarkStrategy) -> SourceRecord:
    """The record of a source, without the counts of the batch: its watermark, and what holds that."""
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
    """The number of panes by timing, and of retracted ones; for rows that are not panes, only their number."""
    if PANE_RETRACTED not in step.panes.columns:  # all panes of a grouping have it, inside a step
        return {"rows": len(step.panes)} if len(step.panes) else {}
    timings = step.panes.select(pl.when(PANE_RETRACTED).then(pl.lit("retracted")).otherwise(PANE_TIMING))
    return dict(sorted(timings.to_series().value_counts().rows()))


def held_by(step: StageResult, upstream: Mapping[str, Upstream]) -> str:
    """The holder of the output watermark: a key and window in state, or the upstream that is furthest behind."""
    if step.watermarks.output >= MAX_TIME:
        return "nothing"
    return str(step.holder) if _holds(step) else furthest_behind(upstream)


def _holds(step: StageResult) -> bool:
    """True if the stage's own state holds its output watermark."""
    marks: Watermarks = step.watermarks
    return step.holder is not None and marks.output < min(marks.input, MAX_TIME)
