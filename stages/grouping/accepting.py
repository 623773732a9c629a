"""The arrivals that a grouping accepts, with accumulators, a count of elements, and the hold of each."""

from __future__ import annotations

from typing import cast

import attrs
import polars as pl

from stages.aggregates.base import ARRIVAL
from stages.frames import partition
from stages.grouping.dropped import DroppedInput
from stages.grouping.layout import COUNT, NEW_HOLD, STANDING, WindowLayout
from stages.grouping.pre_aggregation import has_accumulators
from stages.operator import Refused
from windowing.columns import PANE_RETRACTED, WINDOW_COLUMNS, WINDOW_END
from windowing.lateness import collected_at, last_collected


@attrs.frozen(eq=False)
class AcceptedInput:
    """The arrivals of a bundle, divided into accepted and dropped ones.

    Attributes:
        incoming: The accepted arrivals, reduced to one row for each key and window.
        elements: The number of arrivals, without dead letters.
        placed: The number of arrivals, each counted once in every window that it is in.
        refused: The arrivals that became dead letters.
        dropped: The counts of dropped arrivals, and the arrivals by reason if the plan uses them.
    """

    incoming: pl.DataFrame
    elements: int = 0
    placed: int = 0
    refused: Refused | None = None
    dropped: DroppedInput = attrs.field(factory=DroppedInput)


def divide_collected(
    rows: pl.DataFrame, watermark: int, allowed_lateness: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divides rows into (rows whose window is collected at this watermark (us), other rows)."""
    ends, last = rows[WINDOW_END], last_collected(watermark, allowed_lateness)
    first = cast(int | None, ends.min())  # takes a tenth of the time of a mask
    return partition(rows, ends <= last) if first is not None and first <= last else (rows.clear(), rows)


def with_accumulators(
    placed: pl.DataFrame, layout: WindowLayout, watermark: int, arrived: int
) -> pl.DataFrame:
    """Converts elements with windows to rows with accumulators, the count, and the hold (us) of each.

    The hold is null for late elements: those before the input `watermark` (us), which is the same on all shards. It is
    also null if the window alone determines it, since a constant column is stored as one value.
    `arrived` is the number of elements in all previous steps, from which arrivals are numbered.
    """
    combiner, windows = layout.windowing.timestamp_combiner, layout.windowing.windows
    plain = combiner.depends_on_window and not (layout.stands or layout.numbered or has_accumulators(placed))
    if plain and PANE_RETRACTED not in placed.columns:
        return layout.lifted_alone(placed)
    if has_accumulators(placed):
        hold, lifted = pl.col(NEW_HOLD), {name: pl.col(name) for name in (*layout.parts, COUNT)}
    else:
        hold = combiner.element_hold(windows.ends_before(placed) if combiner.adjusted else None)
        lifted = dict(layout.lift(retractions=PANE_RETRACTED in placed.columns))
        placed = layout.marked(placed)
        if layout.numbered:
            placed = placed.with_columns((arrived + pl.int_range(pl.len())).alias(ARRIVAL))
    if layout.stands:
        retracts = PANE_RETRACTED in placed.columns
        lifted[STANDING] = layout.standing(hold, watermark, retractions=retracts)
    if layout.counts_times:
        # A late change may give its pane its own time, and holds so that the pane is in time.
        final = collected_at(layout.windowing.allowed_lateness, hold)
        hold = pl.when(hold >= watermark).then(hold).otherwise(final)
    holds = pl.lit(False) if combiner.depends_on_window else hold >= watermark
    holding = pl.when(holds).then(hold).alias(NEW_HOLD)
    return placed.select(*layout.keys, *WINDOW_COLUMNS, holding, **lifted)
