"""Pre-aggregation before the shuffle: a task of a source sends one row for each key and window to the stage.

It changes no pane if neither the hold nor the lateness of an element depends on when the stage receives it. Then
"accumulate, merge, assign windows, merge" equals "assign windows, accumulate, merge". A key that has all elements costs
only one row for each task.

Where windows overlap, elements of a key that are in the same windows are merged first, also without a shuffle. So one
row for each slice of time is assigned to several windows, instead of each element: Li et al., "No Pane, No Gain",
SIGMOD Record 34 (2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from stages.aggregates.builtin import Collect
from stages.aggregates.combine_fn import Combine
from stages.aggregates.standing import Standing
from stages.grouping.layout import COUNT, NEW_HOLD, WindowLayout
from windowing import placing
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.custom import CustomWindows
from windowing.timestamp_combiners import TimestampCombiner
from windowing.windows import WindowFn

ELEMENTS: Final = "__elements"
"""A column of pre-aggregated rows: the number of elements, where one row alone counts an element of several windows."""

LEAST_ROWS: Final = 1_000
"""The number of rows from which pre-aggregation is tried, since it takes about a millisecond."""

_SLICE: Final = "__slice"
"""A column with the start of a slice of time: all elements of a slice are in the same windows."""

_NOT_SMALLER: Final = (Collect, Combine, Standing)
"""Aggregates whose merged accumulators are as large as the single ones: lists of values, and pickled ones of users."""


def may_pre_aggregate(layout: WindowLayout, merging: bool) -> bool:
    """True if rows may be pre-aggregated before they are sent to shards, without a change of the output.

    False if windows merge, since this needs event times. False also for a combiner of the earliest time: late elements
    must not count, and only the stage knows which are late. The latest time is late only if all elements are.
    """
    windowing = layout.windowing
    return (
        not merging
        # Custom windows are a list for each row, and may overlap in any way.
        and not isinstance(windowing.windows, CustomWindows)
        and windowing.timestamp_combiner in (TimestampCombiner.END_OF_WINDOW, TimestampCombiner.LATEST)
        and not layout.counts_times  # the time of each element is counted
        and not any(isinstance(aggregate, _NOT_SMALLER) for aggregate in layout.aggregates.values())
    )


def has_accumulators(rows: pl.DataFrame) -> bool:
    """True if these arrivals were pre-aggregated."""
    return COUNT in rows.columns


def count_elements(rows: pl.DataFrame) -> int:
    """Returns the number of elements in arrivals, pre-aggregated or not. An element in several windows counts once."""
    return int(rows[ELEMENTS].sum()) if has_accumulators(rows) else len(rows)


def count_placed(rows: pl.DataFrame) -> int:
    """Returns the number of elements in arrivals, pre-aggregated or not. An element counts once in each of its
    windows.
    """
    return int(rows[COUNT].sum()) if has_accumulators(rows) else len(rows)


def place(arrivals: pl.DataFrame, windows: WindowFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Assigns windows to arrivals, pre-aggregated or not. Returns (a row for each window, arrivals in no window)."""
    if has_accumulators(arrivals):
        outside = pl.col(WINDOW_START).is_null()
        return arrivals.filter(~outside), arrivals.filter(outside)
    return placing.place(arrivals, windows)


def pre_aggregate(arrivals: pl.DataFrame, layout: WindowLayout) -> pl.DataFrame:
    """Reduces arrivals to one row for each key and window, unless they are pre-aggregated already.

    A row has the keys, the window, accumulators, the latest hold (us) in `__new_hold`, and the numbers of elements in
    `__count` and `__elements`. The elements of a key that are in no window have one row, without bounds.
    """
    return arrivals if has_accumulators(arrivals) else _fold(_numbered(arrivals, layout), layout)


