"""Folds arrivals and state into one row per (key, window), and merges windows of a key."""

from __future__ import annotations

from typing import Final

import attrs
import polars as pl

from stages.grouping.layout import CLOSED, COUNT, NEW_HOLD, Layout
from stages.operator import HOLD, PENDING
from stages.parted import parted, replaced
from windowing.columns import WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.panes import LAST_TIMING, NEXT_INDEX, NEXT_NONSPECULATIVE
from windowing.triggers.base import ALL, ROOT, TriggerContext
from windowing.windows import RUN

_ACTIVE: Final = "__active"
_NUMBER: Final = "__number"
_PARTS: Final = "__parts"
_SAME: Final = "__same"
_NOT: Final = "|not"
MERGED_COLUMNS: Final = ("__merged_start", "__merged_end")


@attrs.frozen
class Combined:
    """A row per (key, window) that arrivals may have reached, and the merged window of each window of arrivals."""

    rows: pl.DataFrame
    placed: pl.LazyFrame


def reduce_arrivals(arrivals: pl.DataFrame, layout: Layout, merging: bool) -> pl.DataFrame:
    """Lifted elements with windows -> one row per (key, window or run of windows that merge)."""
    combiner = layout.windowing.timestamp_combiner
    # Rows that were lifted before they came are several elements each.
    count = pl.col(COUNT).sum() if COUNT in arrivals.columns else pl.len().cast(pl.Int64)
    folds = {**layout.merge, COUNT: count, NEW_HOLD: combiner.fold(pl.col(NEW_HOLD))}
    if merging and layout.windowing.windows.merges_in_parts:
        ordered = layout.windowing.windows.merge(arrivals, layout.keys)
        reduced = _by_run(ordered, layout, folds)
    else:
        reduced = arrivals.group_by(*layout.keys, *WINDOW_COLUMNS, maintain_order=True).agg(**folds)
    return reduced.select(replaced(layout.incoming, layout.fresh))


def _by_run(ordered: pl.DataFrame, layout: Layout, folds: dict[str, pl.Expr]) -> pl.DataFrame:
    keys = [pl.col(key).first() for key in layout.keys]
    bounds = layout.windowing.windows.run_bounds()
    return ordered.group_by(RUN, maintain_order=True).agg(*keys, **bounds, **folds)


def combine_windows(state: pl.DataFrame, incoming: pl.DataFrame, layout: Layout) -> Combined:
    """State and arrivals of windows that do not merge -> one row each; a closed window accepts no elements."""
    merged = {name: pl.col(column) for name, column in zip(MERGED_COLUMNS, WINDOW_COLUMNS, strict=True)}
    placed = incoming.lazy().select(*layout.keys, *WINDOW_COLUMNS, **merged)
    return Combined(_grouped(pl.concat([state, incoming]), layout), placed)


