"""Folding arrivals and state into one row per (key, window); sessions of a key that overlap become one."""

from __future__ import annotations

from typing import Final

import polars as pl
from windowing.columns import WINDOW_END, WINDOW_START
from windowing.combiners import TimestampCombiner
from windowing.panes import LAST_TIMING, NEXT_INDEX, NEXT_NONSPECULATIVE
from windowing.triggers import ALL, ROOT, Moment
from windowing.windows import RUN

from stages.rows import CLOSED, COUNT, HOLD, NEW_HOLD, PENDING, Layout

_ACTIVE: Final = "__active"
_PARTS: Final = "__parts"
_SAME: Final = "__same"
_NOT: Final = "|not"
_FIRST_START, _LAST_END = "__first_start", "__last_end"


def reduce_arrivals(arrivals: pl.DataFrame, layout: Layout, merging: bool) -> pl.DataFrame:
    """Lifted elements with windows -> one row per (key, window or run of overlapping windows)."""
    combiner = layout.windowing.timestamp_combiner
    folds = {**layout.merge(), COUNT: pl.len().cast(pl.Int64), NEW_HOLD: combiner.fold(pl.col(NEW_HOLD))}
    if merging:
        ordered = layout.windowing.windows.merge(arrivals, layout.keys)
        reduced = _by_run(ordered, layout, folds)
    else:
        reduced = arrivals.group_by(*layout.keys, WINDOW_START, WINDOW_END, maintain_order=True).agg(**folds)
    return reduced.with_columns(**layout.fresh()).select(list(layout.incoming))


def _by_run(ordered: pl.DataFrame, layout: Layout, folds: dict[str, pl.Expr]) -> pl.DataFrame:
    bounds = {WINDOW_START: pl.col(WINDOW_START).min(), WINDOW_END: pl.col(WINDOW_END).max()}
    keys = [pl.col(key).first() for key in layout.keys]
    return ordered.group_by(RUN, maintain_order=True).agg(*keys, **bounds, **folds)