def pre_aggregate_if_smaller(arrivals: pl.DataFrame, layout: WindowLayout) -> pl.DataFrame:
    """Pre-aggregates arrivals if the result has at most half as many rows."""
    if len(arrivals) < LEAST_ROWS:
        return arrivals
    sliced = pre_aggregate_slices(arrivals, layout)
    placed = sliced if has_accumulators(sliced) else _numbered(arrivals, layout)
    return _fold(placed, layout) if _at_most(len(arrivals) // 2, placed, WINDOW_COLUMNS, layout) else arrivals


def pre_aggregate_slices(arrivals: pl.DataFrame, layout: WindowLayout) -> pl.DataFrame:
    """Reduces arrivals to one row for each key, window and slice of time, if the result has at most half as many rows.

    A slice is a span of time whose elements are all in the same windows. Arrivals are returned unchanged if they have
    windows already, or if an aggregate depends on the order of arrivals, which slices do not preserve.
    """
    windows = layout.windowing.windows
    start = windows.slice_start()
    in_order = any(aggregate.ordered for aggregate in layout.aggregates.values())
    if start is None or in_order or WINDOW_START in arrivals.columns or len(arrivals) < LEAST_ROWS:
        return arrivals
    single = arrivals.with_columns(start.alias(_SLICE), pl.lit(1, pl.Int64).alias(ELEMENTS))
    if not _at_most(len(arrivals) // 2, single, [_SLICE], layout):
        return arrivals
    slices = _fold(single, layout, [_SLICE]).rename({_SLICE: EVENT_TIME}).with_row_index(_SLICE)
    spread, first = windows.assign(slices), pl.col(_SLICE).is_first_distinct()
    counted = spread.with_columns(pl.when(first).then(ELEMENTS).otherwise(0)).drop(_SLICE, EVENT_TIME)
    combiner = layout.windowing.timestamp_combiner
    if not combiner.depends_on_window:
        return counted
    return counted.with_columns(combiner.element_hold(None).alias(NEW_HOLD))


def _at_most(rows: int, placed: pl.DataFrame, columns: Sequence[str], layout: WindowLayout) -> bool:
    """True if the number of distinct combinations of the key and these columns is estimated to be at most `rows`."""
    # The estimate, within a few percent, takes a tenth of the time of merging rows that are all distinct.
    hashes = placed.select(*layout.keys, *columns).hash_rows().to_frame()
    return int(hashes.select(pl.first().approx_n_unique()).item()) <= rows


def _numbered(arrivals: pl.DataFrame, layout: WindowLayout) -> pl.DataFrame:
    """Assigns windows to elements: a row for each window, or one without. `__elements` is 1 in the first of them."""
    windows = layout.windowing.windows
    placed, outside = place(arrivals.with_row_index(ELEMENTS), windows)
    rows = pl.concat([placed, outside], how="diagonal") if len(outside) else placed
    first = pl.lit(1) if windows.period is None else pl.col(ELEMENTS).is_first_distinct()
    return rows.with_columns(first.cast(pl.Int64).alias(ELEMENTS))


def _fold(placed: pl.DataFrame, layout: WindowLayout, by: Sequence[str] = WINDOW_COLUMNS) -> pl.DataFrame:
    """Reduces rows, pre-aggregated or not, to one row for each key and combination of the columns `by`."""
    lifted = placed if has_accumulators(placed) else _lift(placed, layout, by)
    count = pl.col(COUNT).sum() if has_accumulators(lifted) else pl.len().cast(pl.Int64).alias(COUNT)
    return lifted.group_by(*layout.keys, *by, maintain_order=True).agg(
        pl.col(ELEMENTS).sum(),
        layout.windowing.timestamp_combiner.fold(pl.col(NEW_HOLD)),
        count,
        **layout.merge,
    )


def _lift(placed: pl.DataFrame, layout: WindowLayout, by: Sequence[str]) -> pl.DataFrame:
    combiner = layout.windowing.timestamp_combiner
    # Without windows, the hold of END_OF_WINDOW is not known yet. LATEST needs none.
    known = WINDOW_END in by or not combiner.depends_on_window
    hold = combiner.element_hold(None) if known else pl.lit(None, pl.Int64)
    return layout.marked(placed).select(
        *layout.keys,
        *by,
        hold.alias(NEW_HOLD),
        ELEMENTS,
        **layout.lift(retractions=PANE_RETRACTED in placed.columns),
    )
