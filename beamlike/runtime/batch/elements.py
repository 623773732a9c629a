"""Reads the elements of a chunk: its rows with an event time, after the steps before the watermark.

rows -> steps before the event time -> event time -> steps before the watermark -> elements
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import polars as pl

from beamlike.io.base import AnyFrame
from beamlike.plan.model import SourcePlan
from beamlike.rows.dead_letters import dead_letters
from beamlike.rows.event_time import Future, count_rows, event_times, read_event_time, split_dead_letters
from beamlike.steps.base import Step
from beamlike.steps.step_runner import StepRunner
from beamlike.steps.timestamps import WithTimestamps
from windowing.columns import EVENT_TIME


def read_elements(
    source: SourcePlan, chunk: AnyFrame, now: int, runner: StepRunner
) -> tuple[pl.DataFrame, int]:
    """Returns the elements of a chunk, with the needed columns, and the number of rows that were read.

    `now` is the processing time (us). `runner` applies the steps and collects their dead letters.
    """
    if isinstance(chunk, pl.DataFrame) and (rows := _without_steps(source, chunk, now, runner)) is not None:
        return rows, len(rows)
    return _with_steps(source, chunk.lazy(), now, runner)


def _without_steps(
    source: SourcePlan, chunk: pl.DataFrame, now: int, runner: StepRunner
) -> pl.DataFrame | None:
    """Returns the elements of rows in memory, without the optimizer of polars, which takes longer than the query.

    None if there are steps, no rows, or a row without a valid event time.
    """
    if source.time is None or source.steps_before_time or source.steps_after_time or runner.row_by_row:
        return None
    times = event_times(chunk, source.time.column, source.time.unit, _future(source, now))
    if times is None:
        return None
    rows = chunk.hstack([times])[:, list(source.needed)]
    _note_used(source, runner, rows, len(rows), False)
    return rows


def _future(source: SourcePlan, now: int) -> Future | None:
    """Returns the limit for event times in the future, if the source has one."""
    return None if source.max_future is None else Future(now, source.max_future)


def _with_steps(
    source: SourcePlan, chunk: pl.LazyFrame, now: int, runner: StepRunner
) -> tuple[pl.DataFrame, int]:
    """Returns the elements of a chunk and the number of rows that were read, as `read_elements` does."""
    # The rows must be counted before the steps, which may filter some.
    read = chunk.select(pl.len()).collect().item() if source.steps_before_time else None
    chunk = _through(source.steps_before_time, chunk, runner)
    if read:
        runner.mark_reached(source.steps_before_time)
    # A dead letter shows all columns of its row.
    columns = (*source.system, *source.schema) if runner.row_by_row else source.needed
    if source.time is None:
        if source.watermark.assigns_event_time:
            chunk = chunk.with_columns(pl.lit(now, pl.Int64).alias(EVENT_TIME))
        rows = chunk.select(columns).collect()
        read = len(rows) if read is None else read
        _note_used(source, runner, rows, len(rows), read > 0)
        return rows, read
    future = _future(source, now)
    timed = read_event_time(chunk, source.time.column, source.time.unit, future)
    if any(step.python for step in source.steps_after_time):
        # A Python step collects its input. Without this, the rows before it would be computed twice.
        timed = timed.collect().lazy()
    split = partial(split_dead_letters, timed, source.name, source.time.column, source.time.unit, future)
    if source.steps_after_time:
        rest = _through(source.steps_after_time, split()[0], runner).select(columns)
        rows, counts = pl.collect_all([rest, count_rows(timed)])
        total, lost = counts.row(0)
    else:
        rows = timed.select(columns).collect()
        total, lost = len(rows), rows[EVENT_TIME].null_count()
        rows = rows.drop_nulls(EVENT_TIME) if lost else rows
    if lost:  # only dead letters need every column of the source
        runner.set_aside(split()[1].collect())
    kept, read = len(rows), total if read is None else read
    if total > lost:
        runner.mark_reached(source.steps_after_time)
    if future is not None and any(isinstance(step, WithTimestamps) for step in source.steps_after_time):
        rows = _not_moved_too_far(source, rows, future, runner)
    _note_used(source, runner, rows, total, not kept and (total > lost if total else read > 0))
    return rows, read


def _note_used(
    source: SourcePlan, runner: StepRunner, rows: pl.DataFrame, timed: int, left_out: bool
) -> None:
    """Records which steps, and whether the source, could use a row.

    `timed` is the number of rows that the steps before the event time emitted, and `rows` are those that all steps
    emitted. `left_out`: rows with an event time arrived, and the steps after it filtered or refused all of them. Then
    the source could use a row, even if none is left.
    """
    if timed:
        runner.mark_used(source.steps_before_time)
    if len(rows):
        runner.mark_used(source.steps_after_time)
    if len(rows) or left_out:
        runner.used.add(source.name)


def _through(steps: Iterable[Step], frame: pl.LazyFrame, runner: StepRunner) -> pl.LazyFrame:
    for step in steps:
        frame, _ = runner.apply(step, frame)
    return frame


def _not_moved_too_far(
    source: SourcePlan, rows: pl.DataFrame, future: Future, runner: StepRunner
) -> pl.DataFrame:
    """Removes rows that a step moved too far into the future. They become dead letters."""
    why = rows.select(future.why("event time is", pl.col(EVENT_TIME))).to_series()
    if why.null_count() < len(rows):
        far = why.is_not_null()
        runner.set_aside(dead_letters(source.name, rows.filter(far), why.drop_nulls().to_list()))
        rows = rows.filter(~far)
    return rows