def _grouped(rows: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    return rows.group_by(*layout.keys, *WINDOW_COLUMNS, maintain_order=True).agg(**layout.folds)


def combine_merging(
    state: pl.DataFrame, incoming: pl.DataFrame, layout: Layout, context: TriggerContext
) -> Combined:
    """State and arrivals of merging windows -> one row per merged one, and the closed ones, which do not merge.

    A merged window without an open part that has the bounds of a closed one is that closed one.
    """
    closed = state.filter(pl.col(CLOSED))
    ordered = _in_runs(state.filter(~pl.col(CLOSED)), incoming, layout)
    placed = ordered.lazy().filter(~pl.col(_ACTIVE)).select(*layout.keys, *WINDOW_COLUMNS, *MERGED_COLUMNS)
    merged = _by_run(ordered.with_columns(**_masked(layout)), layout, layout.folds | _merge_folds(layout))
    merged = _settle(merged, layout, context)
    if closed.is_empty():
        return Combined(merged.drop(_PARTS), placed)
    return Combined(_meet_closed(merged, closed, layout), placed)


def _in_runs(active: pl.DataFrame, incoming: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """All rows with the number and the bounds of the run that each is in.

    `_SAME`: an open window has these bounds already. Within a run, what was there comes first, in order of time, and
    then what comes, in order of arrival: `last` prefers the later of equals.
    """
    rows = pl.concat(
        [
            active.with_columns(pl.lit(True).alias(_ACTIVE)),
            incoming.with_columns(pl.lit(False).alias(_ACTIVE)),
        ]
    ).with_row_index(_NUMBER)
    windows = layout.windowing.windows
    ordered = windows.merge(rows, layout.keys)
    bounds = ordered.group_by(RUN, maintain_order=True).agg(**windows.run_bounds())
    run = ordered[RUN] - 1
    merged = [
        bounds[column].gather(run).alias(name)
        for name, column in zip(MERGED_COLUMNS, WINDOW_COLUMNS, strict=True)
    ]
    start, end = MERGED_COLUMNS
    same = pl.col(_ACTIVE) & (pl.col(WINDOW_START) == pl.col(start)) & (pl.col(WINDOW_END) == pl.col(end))
    ordered = ordered.with_columns(merged).with_columns(same.alias(_SAME))
    count, number = len(rows), pl.col(_NUMBER).cast(pl.Int64)
    place = pl.when(_ACTIVE).then(pl.int_range(pl.len())).otherwise(count + number)
    return ordered.sort(2 * count * pl.col(RUN).cast(pl.Int64) + place).drop(_NUMBER)


def _masked(layout: Layout) -> dict[str, pl.Expr]:
    """Keeps pane numbering only in the part with the merged bounds; for `cell|all`, adds the negation of bits."""
    same, active = pl.col(_SAME), pl.col(_ACTIVE)
    masked = {
        name: pl.when(same).then(pl.col(name)).otherwise(0) for name in (NEXT_INDEX, NEXT_NONSPECULATIVE)
    }
    masked[LAST_TIMING] = pl.when(same).then(pl.col(LAST_TIMING))
    bits = [name for name, cell in layout.windowing.trigger.cells().items() if cell.fold == "any"]
    return masked | {name + _NOT: active & ~pl.col(name) for name in bits}


def _merge_folds(layout: Layout) -> dict[str, pl.Expr]:
    cells = layout.windowing.trigger.cells().items()
    negations = {name + _NOT: pl.col(name + _NOT).any() for name, cell in cells if cell.fold == "any"}
    return negations | {_PARTS: pl.col(_ACTIVE).sum(), _SAME: pl.col(_SAME).any()}


def _settle(merged: pl.DataFrame, layout: Layout, context: TriggerContext) -> pl.DataFrame:
    """Updates trigger cells and holds of windows that have grown or merged."""
    trigger = layout.windowing.trigger
    grown = (pl.col(_PARTS) > 1) | ((pl.col(_PARTS) == 1) & ~pl.col(_SAME))
    env = {name: pl.col(name) for name in trigger.cells()}
    env |= {
        name + ALL: ~pl.col(name + _NOT) & (pl.col(_PARTS) > 0)
        for name, cell in trigger.cells().items()
        if cell.fold == "any"
    }
    settled = trigger.on_merge(env, ROOT, grown, context)
    columns = {name: settled[name] for name in trigger.cells()}
    if layout.windowing.timestamp_combiner.depends_on_window:
        # As for a new element: none before the input watermark, and so none at the end of a window that is over.
        held = pl.col(HOLD).is_not_null() & ~context.window_is_over()
        columns[HOLD] = pl.when(~grown).then(HOLD).when(held).then(pl.col(WINDOW_END) - 1)
    merged = merged.with_columns(**columns)
    # Open parts are unfinished; yet a fold over them may finish a composite. What was pending counts as dropped.
    closed = (pl.col(_PARTS) > 0) & trigger.finished({name: pl.col(name) for name in trigger.cells()}, ROOT)
    return merged.with_columns(
        closed.alias(CLOSED), (pl.col(COUNT) + pl.when(closed).then(PENDING).otherwise(0)).alias(COUNT)
    ).select(*layout.incoming, _PARTS)


def _meet_closed(merged: pl.DataFrame, closed: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    window = [*layout.keys, *WINDOW_COLUMNS]
    fresh = merged.filter(pl.col(_PARTS) == 0).drop(_PARTS)
    open_ = merged.filter(pl.col(_PARTS) > 0).drop(_PARTS)
    remaining = closed.join(open_, on=window, how="anti", nulls_equal=True)
    return pl.concat([open_, _grouped(pl.concat([remaining, fresh]), layout)], how="diagonal_relaxed").select(
        list(layout.incoming)
    )


def split(state: pl.DataFrame, reached: pl.DataFrame, on: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(state rows that the arrivals may reach, the others)."""
    if state.is_empty() or not on:
        return state, state.clear()
    hit = state.with_row_index("__row").join(reached.unique(), on=on, how="semi", nulls_equal=True)["__row"]
    return parted(state, pl.int_range(len(state), eager=True, dtype=pl.UInt32).is_in(hit.implode()))
