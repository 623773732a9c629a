"""Firing: the emission of panes by windows whose trigger is ready, and the state of these windows afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import attrs
import polars as pl

from stages import frames
from stages.clock import StepClock
from stages.frames import repeated, replaced
from stages.grouping.layout import CLOSED, EMITTED, OUTSTANDING, REMAINING, SILENT, WindowLayout
from stages.operator import HOLD, OUTSTANDING_HOLD, PENDING
from windowing.clocks import WATERMARK
from windowing.columns import (
    EVENT_TIME,
    PANE_CAUSE,
    PANE_COMPLETE,
    PANE_LAST,
    PANE_RETRACTED,
    PANE_TIMING,
    PANE_WATERMARK,
    WINDOW_COLUMNS,
    WINDOW_END,
    WINDOW_START,
)
from windowing.lateness import collected_at
from windowing.panes import ALWAYS, NEXT_INDEX, ON_TIME, Accumulation, cause, describe, number_next, timing
from windowing.time import MAX_TIME, MIN_TIME
from windowing.triggers.base import ROOT, TriggerContext

_LAST: Final = pl.Series(PANE_LAST, [True])
_DESCRIBED: Final = describe(pl.col(PANE_LAST))
"""Expressions for the pane columns of emitting windows, which have PANE_LAST and PANE_TIMING."""


def ready(layout: WindowLayout, context: TriggerContext) -> pl.Expr:
    """Returns an expression that is true for windows that are not closed and whose trigger is ready."""
    trigger = layout.windowing.trigger
    return ~pl.col(CLOSED) & trigger.ready({name: pl.col(name) for name in trigger.cells()}, ROOT, context)


def fire(
    rows: pl.DataFrame, layout: WindowLayout, clock: StepClock, context: TriggerContext
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Fires these windows, which must be ready. Returns (the windows afterwards, their panes)."""
    trigger = layout.windowing.trigger
    env = {name: pl.col(name) for name in trigger.cells()}
    after = trigger.on_fire(env, ROOT, pl.lit(True), context)
    if env:
        rows = rows.with_columns(**{name: after[name] for name in env})
    last = trigger.finished(env, ROOT)
    return _emit(rows.with_columns(last.alias(PANE_LAST)), layout, clock, context)


def collect(
    rows: pl.DataFrame, layout: WindowLayout, clock: StepClock, context: TriggerContext
) -> pl.DataFrame:
    """Returns the last panes of windows that are collected. Their pending elements are always emitted."""
    if rows.is_empty():
        return layout.no_panes
    return _emit(rows.hstack([repeated(_LAST, len(rows))]), layout, clock, context, closing=True)[1]


