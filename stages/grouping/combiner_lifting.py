"""Lifting before the shuffle: of the rows of a source's task, one row per (key, window) goes to the stage.

This changes no pane where neither the hold nor the lateness of an element depends on when it meets the state: then
"lift, fold, place, fold" is "place, lift, fold". A key with everything then costs one row per task.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from stages.aggregates.builtin import Collect
from stages.aggregates.combine_fn import Combine
from stages.grouping.layout import COUNT, NEW_HOLD, Layout
from windowing import placing
from windowing.columns import PANE_RETRACTED, WINDOW_COLUMNS, WINDOW_START
from windowing.custom import CustomWindows
from windowing.timestamp_combiners import TimestampCombiner
from windowing.windows import WindowFn

ELEMENTS: Final = "__elements"
"""Of lifted rows: how many elements are in them that no other row of theirs counts."""

LEAST_ROWS: Final = 1_000
"""Fewer rows than this are sent as they are: lifting costs about a millisecond."""

_NOT_SMALLER: Final = (Collect, Combine)
"""Lists of all values stay as long as they were; the pickles of a user's accumulators may be of any size."""


def lifts_early(layout: Layout, merging: bool) -> bool:
    """Whether rows may be lifted before they are placed on shards, so that nothing but their number changes.

    Not where windows merge, as they need the event times; nor with a combiner that takes the earliest time, as an
    element behind the input watermark holds nothing, which only the stage knows. The newest holds if any does.
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
    """Whether these arrivals have been lifted."""
    return COUNT in rows.columns


def elements_in(rows: pl.DataFrame) -> int:
    """How many elements came, lifted or not; one that is in several windows counts once."""
    return int(rows[ELEMENTS].sum()) if is_lifted(rows) else len(rows)


def count_in(rows: pl.DataFrame) -> int:
    """How many elements there are, lifted or not, each counted in every window that it is in."""
    return int(rows[COUNT].sum()) if is_lifted(rows) else len(rows)


def place(arrivals: pl.DataFrame, windows: WindowFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(a row per (element, window), the elements in no window), lifted or not."""
    if is_lifted(arrivals):
        outside = pl.col(WINDOW_START).is_null()
        return arrivals.filter(~outside), arrivals.filter(outside)
    return placing.place(arrivals, windows)


def lift(arrivals: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """Arrivals, which may be lifted -> a row per (key, window), in order of arrival.

    Columns: keys, window, accumulators, the newest hold (us) in `__new_hold`, elements in `__count` and `__elements`.
    Elements in no window have a row per key, without bounds.
    """
    return arrivals if is_lifted(arrivals) else _fold(_numbered(arrivals, layout), layout)


def lift_if_smaller(arrivals: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """Arrivals lifted if that leaves at most half as many rows, else as they are."""
    if len(arrivals) < LEAST_ROWS:
        return arrivals
    placed = _numbered(arrivals, layout)
    # An estimate, within a few percent, costs a tenth of folding rows that are all different.
    hashes = placed.select(*layout.keys, *WINDOW_COLUMNS).hash_rows().to_frame()
    expected: int = hashes.select(pl.first().approx_n_unique()).item()
    return _fold(placed, layout) if 2 * expected <= len(arrivals) else arrivals


def _numbered(arrivals: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """A row per (element, window), and one for each element in no window; `__elements` is 1 in one row of each."""
    windows = layout.windowing.windows
    placed, outside = place(arrivals.with_row_index(ELEMENTS), windows)
    rows = pl.concat([placed, outside], how="diagonal") if len(outside) else placed
    first = pl.lit(1) if windows.period is None else pl.col(ELEMENTS).is_first_distinct()
    return rows.with_columns(first.cast(pl.Int64).alias(ELEMENTS))


def _fold(placed: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    combiner = layout.windowing.timestamp_combiner
    hold = combiner.element_hold(None)  # neither of the two combiners is adjusted
    lifted = layout.marked(placed).select(
        *layout.keys,
        *WINDOW_COLUMNS,
        hold.alias(NEW_HOLD),
        ELEMENTS,
        **layout.lift(retractions=PANE_RETRACTED in placed.columns),
    )
    return lifted.group_by(*layout.keys, *WINDOW_COLUMNS, maintain_order=True).agg(
        pl.col(ELEMENTS).sum(),
        combiner.fold(pl.col(NEW_HOLD)),
        pl.len().cast(pl.Int64).alias(COUNT),
        **layout.merge,
    )
