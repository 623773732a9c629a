"""The arrivals that a grouping accepts: each with its window, accumulators, a count, and the hold that it places."""

from __future__ import annotations

import attrs
import polars as pl

from stages.aggregates.base import ARRIVAL
from stages.grouping.dropped import LeftOut
from stages.grouping.layout import COUNT, NEW_HOLD, WindowLayout
from stages.grouping.pre_aggregation import has_accumulators
from stages.operator import Refused
from windowing.columns import PANE_RETRACTED, WINDOW_COLUMNS


@attrs.frozen(eq=False)
class AcceptedInput:
    """The arrivals of a bundle that may become part of the state, and those that were left out.

    `elements` and `placed` are the counts of `StepOutput`.
    """

    incoming: pl.DataFrame
    elements: int = 0
    placed: int = 0
    refused: Refused | None = None
    left_out: LeftOut = attrs.field(factory=LeftOut)


def with_accumulators(
    placed: pl.DataFrame, layout: WindowLayout, watermark: int, arrived: int
) -> pl.DataFrame:
    """Adds accumulators, a count, and the hold that each row places; a late row holds nothing.

    Lateness is judged by the input watermark (us), which all shards share. A hold that follows from the window is left
    out: as a constant it takes no room. `arrived` is the number of elements in all steps before.
    """
    combiner, windows = layout.windowing.timestamp_combiner, layout.windowing.windows
    if has_accumulators(placed):
        hold, lifted = pl.col(NEW_HOLD), {name: pl.col(name) for name in (*layout.parts, COUNT)}
    else:
        hold = combiner.element_hold(windows.ends_before(placed) if combiner.adjusted else None)
        lifted = layout.lift(retractions=PANE_RETRACTED in placed.columns)
        placed = layout.marked(placed)
        if layout.numbered:
            placed = placed.with_columns((arrived + pl.int_range(pl.len())).alias(ARRIVAL))
    holds = pl.lit(False) if combiner.depends_on_window else hold >= watermark
    holding = pl.when(holds).then(hold).alias(NEW_HOLD)
    return placed.select(*layout.keys, *WINDOW_COLUMNS, holding, **lifted)
