"""Reduces arrivals and state to one row for each key and window, and merges windows of a key.

Windows that merge are in one *run*. A run has any number of open windows of state, its parts, and windows of arrivals:

    state       [---- open ----)                [- closed -)
    arrivals               [--------)             [-----)
    result      [------ merged -----)           an arrival with exactly the bounds of a closed window is dropped;
                                                with other bounds it is a new window
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.frames import at, has_nested, partition, repeated, with_series
from stages.grouping.layout import CLOSED, COUNT, NEW_HOLD, STANDING, WindowLayout
from stages.operator import HOLD, PENDING
from windowing.columns import WINDOW_COLUMNS, WINDOW_END
from windowing.overlap import merges_with_any
from windowing.panes import LAST_TIMING, NEXT_INDEX, NEXT_NONSPECULATIVE, PANE_STATE
from windowing.triggers.base import ALL, EVERYWHERE, ROOT, TriggerContext
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
MANY: Final = 2
"""The number of windows per arrival above which windows that no arrival can merge with are left out."""
MERGED_COLUMNS: Final = ("__merged_start", "__merged_end")
"""The bounds of the run of a window."""


@attrs.frozen(eq=False)
class Combined:
    """The result of merging arrivals into state.

    Attributes:
        rows: A row for each key and window. `COUNT` is the number of its new elements.
        placed: Returns, for each window of arrivals, its key, its bounds, and the bounds after the merge.
    """

    rows: pl.DataFrame
    placed: Callable[[], pl.DataFrame]


@attrs.frozen(slots=False, eq=False)
class WindowMerger:
    """Reduces arrivals to one row for each key and window, and merges them into the state of a grouping.

    It belongs to a plan: expressions that do not depend on the batch are created once. `merges` is true if windows of a
    key merge.
    """

    layout: WindowLayout
    merges: bool

    def reduce(self, arrivals: pl.DataFrame) -> pl.DataFrame:
        """Reduces elements with accumulators to one row for each key and window, or run of windows that merge."""
        folds = self._folds_of_arrivals[COUNT in arrivals.columns]
        windows = self.layout.windowing.windows
        if self.merges and windows.merges_in_parts:
            reduced = self._by_run(windows.merge(arrivals, self.layout.keys), folds)
        else:
            reduced = arrivals.group_by(*self._window, maintain_order=True).agg(folds)
        fresh = [repeated(column, len(reduced)) for column in self.layout.fresh_row]
        return reduced.hstack(fresh)[:, list(self.layout.incoming)]

    def combine(self, state: pl.DataFrame, incoming: pl.DataFrame, context: TriggerContext) -> Combined:
        """Merges arrivals into state rows, which have the columns COUNT and NEW_HOLD, too."""
        if self.merges:
            return self._combine_merging(state, incoming, context)
        # Lists in several chunks are slow to merge.
        both = pl.concat([state, incoming], rechunk=has_nested(state))
        if _is_unnumbered(state) and not state[CLOSED].any():
            open_ = both.group_by(*self._window, maintain_order=True).agg(self._folds_of_unnumbered)
            fresh = [repeated(column, len(open_)) for column in self._unnumbered]
            combined = open_.hstack(fresh)[:, list(self.layout.incoming)]
        else:
            combined = self._grouped(both)
        return Combined(combined, lambda: self._placed(incoming, WINDOW_COLUMNS))

    def _combine_merging(
        self, state: pl.DataFrame, incoming: pl.DataFrame, context: TriggerContext
    ) -> Combined:
        """Merges arrivals into state, for windows that merge with each other. Closed windows do not merge.

        If arrivals alone, without an open window of state, make a window with the bounds of a closed one, it is closed.
        """
        closed, open_ = partition(state, state[CLOSED])
        runs = _in_runs(open_, incoming, self.layout)
        rows = runs.rows
        if masked := _late_by_merging(self.layout, context):
            rows = runs.with_bounds().with_columns(masked)
        if self._bits or not _is_unnumbered(open_):
            rows = rows.with_columns(self._masked)
        merged = _complete_merge(self._by_run(rows, self._folds_of_runs), self.layout, context)
        combined = merged[:, list(self.layout.incoming)] if closed.is_empty() else self._meet(merged, closed)
        return Combined(
            combined, lambda: self._placed(runs.with_bounds().filter(~pl.col(_ACTIVE)), MERGED_COLUMNS)
        )

    def _placed(self, incoming: pl.DataFrame, merged: tuple[str, str]) -> pl.DataFrame:
        """Returns the keys and bounds of arrivals with the bounds after the merge, which are the columns `merged`."""
        bounds = {name: pl.col(column) for name, column in zip(MERGED_COLUMNS, merged, strict=True)}
        return incoming.select(*self._window, **bounds)

    def _by_run(self, ordered: pl.DataFrame, folds: list[pl.Expr]) -> pl.DataFrame:
        return ordered.group_by(RUN, maintain_order=True).agg(self._keys_and_bounds + folds)

    def _grouped(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.group_by(*self._window, maintain_order=True).agg(self._folds)

    @cached_property
    def _window(self) -> tuple[str, ...]:
        """The columns that identify a window."""
        return (*self.layout.keys, *WINDOW_COLUMNS)

    @cached_property
    def _keys_and_bounds(self) -> list[pl.Expr]:
        """Aggregations of the key and the bounds of a run of windows."""
        bounds = self.layout.windowing.windows.run_bounds()
        return [*(pl.col(key).first() for key in self.layout.keys), *_named(bounds)]

    @cached_property
    def _folds(self) -> list[pl.Expr]:
        """Aggregations that merge several rows of one window into one row."""
        return _named(self.layout.folds)

    @cached_property
    def _unnumbered(self) -> list[pl.Series]:
        """The columns that are the same in all windows without a pane that are not closed."""
        return self.layout.fresh_row[:, [*PANE_STATE, CLOSED]].get_columns()

    @cached_property
    def _folds_of_unnumbered(self) -> list[pl.Expr]:
        """Aggregations like `_folds`, for windows without a pane that are not closed: other columns stay the same."""
        return _named(
            {name: fold for name, fold in self.layout.folds.items() if name not in (*PANE_STATE, CLOSED)}
        )

    @cached_property
    def _folds_of_arrivals(self) -> dict[bool, list[pl.Expr]]:
        """Aggregations of arrivals, by whether they are pre-aggregated: then a row has several elements."""
        counts = {True: pl.col(COUNT).sum(), False: pl.len().cast(pl.Int64)}
        hold = self.layout.hold_combiner.fold(pl.col(NEW_HOLD))
        return {
            several: _named({**self.layout.merge, COUNT: count, NEW_HOLD: hold})
            for several, count in counts.items()
        }

    @cached_property
    def _folds_of_runs(self) -> list[pl.Expr]:
        """Aggregations that merge the rows of a run, after `_masked`, into one row."""
        negations = {name + _NOT: pl.col(name + _NOT).any() for name in self._bits}
        return self._folds + _named(negations | {_PARTS: pl.col(_ACTIVE).sum(), _SAME: pl.col(_SAME).any()})

    @cached_property
    def _masked(self) -> list[pl.Expr]:
        """Expressions that reset pane numbering, except in windows with the bounds of their run, and negate flags."""
        same, active = pl.col(_SAME), pl.col(_ACTIVE)
        masked = {
            name: pl.when(same).then(pl.col(name)).otherwise(0) for name in (NEXT_INDEX, NEXT_NONSPECULATIVE)
        }
        masked[LAST_TIMING] = pl.when(same).then(pl.col(LAST_TIMING))
        return _named(masked | {name + _NOT: active & ~pl.col(name) for name in self._bits})

    @cached_property
    def _bits(self) -> list[str]:
        """The trigger cells that are flags."""
        return [name for name, cell in self.layout.windowing.trigger.cells().items() if cell.fold == "any"]

    def _meet(self, merged: pl.DataFrame, closed: pl.DataFrame) -> pl.DataFrame:
        """Merges windows that arrivals alone make into closed ones with the same bounds."""
        merged = merged[:, [*self.layout.incoming, _PARTS]]
        fresh = merged.filter(pl.col(_PARTS) == 0).drop(_PARTS)
        open_ = merged.filter(pl.col(_PARTS) > 0).drop(_PARTS)
        remaining = closed.join(open_, on=list(self._window), how="anti", nulls_equal=True)
        grouped = self._grouped(pl.concat([remaining, fresh]))
        return pl.concat([open_, grouped], how="diagonal_relaxed").select(list(self.layout.incoming))


def _named(columns: Mapping[str, pl.Expr]) -> list[pl.Expr]:
    return [column.alias(name) for name, column in columns.items()]


def _is_unnumbered(rows: pl.DataFrame) -> bool:
    """True if none of these windows has emitted a pane."""
    counts = (rows[NEXT_INDEX].max(), rows[NEXT_NONSPECULATIVE].max())
    return not any(counts) and rows[LAST_TIMING].null_count() == len(rows)


@attrs.frozen(eq=False)
class _Runs:
    """Open windows of state and arrivals, sorted by run, with the columns RUN, `_ACTIVE` and `_SAME`.

    `bounds` are the start and end (us) of the run of each row.
    """

    rows: pl.DataFrame
    bounds: list[npt.NDArray[np.int64]]

    def with_bounds(self) -> pl.DataFrame:
        """Returns the rows with MERGED_COLUMNS, which few steps need."""
        return self.rows.hstack([pl.Series(*one) for one in zip(MERGED_COLUMNS, self.bounds, strict=True)])


def _in_runs(active: pl.DataFrame, incoming: pl.DataFrame, layout: WindowLayout) -> _Runs:
    """Finds the runs of windows.

    Within a run, open windows come first, by time, then arrivals in their order, since `last` prefers the later of two
    values with equal times.
    """
    rows = active.vstack(incoming)
    rows = rows.hstack([pl.Series(_NUMBER, np.arange(len(rows)))])
    windows = layout.windowing.windows
    ordered = windows.merge(rows, layout.keys)
    run, number = (ordered[name].to_numpy() for name in (RUN, _NUMBER))
    open_ = number < len(active)
    merged = _bounds(windows, ordered)
    same = open_.copy()
    for bound, column in zip(merged, WINDOW_COLUMNS, strict=True):
        same &= bound == ordered[column].to_numpy()
    count = len(rows)
    place = 2 * count * run.astype(np.int64) + np.where(open_, np.arange(count), count + number)
    found = ordered.hstack([pl.Series(_ACTIVE, open_), pl.Series(_SAME, same)])
    found.drop_in_place(_NUMBER)
    # Mostly arrivals are later than the windows that they merge with, so that rows are in this order already.
    return _Runs(found if (place[1:] > place[:-1]).all() else at(found, np.argsort(place)), merged)


def _bounds(windows: WindowFn, ordered: pl.DataFrame) -> list[npt.NDArray[np.int64]]:
    """Returns the start and end (us) of the merged window that each row becomes a part of, its run."""
    run = ordered[RUN].to_numpy() - np.uint32(1)
    if not windows.merges_by_overlap:
        bounds = ordered.group_by(RUN, maintain_order=True).agg(**windows.run_bounds())
        return [bounds[column].to_numpy()[run] for column in WINDOW_COLUMNS]
    if ordered.is_empty():
        return [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    first = np.flatnonzero(np.concatenate(([True], run[1:] != run[:-1])))
    start, end = (ordered[column].to_numpy() for column in WINDOW_COLUMNS)
    return [start[first][run], np.maximum.reduceat(end, first)[run]]


def _late_by_merging(layout: WindowLayout, context: TriggerContext) -> list[pl.Expr]:
    """Returns an expression that removes the time of arrivals whose merged window is over, as it is that of late
    elements.

    Only windows of a user's own merges may be shorter than their parts, so that they are over and the part is not.
    """
    if not layout.stands or layout.counts_times or layout.windowing.windows.merges_by_overlap:
        return []
    over = pl.col(MERGED_COLUMNS[1]) <= context.watermark
    return [pl.when(pl.col(_ACTIVE) | ~over).then(STANDING).alias(STANDING)]


def _complete_merge(merged: pl.DataFrame, layout: WindowLayout, context: TriggerContext) -> pl.DataFrame:
    """Updates trigger cells and holds of windows that have grown or merged, and closes those that are finished."""
    trigger = layout.windowing.trigger
    holds = layout.windowing.timestamp_combiner.depends_on_window and _must_hold(merged, layout, context)
    if not (holds or trigger.cells()):
        return merged
    grown = (pl.col(_PARTS) > 1) | ((pl.col(_PARTS) == 1) & ~pl.col(_SAME))
    env = {name: pl.col(name) for name in trigger.cells()}
    env |= {
        name + ALL: ~pl.col(name + _NOT) & (pl.col(_PARTS) > 0)
        for name, cell in trigger.cells().items()
        if cell.fold == "any"
    }
    completed = trigger.on_merge(env, ROOT, grown, context)
    columns = {name: completed[name] for name in trigger.cells()}
    if holds:
        # As for a new element, there is no hold before the input watermark, so none for a window that is over.
        held = pl.col(HOLD).is_not_null() & ~context.window_is_over()
        columns[HOLD] = pl.when(~grown).then(HOLD).when(held).then(pl.col(WINDOW_END) - 1)
    merged = merged.with_columns(**columns)
    if not trigger.may_finish():
        return merged
    # No part is finished, but merging trigger cells may finish a composite trigger. Then pending elements are dropped.
    closed = (pl.col(_PARTS) > 0) & trigger.finished({name: pl.col(name) for name in trigger.cells()}, ROOT)
    return merged.with_columns(
        closed.alias(CLOSED), (pl.col(COUNT) + pl.when(closed).then(PENDING).otherwise(0)).alias(COUNT)
    )


def _must_hold(merged: pl.DataFrame, layout: WindowLayout, context: TriggerContext) -> bool:
    """True if the hold of some window changes with its end. `absorb` computes those of windows with new elements that
    are not over, which are nearly all that grow. It cannot advance a hold to an earlier time, as a window of the user's
    own may require, whose end is earlier after a merge.
    """
    if not layout.windowing.windows.merges_by_overlap:
        return True
    alone = (merged[_PARTS].to_numpy() > 1) & (merged[COUNT].to_numpy() == 0)
    return bool(alone.any()) or context.any_over(merged[WINDOW_END])


def absorb(combined: pl.DataFrame, layout: WindowLayout, context: TriggerContext) -> pl.DataFrame:
    """Updates pending counts, holds and trigger cells of windows with new elements; closed ones do not change."""
    trigger, combiner = layout.windowing.trigger, layout.hold_combiner
    any_closed = bool(combined[CLOSED].any())
    if combiner.depends_on_window and not (any_closed or trigger.cells()):
        ends = combined[WINDOW_END]
        if not context.any_over(ends):
            # Only counts and holds change, and a hold follows the end of its window, which never gets earlier.
            pending, hold = combined[PENDING] + combined[COUNT], (ends - 1).alias(HOLD)
            return with_series(combined[:, list(layout.state)], pending, hold)
    got = ~pl.col(CLOSED) if any_closed else EVERYWHERE
    new = pl.col(WINDOW_END) - 1 if combiner.depends_on_window else pl.col(NEW_HOLD)
    holds = got if layout.counts_times else got & ~context.window_is_over()
    env = {name: pl.col(name) for name in trigger.cells()}
    cells = trigger.on_elements(env, ROOT, got, pl.col(COUNT), context)
    count = pl.when(got).then(COUNT).otherwise(0) if any_closed else pl.col(COUNT)
    absorbed = {
        **{name: cells[name] for name in env},
        **(layout.emptied(pl.col(CLOSED)) if any_closed else {}),
        PENDING: pl.col(PENDING) + count,
        HOLD: combiner.both(pl.col(HOLD), pl.when(holds).then(new)),
    }
    return combined.with_columns(**absorbed)[:, list(layout.state)]


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
