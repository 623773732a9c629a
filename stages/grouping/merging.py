"""Reduces arrivals and state to one row for each key and window, and merges windows of a key.

Windows that merge are in one *run*. A run has any number of open windows of state, its parts, and windows of arrivals:

    state       [---- open ----)                [- closed -)
    arrivals               [--------)             [-----)
    result      [------ merged -----)           an arrival with exactly the bounds of a closed window is dropped;
                                                with other bounds it is a new window
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.frames import at, has_nested, partition, repeated, replaced
from stages.grouping.layout import CLOSED, COUNT, NEW_HOLD, STANDING, WindowLayout
from stages.operator import HOLD, PENDING
from windowing.columns import WINDOW_COLUMNS, WINDOW_END
from windowing.overlap import merges_with_any
from windowing.panes import LAST_TIMING, NEXT_INDEX, NEXT_NONSPECULATIVE
from windowing.triggers.base import ALL, ROOT, TriggerContext
from windowing.windows import RUN, WindowFn

_ACTIVE: Final = "__active"
"""True for open windows of state, false for arrivals."""
_NUMBER: Final = "__number"
_PARTS: Final = "__parts"
"""The number of open windows of state in a run."""
_SAME: Final = "__same"
"""True for an open window of state that has the bounds of its run already."""
_NOT: Final = "|not"
"""The suffix of a column with the negation of a trigger cell, by which "all" is computed as "not any not"."""
_TRUE: Final = pl.Series(_ACTIVE, [True])
_FALSE: Final = pl.Series(_ACTIVE, [False])
MANY: Final = 2
"""If keys have more than this many windows for each arrival, windows that no arrival can merge with are left out."""
MERGED_COLUMNS: Final = ("__merged_start", "__merged_end")
"""The bounds of the run of a window."""


@attrs.frozen(eq=False)
class Combined:
    """The result of merging arrivals into state.

    Attributes:
        rows: A row for each key and window. `COUNT` is the number of its new elements.
        placed: For each window of arrivals, its key, its bounds, and the bounds after the merge.
    """

    rows: pl.DataFrame
    placed: pl.LazyFrame


def reduce_arrivals(arrivals: pl.DataFrame, layout: WindowLayout, merging: bool) -> pl.DataFrame:
    """Reduces elements with accumulators to one row for each key and window, or run of windows that merge."""
    combiner = layout.hold_combiner
    # A pre-aggregated row has several elements.
    count = pl.col(COUNT).sum() if COUNT in arrivals.columns else pl.len().cast(pl.Int64)
    folds = {**layout.merge, COUNT: count, NEW_HOLD: combiner.fold(pl.col(NEW_HOLD))}
    if merging and layout.windowing.windows.merges_in_parts:
        ordered = layout.windowing.windows.merge(arrivals, layout.keys)
        reduced = _by_run(ordered, layout, folds)
    else:
        reduced = arrivals.group_by(*layout.keys, *WINDOW_COLUMNS, maintain_order=True).agg(**folds)
    return reduced.select(replaced(layout.incoming, layout.fresh))


def _by_run(ordered: pl.DataFrame, layout: WindowLayout, folds: dict[str, pl.Expr]) -> pl.DataFrame:
    keys = [pl.col(key).first() for key in layout.keys]
    bounds = layout.windowing.windows.run_bounds()
    return ordered.group_by(RUN, maintain_order=True).agg(*keys, **bounds, **folds)


def combine_windows(state: pl.DataFrame, incoming: pl.DataFrame, layout: WindowLayout) -> Combined:
    """Merges arrivals into state, for windows that do not merge with each other."""
    merged = {name: pl.col(column) for name, column in zip(MERGED_COLUMNS, WINDOW_COLUMNS, strict=True)}
    placed = incoming.lazy().select(*layout.keys, *WINDOW_COLUMNS, **merged)
    both = pl.concat(
        [state, incoming], rechunk=has_nested(state)
    )  # lists in several chunks are slow to merge
    return Combined(_grouped(both, layout), placed)


def _grouped(rows: pl.DataFrame, layout: WindowLayout) -> pl.DataFrame:
    return rows.group_by(*layout.keys, *WINDOW_COLUMNS, maintain_order=True).agg(**layout.folds)


def combine_merging(
    state: pl.DataFrame, incoming: pl.DataFrame, layout: WindowLayout, context: TriggerContext
) -> Combined:
    """Merges arrivals into state, for windows that merge with each other. Closed windows do not merge.

    If arrivals alone, without an open window of state, make a window with the bounds of a closed one, it is closed.
    """
    closed, open_ = partition(state, state[CLOSED])
    ordered = _in_runs(open_, incoming, layout)
    placed = ordered.lazy().filter(~pl.col(_ACTIVE)).select(*layout.keys, *WINDOW_COLUMNS, *MERGED_COLUMNS)
    masked = _masked(layout) | _late_by_merging(layout, context)
    merged = _by_run(ordered.with_columns(**masked), layout, layout.folds | _merge_folds(layout))
    merged = _complete_merge(merged, layout, context)
    if closed.is_empty():
        return Combined(merged[list(layout.incoming)], placed)
    return Combined(_merge_into_closed(merged, closed, layout), placed)


def _in_runs(active: pl.DataFrame, incoming: pl.DataFrame, layout: WindowLayout) -> pl.DataFrame:
    """Adds to all rows the number and the bounds of their run, and sorts them by run.

    Within a run, open windows come first, by time, then arrivals in their order, since `last` prefers the later of two
    values with equal times.
    """
    rows = pl.concat(
        [
            active.hstack([repeated(_TRUE, len(active))]),
            incoming.hstack([repeated(_FALSE, len(incoming))]),
        ]
    )
    rows = rows.hstack([pl.Series(_NUMBER, np.arange(len(rows)))])
    windows = layout.windowing.windows
    ordered = windows.merge(rows, layout.keys)
    run, number, open_ = (ordered[name].to_numpy() for name in (RUN, _NUMBER, _ACTIVE))
    merged = _bounds(windows, ordered)
    same = open_.copy()
    for bound, column in zip(merged, WINDOW_COLUMNS, strict=True):
        same &= bound == ordered[column].to_numpy()
    count = len(rows)
    place = 2 * count * run.astype(np.int64) + np.where(open_, np.arange(count), count + number)
    columns = zip((*MERGED_COLUMNS, _SAME), (*merged, same), strict=True)
    return at(ordered.drop(_NUMBER).hstack([pl.Series(*one) for one in columns]), np.argsort(place))


def _bounds(windows: WindowFn, ordered: pl.DataFrame) -> list[npt.NDArray[np.int64]]:
    """Returns the start and end (us) of the merged window that each row becomes a part of, its run."""
    run = ordered[RUN].to_numpy() - 1
    if not windows.merges_by_overlap:
        bounds = ordered.group_by(RUN, maintain_order=True).agg(**windows.run_bounds())
        return [bounds[column].to_numpy()[run] for column in WINDOW_COLUMNS]
    if ordered.is_empty():
        return [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    first = np.flatnonzero(np.diff(run, prepend=-1))
    start, end = (ordered[column].to_numpy() for column in WINDOW_COLUMNS)
    return [start[first][run], np.maximum.reduceat(end, first)[run]]


def _masked(layout: WindowLayout) -> dict[str, pl.Expr]:
    """Returns expressions that reset pane numbering, except in windows with the bounds of their run, and negate
    flags.
    """
    same, active = pl.col(_SAME), pl.col(_ACTIVE)
    masked = {
        name: pl.when(same).then(pl.col(name)).otherwise(0) for name in (NEXT_INDEX, NEXT_NONSPECULATIVE)
    }
    masked[LAST_TIMING] = pl.when(same).then(pl.col(LAST_TIMING))
    bits = [name for name, cell in layout.windowing.trigger.cells().items() if cell.fold == "any"]
    return masked | {name + _NOT: active & ~pl.col(name) for name in bits}


def _late_by_merging(layout: WindowLayout, context: TriggerContext) -> dict[str, pl.Expr]:
    """Returns an expression that removes the time of arrivals whose merged window is over, as it is that of late
    elements.

    Only windows of a user's own merges may be shorter than their parts, so that they are over and the part is not.
    """
    if not layout.stands or layout.counts_times or layout.windowing.windows.merges_by_overlap:
        return {}
    over = pl.col(MERGED_COLUMNS[1]) <= context.watermark
    return {STANDING: pl.when(pl.col(_ACTIVE) | ~over).then(STANDING)}


def _merge_folds(layout: WindowLayout) -> dict[str, pl.Expr]:
    cells = layout.windowing.trigger.cells().items()
    negations = {name + _NOT: pl.col(name + _NOT).any() for name, cell in cells if cell.fold == "any"}
    return negations | {_PARTS: pl.col(_ACTIVE).sum(), _SAME: pl.col(_SAME).any()}


def _complete_merge(merged: pl.DataFrame, layout: WindowLayout, context: TriggerContext) -> pl.DataFrame:
    """Updates trigger cells and holds of windows that have grown or merged, and closes those that are finished."""
    trigger = layout.windowing.trigger
    grown = (pl.col(_PARTS) > 1) | ((pl.col(_PARTS) == 1) & ~pl.col(_SAME))
    env = {name: pl.col(name) for name in trigger.cells()}
    env |= {
        name + ALL: ~pl.col(name + _NOT) & (pl.col(_PARTS) > 0)
        for name, cell in trigger.cells().items()
        if cell.fold == "any"
    }
    completed = trigger.on_merge(env, ROOT, grown, context)
    columns = {name: completed[name] for name in trigger.cells()}
    if layout.windowing.timestamp_combiner.depends_on_window:
        # As for a new element, there is no hold before the input watermark, so none for a window that is over.
        held = pl.col(HOLD).is_not_null() & ~context.window_is_over()
        columns[HOLD] = pl.when(~grown).then(HOLD).when(held).then(pl.col(WINDOW_END) - 1)
    merged = merged.with_columns(**columns)
    # No part is finished, but merging trigger cells may finish a composite trigger. Then pending elements are dropped.
    closed = (pl.col(_PARTS) > 0) & trigger.finished({name: pl.col(name) for name in trigger.cells()}, ROOT)
    return merged.with_columns(
        closed.alias(CLOSED), (pl.col(COUNT) + pl.when(closed).then(PENDING).otherwise(0)).alias(COUNT)
    ).select(*layout.incoming, _PARTS)


def _merge_into_closed(merged: pl.DataFrame, closed: pl.DataFrame, layout: WindowLayout) -> pl.DataFrame:
    window = [*layout.keys, *WINDOW_COLUMNS]
    fresh = merged.filter(pl.col(_PARTS) == 0).drop(_PARTS)
    open_ = merged.filter(pl.col(_PARTS) > 0).drop(_PARTS)
    remaining = closed.join(open_, on=window, how="anti", nulls_equal=True)
    return pl.concat([open_, _grouped(pl.concat([remaining, fresh]), layout)], how="diagonal_relaxed").select(
        list(layout.incoming)
    )


def split_alone(
    touched: pl.DataFrame, incoming: pl.DataFrame, windows: WindowFn, keys: tuple[str, ...]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divides rows of state into (those that may merge with an arrival or with each other, those that overlap with no
    other window).

    The search takes time. So all rows are in the first frame unless keys have many windows, and arrivals are few.
    """
    if not windows.merges_by_overlap or len(touched) <= MANY * len(incoming):
        return touched, touched.clear()
    return partition(touched, merges_with_any(touched, incoming, windows, keys))
