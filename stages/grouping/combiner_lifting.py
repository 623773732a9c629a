"""Pre-aggregation before the shuffle: of the rows of a source's task, one row per (key, window) is sent to the stage.

No pane changes if neither the hold nor the lateness of an element depends on when it meets the state: then
"lift, fold, place, fold" equals "place, lift, fold". A key with all elements then costs one row per task.

Where windows overlap, elements of a key that are in the same windows are folded first, also without a shuffle. So a row
per slice of time is spread over windows, not one per element: Li et al., "No Pane, No Gain", SIGMOD Record 34 (2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from stages.aggregates.builtin import Collect
from stages.aggregates.combine_fn import Combine
from stages.grouping.layout import COUNT, NEW_HOLD, Layout
from windowing import placing
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.custom import CustomWindows
from windowing.timestamp_combiners import TimestampCombiner
from windowing.windows import WindowFn

ELEMENTS: Final = "__elements"
"""Column of pre-aggregated rows: the number of their elements that no other row counts."""

LEAST_ROWS: Final = 1_000
"""Fewer rows than this are sent as they are: pre-aggregation costs about a millisecond."""

_SLICE: Final = "__slice"

_NOT_SMALLER: Final = (Collect, Combine)
"""Aggregates whose accumulators do not shrink: lists of all values, and the pickles of a user's accumulators."""


def lifts_early(layout: Layout, merging: bool) -> bool:
    """True if rows may be pre-aggregated before they are sent to shards, so that nothing but their number changes.

    False if windows merge, as they need the event times, and for a combiner that takes the earliest time, as an element
    behind the input watermark holds nothing, which only the stage knows. The newest element holds if any does.
    """
    windowing = layout.windowing
    return (
        not merging
        # Their windows come in lists, and may overlap in any way.
        and not isinstance(windowing.windows, CustomWindows)
        and windowing.timestamp_combiner in (TimestampCombiner.END_OF_WINDOW, TimestampCombiner.LATEST)
        and not any(isinstance(aggregate, _NOT_SMALLER) for aggregate in layout.aggregates.values())
    )


def is_lifted(rows: pl.DataFrame) -> bool:
    """True if these arrivals are pre-aggregated."""
    return COUNT in rows.columns


def elements_in(rows: pl.DataFrame) -> int:
    """The number of elements, pre-aggregated or not; an element that is in several windows counts once."""
    return int(rows[ELEMENTS].sum()) if is_lifted(rows) else len(rows)


def count_in(rows: pl.DataFrame) -> int:
    """The number of elements, pre-aggregated or not, each counted in every window that it is in."""
    return int(rows[COUNT].sum()) if is_lifted(rows) else len(rows)


def place(arrivals: pl.DataFrame, windows: WindowFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(a row per (element, window), the elements in no window), pre-aggregated or not."""
    if is_lifted(arrivals):
        outside = pl.col(WINDOW_START).is_null()
        return arrivals.filter(~outside), arrivals.filter(outside)
    return placing.place(arrivals, windows)


def lift(arrivals: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """Arrivals, which may be pre-aggregated -> a row per (key, window), in order of arrival.

    Columns: keys, window, accumulators, the newest hold (us) in `__new_hold`, elements in `__count` and `__elements`.
    Elements in no window have a row per key, without bounds.
    """
    return arrivals if is_lifted(arrivals) else _fold(_numbered(arrivals, layout), layout)


def lift_if_smaller(arrivals: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """Pre-aggregates arrivals if that leaves at most half as many rows."""
    if len(arrivals) < LEAST_ROWS:
        return arrivals
    sliced = lift_slices(arrivals, layout)
    placed = sliced if is_lifted(sliced) else _numbered(arrivals, layout)
    return _fold(placed, layout) if _at_most(len(arrivals) // 2, placed, WINDOW_COLUMNS, layout) else arrivals


def lift_slices(arrivals: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """Arrivals with many alike -> a row per (key, window, slice): elements of a key that are in the same windows.

    Arrivals stay as they are if they have their windows already, as panes that stay in theirs do, and for aggregates
    that depend on the order of arrivals, as slices may alternate.
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


def _at_most(rows: int, placed: pl.DataFrame, columns: Sequence[str], layout: Layout) -> bool:
    """True if there are about so many different keys and values of these columns, or fewer."""
    # An estimate, within a few percent, costs a tenth of folding rows that are all different.
    hashes = placed.select(*layout.keys, *columns).hash_rows().to_frame()
    return int(hashes.select(pl.first().approx_n_unique()).item()) <= rows


def _numbered(arrivals: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """A row per (element, window), and one for each element in no window; `__elements` is 1 in one row of each."""
    windows = layout.windowing.windows
    placed, outside = place(arrivals.with_row_index(ELEMENTS), windows)
    rows = pl.concat([placed, outside], how="diagonal") if len(outside) else placed
    first = pl.lit(1) if windows.period is None else pl.col(ELEMENTS).is_first_distinct()
    return rows.with_columns(first.cast(pl.Int64).alias(ELEMENTS))


def _fold(placed: pl.DataFrame, layout: Layout, by: Sequence[str] = WINDOW_COLUMNS) -> pl.DataFrame:
    """Rows, which may be pre-aggregated -> one per key and values of these columns."""
    lifted = placed if is_lifted(placed) else _lift(placed, layout, by)
    count = pl.col(COUNT).sum() if is_lifted(lifted) else pl.len().cast(pl.Int64).alias(COUNT)
    return lifted.group_by(*layout.keys, *by, maintain_order=True).agg(
        pl.col(ELEMENTS).sum(),
        layout.windowing.timestamp_combiner.fold(pl.col(NEW_HOLD)),
        count,
        **layout.merge,
    )


def _lift(placed: pl.DataFrame, layout: Layout, by: Sequence[str]) -> pl.DataFrame:
    combiner = layout.windowing.timestamp_combiner
    # Neither of the two combiners is adjusted; where elements are not in windows yet, one of them is not known.
    known = WINDOW_END in by or not combiner.depends_on_window
    hold = combiner.element_hold(None) if known else pl.lit(None, pl.Int64)
    return layout.marked(placed).select(
        *layout.keys,
        *by,
        hold.alias(NEW_HOLD),
        ELEMENTS,
        **layout.lift(retractions=PANE_RETRACTED in placed.columns),
    )
