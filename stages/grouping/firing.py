"""Firing: which windows emit a pane, the columns of a pane, and the rows of windows after it."""

from __future__ import annotations

import polars as pl

from stages import sorting
from stages.grouping.layout import CLOSED, EMITTED, OUTSTANDING, REMAINING, SILENT, Layout
from stages.operator import HOLD, OUTSTANDING_HOLD, PENDING
from stages.parted import replaced
from windowing.clocks import WATERMARK
from windowing.columns import (
    EVENT_TIME,
    PANE_LAST,
    PANE_RETRACTED,
    PANE_TIMING,
    WINDOW_COLUMNS,
    WINDOW_END,
    WINDOW_START,
)
from windowing.lateness import collected_at
from windowing.panes import ALWAYS, NEXT_INDEX, ON_TIME, Accumulation, describe, number_next, timing
from windowing.triggers.base import ROOT, TriggerContext


def ready(layout: Layout, context: TriggerContext) -> pl.Expr:
    """True for open windows whose trigger is ready."""
    trigger = layout.windowing.trigger
    return ~pl.col(CLOSED) & trigger.ready({name: pl.col(name) for name in trigger.cells()}, ROOT, context)


def fire(
    rows: pl.DataFrame, layout: Layout, input_before: int, context: TriggerContext
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Fires these windows, which are ready: (the windows afterwards, their panes)."""
    trigger = layout.windowing.trigger
    env = {name: pl.col(name) for name in trigger.cells()}
    after = trigger.on_fire(env, ROOT, pl.lit(True), context)
    rows = rows.with_columns(**{name: after[name] for name in env})
    last = trigger.finished(env, ROOT)
    return _emit(rows.with_columns(last.alias(PANE_LAST)), layout, input_before, context)


def collect(rows: pl.DataFrame, layout: Layout, input_before: int, context: TriggerContext) -> pl.DataFrame:
    """The last panes of these open windows, whose time is over: pending elements are always emitted."""
    if rows.is_empty():
        return layout.no_panes
    return _emit(rows.with_columns(pl.lit(True).alias(PANE_LAST)), layout, input_before, context)[1]


def _emit(
    rows: pl.DataFrame, layout: Layout, input_before: int, context: TriggerContext
) -> tuple[pl.DataFrame, pl.DataFrame]:
    promised = pl.min_horizontal(pl.lit(input_before, pl.Int64), HOLD)
    rows = rows.with_columns(timing(context.watermark, promised).alias(PANE_TIMING))
    emits = _emits(layout)
    if layout.retractions:
        rows = rows.with_columns(_silent(layout).alias(SILENT))
    if not layout.retracts:
        return _after(rows, emits, layout), _panes(rows.filter(emits), layout)
    emitting, silent = rows.filter(emits), rows.filter(~emits)
    panes = _panes(emitting, layout)
    taken_back = _taken_back(emitting, layout)
    emitting = emitting.with_columns(**_as_outstanding(panes, layout))
    rows = pl.concat([_standing(emitting, layout), silent])
    return _after(rows, emits, layout), pl.concat([taken_back, panes])


def _emits(layout: Layout) -> pl.Expr:
    """True if a window that fires emits a pane; one without new elements only says that the window is complete."""
    windowing = layout.windowing
    emits = pl.col(PENDING) > 0
    if windowing.on_time == ALWAYS:
        emits = emits | (pl.col(PANE_TIMING) == ON_TIME)
    return emits | pl.col(PANE_LAST) if windowing.closing == ALWAYS else emits


def _panes(rows: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    end = pl.col(WINDOW_END) - 1
    timestamp = pl.min_horizontal(pl.col(HOLD), end).fill_null(end)
    return rows.select(
        *layout.keys,
        **layout.extract(),
        **{EVENT_TIME: timestamp},
        **{column: pl.col(column) for column in WINDOW_COLUMNS},
        **describe(pl.col(PANE_LAST)),
        **{EMITTED: pl.col(PENDING)},
        **({SILENT: pl.col(SILENT)} if layout.retractions else {}),
    )


def _silent(layout: Layout) -> pl.Expr:
    """True for firing windows without elements left, and without panes that stay."""
    nothing = pl.col(REMAINING) == 0
    # A pane that stays has to be replaced, or corrected, by one of no elements.
    return nothing if layout.retracts else nothing & (pl.col(NEXT_INDEX) == 0)


def shown(panes: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """The panes that a step emits, without columns that are used inside of the step only."""
    if not layout.retractions:
        return panes.drop(EMITTED)
    return panes.filter(~pl.col(SILENT)).drop(EMITTED, SILENT)


def _taken_back(rows: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """The panes that the next ones of these windows replace, as they were, but marked as retracted."""
    panes = rows.select(*layout.keys, OUTSTANDING).explode(OUTSTANDING, empty_as_null=False)
    return (
        panes.unnest(OUTSTANDING)
        .with_columns(
            pl.lit(True).alias(PANE_RETRACTED),
            pl.lit(0, pl.Int64).alias(EMITTED),
            pl.lit(False).alias(SILENT),
        )
        .select(layout.no_panes.columns)
    )


def _as_outstanding(panes: pl.DataFrame, layout: Layout) -> dict[str, pl.Series]:
    """Each pane as the one of its window that may be retracted, which holds at its time."""
    content = pl.struct(name for name in layout.panes if name not in layout.keys)
    outstanding = panes.select(pl.concat_list(content).alias(OUTSTANDING))[OUTSTANDING]
    return {OUTSTANDING: outstanding, OUTSTANDING_HOLD: panes[EVENT_TIME]}


def _standing(rows: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """Windows that have emitted; those that were silent have nothing to retract."""
    if not layout.retractions:
        return rows
    nothing = layout.nothing_outstanding().items()
    return rows.with_columns(
        pl.when(SILENT).then(none).otherwise(pl.col(name)).alias(name) for name, none in nothing
    )


def let_go(rows: pl.DataFrame, layout: Layout, context: TriggerContext) -> pl.DataFrame:
    """Moves the holds of panes that may be retracted later by the allowed lateness, in windows that are over.

    A stage that reads the panes allows at least as much lateness, so a correction is not too late there.
    """
    if not layout.retracts:
        return rows
    windowing = layout.windowing
    times = pl.col(OUTSTANDING).list.eval(pl.element().struct.field(EVENT_TIME))
    later = collected_at(windowing.allowed_lateness, times.list.min())
    hold = pl.when(context.window_is_over() & (pl.col(OUTSTANDING).list.len() > 0)).then(later)
    return rows.with_columns(hold.otherwise(OUTSTANDING_HOLD).alias(OUTSTANDING_HOLD))


def _after(rows: pl.DataFrame, emits: pl.Expr, layout: Layout) -> pl.DataFrame:
    last = pl.col(PANE_LAST)
    said = emits & ~pl.col(SILENT) if layout.retractions else emits
    discards = layout.windowing.accumulation is Accumulation.DISCARDING
    forgotten = {
        name: pl.when(last).then(nothing).otherwise(pl.col(name))
        for name, nothing in layout.nothing_outstanding().items()
    }
    after = {
        **layout.emptied(pl.lit(True) if discards else last),
        **number_next(said),
        **forgotten,
        PENDING: pl.lit(0, pl.Int64),
        HOLD: pl.lit(None, pl.Int64),
        CLOSED: last,
    }
    return rows.select(replaced(layout.state, after))


def in_order(panes: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """The panes in a fixed order, for equal bytes in a replay: retracted ones first, then by end, start and key."""
    return sorting.in_order(panes, [~pl.col(PANE_RETRACTED), *map(pl.col, (WINDOW_END, WINDOW_START, *keys))])


def deadline(layout: Layout, context: TriggerContext, clock: str) -> pl.Expr:
    """The time after `context` at which a window may fire, is collected, or moves the holds of outstanding panes."""
    trigger = layout.windowing.trigger
    env = {name: pl.col(name) for name in trigger.cells()}
    due = pl.when(~pl.col(CLOSED)).then(trigger.deadline(env, ROOT, context, clock))
    if clock != WATERMARK:
        return due
    holds = pl.col(OUTSTANDING_HOLD).is_not_null() if layout.retracts else pl.lit(False)
    ends = pl.when(holds & ~context.window_is_over()).then(WINDOW_END)
    return pl.min_horizontal(collected_at(layout.windowing.allowed_lateness), due, ends)
