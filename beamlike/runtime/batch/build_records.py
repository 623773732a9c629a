"""Builds the records of stages, sources and batches."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest

import attrs
import polars as pl

from beamlike.logical.origins import Promise
from beamlike.records.model import (
    MOST_SPLITS,
    BatchRecord,
    SourceRecord,
    SplitRecord,
    StageRecord,
    Upstream,
    furthest_behind,
)
from beamlike.records.shares import DELAYED, INCOMPLETE, KEPT, MOST_WINDOWS, WindowShare, merged_shares
from beamlike.rows.dead_letters import DeadLetterCounts
from stages.clock import Watermarks
from stages.progress.inputs import Inputs
from stages.progress.reports import Report
from stages.stage import StageResult
from stages.strategies.base import WatermarkStrategy
from windowing.columns import (
    PANE_COMPLETE,
    PANE_DRAINED,
    PANE_INDEX,
    PANE_NONSPECULATIVE_INDEX,
    PANE_RETRACTED,
    PANE_TIMING,
    WINDOW_COLUMNS,
    WINDOW_END,
)
from windowing.time import MAX_TIME


def stage_record(
    step: StageResult,
    upstream: Mapping[str, Report],
    finished: int,
    sides: Mapping[str, Report],
    promise: Promise | None = None,
) -> StageRecord:
    """Builds the record of a stage's step. `upstream` has the reports of its main inputs, `finished` the end time (us).

    `sides` has the reports of its sides, by the name of their clock. `promise` is that of the stage.
    """
    main, others = (
        {name: Upstream(report.watermark, report.idle) for name, report in reports.items()}
        for reports in (upstream, sides)
    )
    return StageRecord(
        step.watermarks.input,
        step.watermarks.output,
        held_by(step, main),
        elements=step.elements,
        panes=_panes(step),
        dropped={reason: count for reason, count in step.dropped.items() if count},
        live=step.live,
        keys=step.keys,
        bytes=step.bytes,
        percentiles=step.percentiles,
        finished=finished,
        upstream=main,
        window=step.holder if _holds(step) else None,
        placed=step.placed,
        emitted=step.emitted,
        pending=step.pending,
        holds=step.holds,
        timers=step.timers,
        fired=step.fired,
        sides=others,
        drained=int(step.panes[PANE_DRAINED].sum()) if PANE_DRAINED in step.panes.columns else 0,
        shares=_shares(step.panes),
        promised={} if promise is None else _promised(step, promise),
    )


def _shares(panes: pl.DataFrame) -> tuple[WindowShare, ...]:
    """Returns the completeness of the windows that emitted panes, if it was computed."""
    if PANE_COMPLETE not in panes.columns or PANE_INDEX not in panes.columns:
        return ()
    window = [*WINDOW_COLUMNS, PANE_TIMING, PANE_COMPLETE]
    counted = panes.filter(~pl.col(PANE_RETRACTED)).group_by(window).len()
    # Some are chosen here, so that a step with a session for each key has a small record.
    some = counted.sort(["len", *window], descending=[True, *[False] * len(window)]).head(MOST_WINDOWS)
    return merged_shares(WindowShare(*row) for row in some.rows())


def _promised(step: StageResult, promise: Promise) -> dict[str, int]:
    """Returns the number of on-time panes by how they kept the promise.

    A late pane counts if the window had no on-time pane. So each window counts once, unless its panes are all early.
    """
    first = ~pl.col(PANE_RETRACTED) & (pl.col(PANE_NONSPECULATIVE_INDEX) == 0)
    newest = None if step.completeness is None else step.completeness.newest
    age = pl.lit(None, pl.Int64) if newest is None else pl.lit(newest, pl.Int64) - pl.col(WINDOW_END)
    how = (
        pl.when(age > promise.within).then(pl.lit(DELAYED))
        .when((pl.col(PANE_COMPLETE) >= promise.complete).fill_null(False)).then(pl.lit(KEPT))
        .otherwise(pl.lit(INCOMPLETE))
    )  # fmt: skip
    judged = step.panes.filter(first).select(how.alias("how")).to_series()
    # All outcomes are counted from the first batch on, so that monitoring sees the first miss as an increase.
    return dict.fromkeys((DELAYED, INCOMPLETE, KEPT), 0) | dict(judged.value_counts().rows())


def with_letters(record: BatchRecord, lost: DeadLetterCounts, made: DeadLetterCounts) -> BatchRecord:
    """Returns the record with dead letters added: rows `lost` before they were elements, and dead letters `made` by
    later steps.

    The record of each source already counts its own lost rows.
    """
    # Retractions are compared with the dead letters of their step, which the record has only for later steps.
    uses = attrs.evolve(lost.plus(made), retractions=made.retractions).uses
    return attrs.evolve(record, dead_letters=made.counts, errors={**lost.errors, **made.errors}, uses=uses)


def source_record(name: str, inputs: Inputs, strategy: WatermarkStrategy) -> SourceRecord:
    """Builds the record of a source without the counts of the batch: its watermark, and what holds the watermark."""
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
    """Returns the number of panes by timing, with retracted panes counted separately. Rows that are not panes are
    counted as "rows".
    """
    if PANE_RETRACTED not in step.panes.columns:  # within a stage, all panes of a grouping have this column
        return {"rows": len(step.panes)} if len(step.panes) else {}
    if step.panes.is_empty():
        return {}
    if PANE_TIMING in step.panes.columns and not step.panes[PANE_RETRACTED].any():
        return dict(sorted(step.panes[PANE_TIMING].value_counts().rows()))
    timing = pl.col(PANE_TIMING) if PANE_TIMING in step.panes.columns else pl.lit("rows")
    timings = step.panes.select(pl.when(PANE_RETRACTED).then(pl.lit("retracted")).otherwise(timing))
    return dict(sorted(timings.to_series().value_counts().rows()))


def held_by(step: StageResult, upstream: Mapping[str, Upstream]) -> str:
    """Returns what holds the output watermark: a key and window in state, or the input that is furthest behind."""
    if step.watermarks.output >= MAX_TIME:
        return "nothing"
    return str(step.holder) if _holds(step) else furthest_behind(upstream)


def _holds(step: StageResult) -> bool:
    """True if the stage's own state holds its output watermark."""
    marks: Watermarks = step.watermarks
    return step.holder is not None and marks.output < min(marks.input, MAX_TIME)