def combine_windows(rows: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """State and arrivals of windows that do not merge -> one row each; a closed window takes no elements."""
    return rows.group_by(*layout.keys, WINDOW_START, WINDOW_END, maintain_order=True).agg(**_folds(layout))


def combine_sessions(
    state: pl.DataFrame, incoming: pl.DataFrame, layout: Layout, moment: Moment
) -> pl.DataFrame:
    """State and arrivals of merging windows -> one row per session, and the closed ones, which do not merge.

    A session that no open one is part of, and that has the bounds of a closed window, is that closed window.
    """
    closed = state.filter(pl.col(CLOSED))
    merged = _merge(state.filter(~pl.col(CLOSED)), incoming, layout, moment)
    if closed.is_empty():
        return merged.drop(_PARTS)
    return _meet_closed(merged, closed, layout)


def _merge(active: pl.DataFrame, incoming: pl.DataFrame, layout: Layout, moment: Moment) -> pl.DataFrame:
    rows = pl.concat(
        [
            active.with_columns(pl.lit(True).alias(_ACTIVE)),
            incoming.with_columns(pl.lit(False).alias(_ACTIVE)),
        ]
    )
    ordered = _with_merged_bounds(layout.windowing.windows.merge(rows, layout.keys))
    # What was there has arrived before what comes: `last` prefers the later of equals.
    ordered = ordered.sort(RUN, ~pl.col(_ACTIVE), maintain_order=True)
    merged = _by_run(ordered.with_columns(**_masked(layout)), layout, _folds(layout) | _merge_folds(layout))
    return _settle(merged, layout, moment)


def _with_merged_bounds(ordered: pl.DataFrame) -> pl.DataFrame:
    """With the bounds of the run that each row is in, and whether an open window has these bounds already."""
    bounds = ordered.group_by(RUN, maintain_order=True).agg(
        pl.col(WINDOW_START).first().alias(_FIRST_START), pl.col(WINDOW_END).max().alias(_LAST_END)
    )
    run = ordered[RUN] - 1
    same = (
        pl.col(_ACTIVE)
        & (pl.col(WINDOW_START) == pl.col(_FIRST_START))
        & (pl.col(WINDOW_END) == pl.col(_LAST_END))
    )
    return ordered.with_columns(
        bounds[_FIRST_START].gather(run), bounds[_LAST_END].gather(run)
    ).with_columns(same.alias(_SAME))  # fmt: skip


def _masked(layout: Layout) -> dict[str, pl.Expr]:
    """Pane numbering lives on only in the part with the merged bounds; for `cell|all`, the negation of bits."""
    same, active = pl.col(_SAME), pl.col(_ACTIVE)
    masked = {
        name: pl.when(same).then(pl.col(name)).otherwise(0) for name in (NEXT_INDEX, NEXT_NONSPECULATIVE)
    }
    masked[LAST_TIMING] = pl.when(same).then(pl.col(LAST_TIMING))
    bits = [name for name, cell in layout.windowing.trigger.cells().items() if cell.fold == "any"]
    return masked | {name + _NOT: active & ~pl.col(name) for name in bits}


def _folds(layout: Layout) -> dict[str, pl.Expr]:
    """What becomes of each column when rows of one window become one row."""
    combiner = layout.windowing.timestamp_combiner
    folds = layout.merge() | {
        PENDING: pl.col(PENDING).sum(),
        HOLD: combiner.fold(pl.col(HOLD)),
        NEXT_INDEX: pl.col(NEXT_INDEX).max(),
        NEXT_NONSPECULATIVE: pl.col(NEXT_NONSPECULATIVE).max(),
        LAST_TIMING: pl.col(LAST_TIMING).max(),
    }
    for name, cell in layout.windowing.trigger.cells().items():
        folds[name] = {"any": pl.col(name).any(), "sum": pl.col(name).sum(), "min": pl.col(name).min()}[
            cell.fold
        ]
    return folds | {
        CLOSED: pl.col(CLOSED).any(),
        COUNT: pl.col(COUNT).sum(),
        NEW_HOLD: combiner.fold(pl.col(NEW_HOLD)),
    }


def _merge_folds(layout: Layout) -> dict[str, pl.Expr]:
    cells = layout.windowing.trigger.cells().items()
    negations = {name + _NOT: pl.col(name + _NOT).any() for name, cell in cells if cell.fold == "any"}
    return negations | {_PARTS: pl.col(_ACTIVE).sum(), _SAME: pl.col(_SAME).any()}


def _settle(merged: pl.DataFrame, layout: Layout, moment: Moment) -> pl.DataFrame:
    """Trigger cells and holds of sessions that have grown or met others."""
    trigger = layout.windowing.trigger
    grown = (pl.col(_PARTS) > 1) | ((pl.col(_PARTS) == 1) & ~pl.col(_SAME))
    env = {name: pl.col(name) for name in trigger.cells()}
    env |= {
        name + ALL: ~pl.col(name + _NOT) & (pl.col(_PARTS) > 0)
        for name, cell in trigger.cells().items()
        if cell.fold == "any"
    }
    settled = trigger.on_merge(env, ROOT, grown, moment)
    columns = {name: settled[name] for name in trigger.cells()}
    if layout.windowing.timestamp_combiner is TimestampCombiner.END_OF_WINDOW:
        columns[HOLD] = pl.when(pl.col(HOLD).is_not_null()).then(pl.col(WINDOW_END) - 1)
    merged = merged.with_columns(**columns)
    # Open parts are unfinished; yet a fold over them may finish a composite.
    closed = (pl.col(_PARTS) > 0) & trigger.finished({name: pl.col(name) for name in trigger.cells()}, ROOT)
    return merged.with_columns(closed.alias(CLOSED)).select(*layout.incoming, _PARTS)


def _meet_closed(merged: pl.DataFrame, closed: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    window = [*layout.keys, WINDOW_START, WINDOW_END]
    fresh = merged.filter(pl.col(_PARTS) == 0).drop(_PARTS)
    open_ = merged.filter(pl.col(_PARTS) > 0).drop(_PARTS)
    remaining = closed.join(open_, on=window, how="anti", nulls_equal=True)
    return pl.concat(
        [open_, combine_windows(pl.concat([remaining, fresh]), layout)], how="diagonal_relaxed"
    ).select(list(layout.incoming))