def _emit(
    rows: pl.DataFrame,
    layout: WindowLayout,
    clock: StepClock,
    context: TriggerContext,
    *,
    closing: bool = False,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the windows afterwards, unchanged if they are `closing` since then they are removed, and their panes."""
    # A pane is late only if the watermark before the step and the window's own hold have both passed its window. The
    # hold makes this independent of the watermark's holds by other keys, and so of the number of shards.
    promised = pl.min_horizontal(pl.lit(clock.input_before, pl.Int64), HOLD)
    rows = rows.with_columns(timing(context.watermark, promised).alias(PANE_TIMING))
    emits = _emits(layout)
    if layout.retractions:
        rows = rows.with_columns(_silent(layout).alias(SILENT))
    asked = _Asked(layout.asked, clock, context.watermark, closing)
    if not layout.retracts:
        panes = _panes(_emitting(rows, emits), layout, asked)
        return (rows if closing else _after(rows, emits, layout)), panes
    emitting, silent = rows.filter(emits), rows.filter(~emits)
    panes = _panes(emitting, layout, asked)
    retractions = _retractions_of(emitting, layout)
    if closing:
        return rows, pl.concat([retractions, panes])
    # Retractions are read from the outstanding panes before the new panes replace these.
    emitting = emitting.with_columns(**_as_outstanding(panes, layout))
    if layout.counts_times:
        hold = pl.min_horizontal(OUTSTANDING_HOLD, layout.earliest())
        emitting = emitting.with_columns(hold.alias(OUTSTANDING_HOLD))
    rows = pl.concat([_without_silent(emitting, layout), silent])
    return _after(rows, emits, layout), pl.concat([retractions, panes])


def _emits(layout: WindowLayout) -> pl.Expr:
    """Returns an expression that is true for firing windows that emit a pane: by new elements, or by `on_time` or
    `closing`.
    """
    windowing = layout.windowing
    emits = pl.col(PENDING) > 0
    if windowing.on_time == ALWAYS:
        emits = emits | (pl.col(PANE_TIMING) == ON_TIME)
    return emits | pl.col(PANE_LAST) if windowing.closing == ALWAYS else emits


def _emitting(rows: pl.DataFrame, emits: pl.Expr) -> pl.DataFrame:
    """Returns the windows that emit a pane. Mostly all of them have new elements, which the least count shows."""
    least = rows[PENDING].min()
    return rows if least is not None and cast(int, least) > 0 else rows.filter(emits)


@attrs.frozen
class _Asked:
    """The pane columns of panes that are asked for, with the step and the input watermark (us) that emit the panes."""

    names: tuple[str, ...]
    clock: StepClock
    watermark: int
    closing: bool

    def columns(self, rows: pl.DataFrame) -> dict[str, pl.Expr | pl.Series]:
        """Returns the columns of the panes of these windows, which have PANE_TIMING."""
        found: dict[str, pl.Expr | pl.Series] = {}
        if PANE_CAUSE in self.names:
            clock = self.clock
            found[PANE_CAUSE] = cause(clock.input_before, drained=clock.drained, closing=self.closing)
        if PANE_COMPLETE in self.names:
            from stages.completeness import Completeness  # few pipelines need it

            starts, ends = rows[WINDOW_START], rows[WINDOW_END]
            known = self.clock.completeness or Completeness()
            found[PANE_COMPLETE] = known.shares(starts, ends, self.watermark)
        if PANE_WATERMARK in self.names:
            finite = MIN_TIME < self.watermark < MAX_TIME
            found[PANE_WATERMARK] = pl.lit(self.watermark if finite else None, pl.Int64)
        return found


def _panes(rows: pl.DataFrame, layout: WindowLayout, asked: _Asked) -> pl.DataFrame:
    end = pl.col(WINDOW_END) - 1
    timestamp = pl.min_horizontal(layout.pane_time(), end).fill_null(end)
    return rows.select(
        *layout.keys,
        **layout.extract,
        **{EVENT_TIME: timestamp},
        **{column: pl.col(column) for column in WINDOW_COLUMNS},
        **_DESCRIBED,
        **asked.columns(rows),
        **{EMITTED: pl.col(PENDING)},
        **({SILENT: pl.col(SILENT)} if layout.retractions else {}),
    )


def _silent(layout: WindowLayout) -> pl.Expr:
    """Returns an expression that is true for firing windows that need no pane since all their elements were
    retracted.
    """
    nothing = pl.col(REMAINING) == 0
    # In retracting mode, the retraction of the last pane suffices. In other modes, a pane of no elements must correct
    # the earlier panes, if there are any.
    return nothing if layout.retracts else nothing & (pl.col(NEXT_INDEX) == 0)


def shown(panes: pl.DataFrame, layout: WindowLayout) -> pl.DataFrame:
    """Returns the panes that a step emits, without silent ones and without internal columns."""
    if not layout.retractions:
        return panes[:, list(layout.panes)]
    return panes.filter(~pl.col(SILENT)).drop(EMITTED, SILENT)


def _retractions_of(rows: pl.DataFrame, layout: WindowLayout) -> pl.DataFrame:
    """Returns the retractions of these windows: their outstanding panes, with the flag of a retraction."""
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


def _as_outstanding(panes: pl.DataFrame, layout: WindowLayout) -> dict[str, pl.Series]:
    """Returns the columns that store panes in their windows, to retract them later, with holds at the panes' event
    times.
    """
    content = pl.struct(name for name in layout.panes if name not in layout.keys)
    outstanding = panes.select(pl.concat_list(content).alias(OUTSTANDING))[OUTSTANDING]
    return {OUTSTANDING: outstanding, OUTSTANDING_HOLD: panes[EVENT_TIME]}


def _without_silent(rows: pl.DataFrame, layout: WindowLayout) -> pl.DataFrame:
    """Removes outstanding panes of windows with a silent pane: it is not emitted, so it cannot be retracted later."""
    if not layout.retractions:
        return rows
    nothing = layout.nothing_outstanding().items()
    return rows.with_columns(
        pl.when(SILENT).then(none).otherwise(pl.col(name)).alias(name) for name, none in nothing
    )


def delay_holds(rows: pl.DataFrame, layout: WindowLayout, context: TriggerContext) -> pl.DataFrame:
    """Delays the holds of outstanding panes by the allowed lateness, in windows that are over.

    Stages downstream allow at least the same lateness, so a retraction is not dropped there.
    """
    if not layout.retracts:
        return rows
    windowing = layout.windowing
    times = pl.col(OUTSTANDING).list.eval(pl.element().struct.field(EVENT_TIME))
    earliest = pl.min_horizontal(times.list.min(), layout.earliest())
    later = collected_at(windowing.allowed_lateness, earliest)
    hold = pl.when(context.window_is_over() & (pl.col(OUTSTANDING).list.len() > 0)).then(later)
    return rows.with_columns(hold.otherwise(OUTSTANDING_HOLD).alias(OUTSTANDING_HOLD))


def _after(rows: pl.DataFrame, emits: pl.Expr, layout: WindowLayout) -> pl.DataFrame:
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
    """Sorts panes: retractions first, then by end, start and key. So a replayed step emits the same bytes."""
    if len(panes) < 2:
        return panes
    return frames.in_order(panes, [~pl.col(PANE_RETRACTED), *map(pl.col, (WINDOW_END, WINDOW_START, *keys))])


def deadline(layout: WindowLayout, context: TriggerContext, clock: str) -> pl.Expr:
    """Returns an expression for the next time after `context` at which a window is due on a clock.

    It is due when its trigger may fire, when it is over and must move the holds of its outstanding panes, or when it is
    collected.
    """
    trigger = layout.windowing.trigger
    env = {name: pl.col(name) for name in trigger.cells()}
    due = pl.when(~pl.col(CLOSED)).then(trigger.deadline(env, ROOT, context, clock))
    if clock != WATERMARK:
        return due
    collected = collected_at(layout.windowing.allowed_lateness)
    if not layout.retracts:
        return pl.min_horizontal(collected, due)
    holds = pl.col(OUTSTANDING_HOLD).is_not_null() & ~context.window_is_over()
    return pl.min_horizontal(collected, due, pl.when(holds).then(WINDOW_END))


def due_by_clock(
    layout: WindowLayout, clocks: Sequence[str], then: TriggerContext, now: TriggerContext
) -> list[pl.Expr]:
    """Returns expressions, one for each clock except the watermark, that are true for windows that are due on it."""
    trigger = layout.windowing.trigger
    env = {name: pl.col(name) for name in trigger.cells()}
    return [
        (trigger.deadline(env, ROOT, then, clock) <= now.time(clock)).fill_null(False)
        for clock in clocks
        if clock != WATERMARK
    ]
